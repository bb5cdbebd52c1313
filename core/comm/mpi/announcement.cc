#include "core/comm/mpi/announcement.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "absl/status/status.h"

namespace lockstep::mpi {
namespace {

// The fixed part; behind it come counts, label and data.
struct Head {
  int64_t sequence;
  int64_t count;
  int64_t data_bytes;
  int32_t root;
  int32_t counts;
  uint8_t operation;
  uint8_t dtype;
  uint8_t reduce_op;
  uint8_t label_bytes;
};

template <typename T>
void Append(const T* from, size_t count, std::vector<std::byte>* to) {
  const auto* bytes = reinterpret_cast<const std::byte*>(from);
  to->insert(to->end(), bytes, bytes + count * sizeof(T));
}

// Takes `count` elements off the front of `bytes`, which has them.
template <typename T>
void Take(absl::Span<const std::byte>* bytes, size_t count, T* to) {
  if (count > 0) std::memcpy(to, bytes->data(), count * sizeof(T));
  bytes->remove_prefix(count * sizeof(T));
}

}  // namespace

size_t LargestAnnouncement(int size, int64_t data) {
  return sizeof(Head) + static_cast<size_t>(size) * sizeof(int64_t) + kLongestLabel +
         static_cast<size_t>(data);
}

std::vector<std::byte> Encode(const Announcement& announcement) {
  const Signature& signature = announcement.signature;
  const size_t label_bytes = std::min(announcement.label.size(), kLongestLabel);
  Head head;
  std::memset(&head, 0, sizeof(head));
  head.sequence = announcement.sequence;
  head.count = signature.count;
  head.data_bytes = static_cast<int64_t>(announcement.data.size());
  head.root = signature.root;
  head.counts = static_cast<int32_t>(signature.counts.size());
  head.operation = static_cast<uint8_t>(signature.operation);
  head.dtype = static_cast<uint8_t>(signature.dtype);
  head.reduce_op = static_cast<uint8_t>(signature.reduce_op);
  head.label_bytes = static_cast<uint8_t>(label_bytes);
  std::vector<std::byte> bytes;
  bytes.reserve(LargestAnnouncement(head.counts, head.data_bytes));
  Append(&head, 1, &bytes);
  Append(signature.counts.data(), signature.counts.size(), &bytes);
  Append(announcement.label.data(), label_bytes, &bytes);
  Append(announcement.data.data(), announcement.data.size(), &bytes);
  return bytes;
}

absl::StatusOr<Announcement> Decode(absl::Span<const std::byte> bytes) {
  const absl::Status error = absl::DataLossError("bytes that are no announcement of a call");
  Head head;
  if (bytes.size() < sizeof(head)) return error;
  Take(&bytes, 1, &head);
  if (head.counts < 0 || head.data_bytes < 0 || head.operation >= kOperations ||
      head.dtype > static_cast<uint8_t>(DType::kU8) ||
      head.reduce_op > static_cast<uint8_t>(ReduceOp::kAverage) ||
      head.label_bytes > kLongestLabel ||
      static_cast<size_t>(head.counts) > bytes.size() / sizeof(int64_t) ||
      bytes.size() - head.counts * sizeof(int64_t) - head.label_bytes !=
          static_cast<size_t>(head.data_bytes)) {
    return error;
  }
  Announcement announcement;
  announcement.sequence = head.sequence;
  announcement.signature = {.operation = static_cast<Operation>(head.operation),
                            .dtype = static_cast<DType>(head.dtype),
                            .reduce_op = static_cast<ReduceOp>(head.reduce_op),
                            .root = head.root,
                            .count = head.count};
  announcement.signature.counts.resize(static_cast<size_t>(head.counts));
  announcement.label.resize(head.label_bytes);
  announcement.data.resize(static_cast<size_t>(head.data_bytes));
  Take(&bytes, announcement.signature.counts.size(), announcement.signature.counts.data());
  Take(&bytes, announcement.label.size(), announcement.label.data());
  Take(&bytes, announcement.data.size(), announcement.data.data());
  return announcement;
}

}  // namespace lockstep::mpi
