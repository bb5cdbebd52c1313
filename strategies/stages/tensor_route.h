#pragma once

#include <compare>
#include <cstdint>
#include <deque>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/comm/communicator.h"
#include "core/kernels/kernels.h"
#include "core/nn/pass.h"

namespace lockstep {

// What decides the shapes of all that passes between two blocks.
struct BatchKind {
  Pass::Mode mode = Pass::Mode::kTrain;
  int64_t samples = 0;

  friend auto operator<=>(const BatchKind&, const BatchKind&) = default;
};

// One of the tensors that a block hands on, or of their gradients, in any dtype. Undefined where
// there is none.
struct RoutedTensor {
  Tensor tensor;
  bool needs_gradient = false;
};
using RoutedTensors = std::vector<RoutedTensor>;

// What one end of a route knows of the tensors goes to the other once for each kind of batch, as
// messages of this label, of as many bytes: one, unless it is of more tensors than any model here
// hands on (15 images).
inline constexpr char kAnnouncementLabel[] = "shapes";
inline constexpr int64_t kAnnouncementBytes = 1024;

// A tensor that travels, without what is in it.
struct RouteEntry {
  bool defined = false;
  bool needs_gradient = false;
  DType dtype = DType::kF32;
  Shape shape = {};

  friend bool operator==(const RouteEntry&, const RouteEntry&) = default;
};
// As numbers: for each whether it is defined, and needs a gradient; dtype; rank, and as many
// extents.
std::vector<int64_t> EncodeLayout(const RoutedTensors& tensors);
std::vector<RouteEntry> DecodeLayout(const std::vector<int64_t>& code);

// The two ends of a route from one rank to another, along which lists of tensors travel, in order.
// Both ends name the same kinds in the same order. The first list of a kind is announced; those
// that follow must be like it. All members throw StatusException.
class RouteStart {
 public:
  // `label` says what travels. Group and kernels outlive the route.
  RouteStart(Communicator& group, int to, std::string label, Kernels& kernels)
      : group_(group), to_(to), label_(std::move(label)), kernels_(kernels) {}

  // Begins to send; the tensors are not written until AwaitSent.
  void Send(const BatchKind& kind, RoutedTensors tensors);

  // Gives back tensors that have been taken by now; and waits until all have been. Announcements
  // stay until then, so that memory does not depend on when they are taken.
  void ReleaseSent();
  void AwaitSent();

 private:
  struct Sent {
    Tensor tensor;
    Work work;  // the first to go
  };

  void Announce(std::vector<int64_t> code);

  Communicator& group_;
  const int to_;
  const std::string label_;
  Kernels& kernels_;
  std::map<BatchKind, std::vector<int64_t>> known_;  // layouts
  std::deque<Sent> sent_, announced_;
};

class RouteEnd {
 public:
  RouteEnd(Communicator& group, int from, std::string label, Kernels& kernels)
      : group_(group), from_(from), label_(std::move(label)), kernels_(kernels) {}

  // Begins to receive the next list, once it is known what it is made of: not before the first one
  // of its kind has come. Kinds are expected in the order in which they are then received.
  void Expect(const BatchKind& kind);

  // Waits for the next list. Its tensors are new, booked as activations from here on.
  RoutedTensors Receive(const BatchKind& kind);

 private:
  struct Expected {
    BatchKind kind;
    RoutedTensors tensors = {};
    std::vector<Work> works = {};
  };

  std::vector<RouteEntry> ReceiveAnnouncement();
  void Begin(const BatchKind& kind);

  Communicator& group_;
  const int from_;
  const std::string label_;
  Kernels& kernels_;
  std::map<BatchKind, std::vector<RouteEntry>> known_;
  std::deque<Expected> expected_;
  int64_t passed_over_ = 0;  // expected, but not begun: what is behind must not overtake them
};

}  // namespace lockstep
