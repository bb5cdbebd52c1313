#include "core/run/non_finite_search.h"

#include <algorithm>
#include <cmath>
#include <iterator>  // std::ssize
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"
#include "core/run/run_probe.h"

namespace lockstep {
namespace {

// Where a place lies in the model: the index of its block; what is no part of a block comes before
// all, or behind.
int64_t BlockOf(const std::vector<std::string>& blocks, const std::string& place) {
  if (place == kProbedInputs) return -1;
  for (int64_t i = 0; i < std::ssize(blocks); ++i) {
    if (place == blocks[i] || absl::StartsWith(place, blocks[i] + ".")) return i;
  }
  return std::ssize(blocks);
}

std::string InWords(const ProbedTensor& tensor) {
  const bool is_forward = tensor.direction == ProbedTensor::Direction::kForward;
  const bool is_of_batch = tensor.place == kProbedInputs || tensor.place == kProbedLosses;
  const char* what = is_of_batch ? "" : is_forward ? "the output of " : "the gradient of ";
  return absl::StrCat(what, tensor.place, " in micro-batch ", tensor.micro_batch);
}

}  // namespace

NonFiniteSearch::Order NonFiniteSearch::OrderOf(const ProbedTensor& tensor) const {
  const bool is_forward = tensor.direction == ProbedTensor::Direction::kForward;
  const int64_t block = BlockOf(blocks_, tensor.place);
  return {is_forward ? 0 : 1, tensor.micro_batch, is_forward ? block : -block, seen_};
}

bool NonFiniteSearch::IsFinite(const ProbedTensor& tensor, const Tensor& value) {
  const int64_t padding = tensor.features ? tensor.features->padding : 0;
  if (padding == 0) return std::isfinite(kernels_.MaxMagnitude(value));
  const int64_t held = value.shape()[-1] - padding;
  const Tensor own = kernels_.Empty({value.elements() / value.shape()[-1], held}, value.dtype());
  kernels_.CopyColumns(value, 0, held, own, 0);
  return std::isfinite(kernels_.MaxMagnitude(own));
}

void NonFiniteSearch::Observe(const ProbedTensor& tensor, const Tensor& value) {
  ++seen_;
  if (!IsFloating(value.dtype())) return;
  const Order order = OrderOf(tensor);
  if (first_ && first_->order < order) return;
  if (IsFinite(tensor, value)) return;
  first_ = {order, InWords(tensor)};
}

absl::Status NonFiniteSearch::Explain(const absl::Status& error, Communicator& ranks) const {
  constexpr Order kNone = {2, 0, 0, 0};  // behind all
  const Order own = first_ ? first_->order : kNone;
  std::vector<Order> orders(ranks.size());
  int64_t* const all = orders.front().data();
  LS_RETURN_IF_ERROR(GatherNumbers(ranks, own, absl::MakeSpan(all, own.size() * orders.size()),
                                   "first that is not finite"));
  const auto first = std::ranges::min_element(orders);
  if (*first == kNone) return error;
  if (first - orders.begin() != ranks.rank()) return absl::OkStatus();
  return absl::Status(
      error.code(),
      absl::StrCat(error.message(), ". The first tensor that is not finite is ", first_->what));
}

}  // namespace lockstep
