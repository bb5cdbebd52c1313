#include "core/run/record/pass_order.h"

#include <iterator>  // std::ssize

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/run/record/run_probe.h"

namespace lockstep {
namespace {

int64_t BlockOf(const std::vector<std::string>& blocks, const std::string& place) {
  if (place == kProbedInputs) return -1;
  for (int64_t i = 0; i < std::ssize(blocks); ++i) {
    if (place == blocks[i] || absl::StartsWith(place, blocks[i] + ".")) return i;
  }
  return std::ssize(blocks);
}

}  // namespace

PassOrder OrderOf(const ProbedTensor& tensor, const std::vector<std::string>& blocks,
                  int64_t micro_batch, int64_t seen) {
  const bool is_forward = tensor.direction == ProbedTensor::Direction::kForward;
  const int64_t block = BlockOf(blocks, tensor.place);
  return {is_forward ? 0 : 1, micro_batch, is_forward ? block : -block, seen};
}

std::string InWords(const ProbedTensor& tensor) {
  const bool is_forward = tensor.direction == ProbedTensor::Direction::kForward;
  const bool is_of_batch = tensor.place == kProbedInputs || tensor.place == kProbedLosses;
  const char* what = is_of_batch ? "" : is_forward ? "the output of " : "the gradient of ";
  return absl::StrCat(what, tensor.place, " in micro-batch ", tensor.micro_batch);
}

}  // namespace lockstep
