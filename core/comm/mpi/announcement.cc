#include "core/comm/mpi/announcement.h"

#include "absl/status/status.h"
#include "core/base/byte_stream.h"

namespace lockstep::mpi {

size_t LargestAnnouncement(int size, int64_t data) {
  constexpr size_t kFixed = 2 * sizeof(int64_t) + sizeof(int32_t) + 4 + 3 * sizeof(uint64_t);
  return kFixed + static_cast<size_t>(size) * sizeof(int64_t) + kLongestLabel +
         static_cast<size_t>(data);
}

std::vector<std::byte> Encode(const Announcement& announcement) {
  const Signature& signature = announcement.signature;
  ByteWriter writer;
  writer.Put(announcement.sequence);
  writer.Put(signature.operation);
  writer.Put(signature.dtype);
  writer.Put(signature.reduce_op);
  writer.Put(static_cast<uint8_t>(signature.memory));
  writer.Put(static_cast<int32_t>(signature.root));
  writer.Put(signature.count);
  writer.Put(signature.counts);
  writer.Put(announcement.label.substr(0, kLongestLabel));
  writer.Put(announcement.data);
  return writer.Take();
}

absl::StatusOr<Announcement> Decode(absl::Span<const std::byte> bytes) {
  Announcement announcement;
  Signature& signature = announcement.signature;
  int32_t root = 0;
  uint8_t memory = 0;
  ByteReader reader(bytes);
  reader.Get(&announcement.sequence);
  reader.Get(&signature.operation);
  reader.Get(&signature.dtype);
  reader.Get(&signature.reduce_op);
  reader.Get(&memory);
  reader.Get(&root);
  reader.Get(&signature.count);
  reader.Get(&signature.counts);
  reader.Get(&announcement.label);
  reader.Get(&announcement.data);
  signature.root = root;
  signature.memory = static_cast<DeviceType>(memory);
  if (!reader.complete() || static_cast<int>(signature.operation) >= kOperations ||
      signature.dtype > DType::kU8 || signature.reduce_op > ReduceOp::kAverage ||
      signature.memory > DeviceType::kCuda || announcement.label.size() > kLongestLabel) {
    return absl::DataLossError("bytes that are no announcement of a call");
  }
  return announcement;
}

}  // namespace lockstep::mpi
