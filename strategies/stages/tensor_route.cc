#include "strategies/stages/tensor_route.h"

#include <iterator>  // std::ssize
#include <utility>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// Numbers of one announcement.
constexpr int64_t kPage = kAnnouncementBytes / static_cast<int64_t>(sizeof(int64_t));

Tensor EmptyPage(Kernels& kernels) {
  return kernels.Empty({kPage}, DType::kI64, MemoryClass::kCommunication);
}

}  // namespace

std::vector<int64_t> EncodeLayout(const RoutedTensors& tensors) {
  std::vector<int64_t> code;
  for (const auto& [tensor, needs_gradient] : tensors) {
    const bool defined = tensor.defined();
    const DType dtype = defined ? tensor.dtype() : DType::kF32;
    const Shape shape = defined ? tensor.shape() : Shape();
    code.insert(code.end(), {defined, needs_gradient, static_cast<int64_t>(dtype), shape.rank()});
    code.insert(code.end(), shape.dims().begin(), shape.dims().end());
  }
  return code;
}

std::vector<RouteEntry> DecodeLayout(const std::vector<int64_t>& code) {
  std::vector<RouteEntry> entries;
  for (size_t at = 0; at < code.size();) {
    CHECK_LE(at + 4, code.size());
    const auto rank = static_cast<size_t>(code[at + 3]);
    CHECK_LE(at + 4 + rank, code.size());
    entries.push_back({.defined = code[at] != 0,
                       .needs_gradient = code[at + 1] != 0,
                       .dtype = static_cast<DType>(code[at + 2]),
                       .shape = Shape(absl::MakeConstSpan(code).subspan(at + 4, rank))});
    at += 4 + rank;
  }
  return entries;
}

void RouteStart::Send(const BatchKind& kind, RoutedTensors tensors) {
  const std::vector<int64_t> layout = EncodeLayout(tensors);
  const auto [known, is_new] = known_.try_emplace(kind, layout);
  if (is_new) Announce(layout);
  CHECK(known->second == layout) << label_ << ": other tensors than for another batch of "
                                 << kind.samples << " samples";
  for (const RoutedTensor& routed : tensors) {
    if (!routed.tensor.defined()) continue;
    sent_.push_back({routed.tensor, group_.Send(routed.tensor, to_, label_)});
  }
}

void RouteStart::Announce(std::vector<int64_t> code) {
  // How many numbers, and these; filled up to whole pages.
  code.insert(code.begin(), std::ssize(code));
  code.resize((code.size() + kPage - 1) / kPage * kPage);
  for (int64_t at = 0; at < std::ssize(code); at += kPage) {
    const Tensor page = EmptyPage(kernels_);
    kernels_.CopyFromHost(code.data() + at, page);
    announced_.push_back({page, group_.Send(page, to_, kAnnouncementLabel)});
  }
}

void RouteStart::ReleaseSent() {
  while (!sent_.empty() && sent_.front().work.Done()) {
    ThrowIfError(sent_.front().work.Wait());
    sent_.pop_front();
  }
}

void RouteStart::AwaitSent() {
  for (std::deque<Sent>* all : {&announced_, &sent_}) {
    for (Sent& sent : *all) ThrowIfError(sent.work.Wait());
    all->clear();
  }
}

void RouteEnd::Expect(const BatchKind& kind) {
  if (passed_over_ > 0 || !known_.contains(kind)) {
    ++passed_over_;
  } else {
    Begin(kind);
  }
}

RoutedTensors RouteEnd::Receive(const BatchKind& kind) {
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
  for (const RouteEntry& entry : known_[kind]) {
    RoutedTensor& routed = next.tensors.emplace_back();
    routed.needs_gradient = entry.needs_gradient;
    if (!entry.defined) continue;
    routed.tensor = kernels_.Empty(entry.shape, entry.dtype, MemoryClass::kCommunication);
    next.works.push_back(group_.Recv(routed.tensor, from_, label_));
  }
}

std::vector<RouteEntry> RouteEnd::ReceiveAnnouncement() {
  std::vector<int64_t> code;
  do {
    const Tensor page = EmptyPage(kernels_);
    ThrowIfError(group_.Recv(page, from_, kAnnouncementLabel).Wait());
    code.resize(code.size() + kPage);
    kernels_.CopyToHost(page, code.data() + code.size() - kPage);
  } while (std::ssize(code) < 1 + code[0]);
  return DecodeLayout({code.begin() + 1, code.begin() + 1 + code[0]});
}

}  // namespace lockstep
