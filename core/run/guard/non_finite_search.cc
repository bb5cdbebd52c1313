#include "core/run/guard/non_finite_search.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"

namespace lockstep {
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
  const PassOrder order = OrderOf(tensor, blocks_, tensor.micro_batch, seen_);
  if (first_ && first_->order < order) return;
  if (IsFinite(tensor, value)) return;
  first_ = {order, InWords(tensor)};
}

absl::Status NonFiniteSearch::Explain(const absl::Status& error, Communicator& ranks) const {
  const PassOrder own = first_ ? first_->order : kBehindAll;
  std::vector<PassOrder> orders(ranks.size());
  int64_t* const all = orders.front().data();
  LS_RETURN_IF_ERROR(GatherNumbers(ranks, own, absl::MakeSpan(all, own.size() * orders.size()),
                                   "first that is not finite"));
  const auto first = std::ranges::min_element(orders);
  if (*first == kBehindAll) return error;
  if (first - orders.begin() != ranks.rank()) return absl::OkStatus();
  return absl::Status(
      error.code(),
      absl::StrCat(error.message(), ". The first tensor that is not finite is ", first_->what));
}

}  // namespace lockstep
