#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/comm/signature.h"

namespace lockstep::mpi {

// What a member tells the others of its call before data moves, so that all can compare; the input
// itself goes along where it is small.
struct Announcement {
  int64_t sequence = 0;
  Signature signature{};
  std::string label{};
  std::vector<std::byte> data{};

  friend bool operator==(const Announcement&, const Announcement&) = default;
};

// Data up to this size goes along with the announcement: what MPI sends without asking the receiver
// first (4 KiB in shared memory) has room for it.
inline constexpr int64_t kSmallBytes = 2048;

// Labels are cut to this many characters on their way.
inline constexpr size_t kLongestLabel = 100;

// The largest that an announcement in a group of `size` with up to `data` bytes can be.
size_t LargestAnnouncement(int size, int64_t data);

// The bytes of an announcement; ranks run the same program on machines of the same byte order.
std::vector<std::byte> Encode(const Announcement& announcement);

// An error if these are not the bytes of one.
absl::StatusOr<Announcement> Decode(absl::Span<const std::byte> bytes);

}  // namespace lockstep::mpi
