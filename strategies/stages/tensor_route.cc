#include "strategies/stages/tensor_route.h"

#include <utility>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr char kShapes[] = "shapes";

}  // namespace

RouteLayout RouteLayout::Of(const std::vector<RoutedTensor>& tensors) {
  RouteLayout layout;
  for (const RoutedTensor& routed : tensors) {
    Entry entry = {.defined = routed.tensor.defined(), .needs_gradient = routed.needs_gradient};
    if (entry.defined) {
      entry.dtype = routed.tensor.dtype();
      entry.shape = routed.tensor.shape();
    }
    layout.entries.push_back(entry);
  }
  return layout;
}

// Of each entry: whether it is defined, and needs a gradient; dtype; rank, and that many extents.
std::vector<int64_t> RouteLayout::Encode() const {
  std::vector<int64_t> code;
  for (const Entry& entry : entries) {
    code.insert(code.end(), {entry.defined, entry.needs_gradient, static_cast<int64_t>(entry.dtype),
                             entry.shape.rank()});
    code.insert(code.end(), entry.shape.dims().begin(), entry.shape.dims().end());
  }
  return code;
}

RouteLayout RouteLayout::Decode(const std::vector<int64_t>& code) {
  RouteLayout layout;
  for (size_t at = 0; at < code.size();) {
    CHECK_LE(at + 4, code.size());
    const auto rank = static_cast<size_t>(code[at + 3]);
    CHECK_LE(at + 4 + rank, code.size());
    layout.entries.push_back({.defined = code[at] != 0,
                              .needs_gradient = code[at + 1] != 0,
                              .dtype = static_cast<DType>(code[at + 2]),
                              .shape = Shape(absl::MakeConstSpan(code).subspan(at + 4, rank))});
    at += 4 + rank;
  }
  return layout;
}

void RouteStart::Send(const BatchKind& kind, std::vector<RoutedTensor> tensors) {
  const RouteLayout layout = RouteLayout::Of(tensors);
  const auto [known, is_new] = known_.try_emplace(kind, layout);
  if (is_new) Announce(layout);
  CHECK(known->second == layout) << label_ << ": other tensors than for another batch of "
                                 << kind.samples << " samples";
  for (const RoutedTensor& routed : tensors) {
    if (routed.tensor.defined()) Send(routed.tensor, label_);
  }
}

void RouteStart::Announce(const RouteLayout& layout) {
  const std::vector<int64_t> code = layout.Encode();
  const auto length = static_cast<int64_t>(code.size());
  const Tensor size = kernels_.Empty({1}, DType::kI64, MemoryClass::kCommunication);
  const Tensor entries = kernels_.Empty({length}, DType::kI64, MemoryClass::kCommunication);
  kernels_.CopyFromHost(&length, size);
  kernels_.CopyFromHost(code.data(), entries);
  Send(size, kShapes);
  Send(entries, kShapes);
}

void RouteStart::Send(const Tensor& tensor, const std::string& label) {
  sent_.push_back({tensor, group_.Send(tensor, to_, label)});
}

void RouteStart::ReleaseSent() {
  while (!sent_.empty() && sent_.front().work.Done()) {
    ThrowIfError(sent_.front().work.Wait());
    sent_.pop_front();
  }
}

void RouteStart::AwaitSent() {
  for (Sent& sent : sent_) ThrowIfError(sent.work.Wait());
  sent_.clear();
}

void RouteEnd::Expect(const BatchKind& kind) {
  if (passed_over_ > 0 || !known_.contains(kind)) {
    ++passed_over_;
  } else {
    Begin(kind);
  }
}

std::vector<RoutedTensor> RouteEnd::Receive(const BatchKind& kind) {
  if (expected_.empty()) {
    if (passed_over_ > 0) --passed_over_;
    if (!known_.contains(kind)) known_[kind] = ReceiveAnnouncement();
    Begin(kind);
  }
  Expected expected = std::move(expected_.front());
  expected_.pop_front();
  CHECK(expected.kind == kind) << label_ << ": another batch was expected";
  ThrowIfError(WaitAll(absl::MakeSpan(expected.works)));
  for (RoutedTensor& routed : expected.tensors) {
    if (routed.tensor.defined()) routed.tensor.storage().Rebook(MemoryClass::kActivations);
  }
  return std::move(expected.tensors);
}

void RouteEnd::Begin(const BatchKind& kind) {
  Expected& next = expected_.emplace_back(Expected{.kind = kind});
  for (const RouteLayout::Entry& entry : known_[kind].entries) {
    RoutedTensor& routed = next.tensors.emplace_back();
    routed.needs_gradient = entry.needs_gradient;
    if (!entry.defined) continue;
    routed.tensor = kernels_.Empty(entry.shape, entry.dtype, MemoryClass::kCommunication);
    next.works.push_back(group_.Recv(routed.tensor, from_, label_));
  }
}

RouteLayout RouteEnd::ReceiveAnnouncement() {
  const auto receive = [this](int64_t elements) {
    const Tensor numbers = kernels_.Empty({elements}, DType::kI64, MemoryClass::kCommunication);
    ThrowIfError(group_.Recv(numbers, from_, kShapes).Wait());
    std::vector<int64_t> host(elements);
    kernels_.CopyToHost(numbers, host.data());
    return host;
  };
  return RouteLayout::Decode(receive(receive(1)[0]));
}

}  // namespace lockstep
