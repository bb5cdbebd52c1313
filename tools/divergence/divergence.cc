#include "tools/divergence/divergence.h"

#include <algorithm>
#include <iterator>  // std::ssize
#include <map>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/checkpoint/state_tensor.h"

namespace lockstep {
namespace {

// The order in which places are computed.
class Order {
 public:
  explicit Order(const ProbedRun& run) : blocks_(run.header().blocks) {
    for (const ProbedWhole& tensor : run.tensors) {
      seen_.emplace(tensor.key.place, static_cast<int64_t>(seen_.size()));
    }
  }

  int64_t BlockOf(const std::string& place) const {
    if (absl::StartsWith(place, "batch.")) return -1;
    const std::string name = ParameterOf(place);
    for (size_t i = 0; i < blocks_.size(); ++i) {
      if (name == blocks_[i] || absl::StartsWith(name, blocks_[i] + ".")) {
        return static_cast<int64_t>(i);
      }
    }
    return static_cast<int64_t>(blocks_.size());
  }

  // Backward goes through the places from the last one; and so do gradients become complete.
  auto Rank(const ProbeKey& key) const {
    const bool is_backward = key.kind == ProbeKind::kBackward ||
                             key.kind == ProbeKind::kShardGradient ||
                             key.kind == ProbeKind::kGradient;
    const int64_t sign = is_backward ? -1 : 1;
    // Optimizer state is what parameters are updated with.
    const bool is_updated = key.kind == ProbeKind::kStateAfter && !IsOptimizerState(key.place);
    const int64_t seen = seen_.at(key.place);
    const bool is_pass = key.kind == ProbeKind::kForward || key.kind == ProbeKind::kBackward;
    return std::tuple(key.step, PhaseOf(key.kind), is_pass ? key.number : 0,
                      static_cast<int>(key.kind), is_updated, sign * BlockOf(key.place),
                      sign * seen, sign * key.occurrence, key.number, key.part);
  }

 private:
  // Forward and backward of a micro-batch follow each other.
  static int PhaseOf(ProbeKind kind) {
    return static_cast<int>(kind == ProbeKind::kBackward ? ProbeKind::kForward : kind);
  }

  std::vector<std::string> blocks_;
  std::unordered_map<std::string, int64_t> seen_;
};

absl::Status CheckComparable(const ProbedRun& a, const ProbedRun& b) {
  const ProbeHeader &one = a.header(), &other = b.header();
  std::string problems;
  const auto check = [&problems](const char* what, const auto& x, const auto& y) {
    if (x == y) return;
    absl::StrAppend(&problems, problems.empty() ? "" : ", ", what, " (", x, " and ", y, ")");
  };
  check("workload", one.workload, other.workload);
  if (!one.model.empty() && !other.model.empty() && one.model != other.model) {
    absl::StrAppend(&problems, problems.empty() ? "" : ", ", "table [model]");
  }
  check("batch.size", one.batch, other.batch);
  check("cut.shards", one.shards, other.shards);
  check("cut.micro_batches", one.micro_batches, other.micro_batches);
  check("cut.tokens", one.tokens, other.tokens);
  if (problems.empty()) return absl::OkStatus();
  return InvalidArgument(a.folder, " and ", b.folder,
                         " are of runs that differ by configuration: ", problems,
                         "; give both the same, and probe again");
}

absl::Status CheckComplete(const ProbedRun& run, const ProbedWhole& tensor) {
  if (tensor.is_complete()) return absl::OkStatus();
  return InvalidArgument(run.folder, ": ", tensor.key.ToString(), ": ranks have ", tensor.elements,
                         " of its elements together, and that is not all; probe again, on all "
                         "ranks");
}

bool Agree(const ProbedWhole& a, const ProbedWhole& b) {
  return a.conflict.empty() && b.conflict.empty() && a.dtype == b.dtype && a.shape == b.shape &&
         a.digest.hash == b.digest.hash;
}

}  // namespace

std::string ParameterOf(const std::string& place) {
  if (!IsOptimizerState(place)) return place;
  const size_t begin = place.find('.', sizeof(kOptimizerPrefix) - 1);
  return begin == std::string::npos ? place : place.substr(begin + 1);
}

absl::StatusOr<Divergence> FindDivergence(const ProbedRun& a, const ProbedRun& b) {
  LS_RETURN_IF_ERROR(CheckComparable(a, b));
  Divergence result;
  std::map<ProbeKey, const ProbedWhole*> of_b;
  for (const ProbedWhole& tensor : b.tensors) of_b.emplace(tensor.key, &tensor);
  const Order order(a);
  std::vector<Difference> common;
  for (const ProbedWhole& tensor : a.tensors) {
    const auto other = of_b.find(tensor.key);
    if (other == of_b.end()) continue;
    LS_RETURN_IF_ERROR(CheckComplete(a, tensor));
    LS_RETURN_IF_ERROR(CheckComplete(b, *other->second));
    const int64_t block = order.BlockOf(tensor.key.place);
    const bool is_in_block = block >= 0 && block < std::ssize(a.header().blocks);
    common.push_back({&tensor, other->second, block, is_in_block});
  }
  result.compared = static_cast<int64_t>(common.size());
  result.only_a = static_cast<int64_t>(a.tensors.size()) - result.compared;
  result.only_b = static_cast<int64_t>(b.tensors.size()) - result.compared;
  if (common.empty()) {
    return InvalidArgument(a.folder, " and ", b.folder, ": have no place in common; probe the ",
                           "same steps (probe.first_step, probe.steps) and places (probe.places)");
  }
  std::stable_sort(common.begin(), common.end(), [&order](const auto& x, const auto& y) {
    return order.Rank(x.key()) < order.Rank(y.key());
  });
  for (const Difference& each : common) {
    if (!Agree(*each.a, *each.b)) {
      result.differences.push_back(each);
    } else if (result.differences.empty()) {
      result.last_agreed = each.key();
    }
  }
  return result;
}

}  // namespace lockstep
