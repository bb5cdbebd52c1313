#include "core/checkpoint/file_transfer.h"

#include <algorithm>
#include <cstddef>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/mapped_file.h"
#include "core/base/status.h"
#include "core/comm/work.h"
#include "core/tensor/allocator.h"
#include "core/tensor/tensor.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "copies in memory";
constexpr int64_t kMessage = int64_t{4} << 20;  // bytes at most

// What this rank has to do with one transfer.
class OwnTransfer {
 public:
  OwnTransfer(const std::string& folder, const FileTransfer& transfer, int rank)
      : transfer_(transfer),
        sends_(transfer.from == rank),
        buffer_(Tensor::Empty(allocator_, {std::min(kMessage, transfer.bytes)}, DType::kU8,
                              MemoryClass::kCommunication)) {
    const std::string path = absl::StrCat(folder, "/", transfer.name);
    if (sends_) {
      absl::StatusOr<MappedFile> file = MappedFile::Open(path);
      Note(file.status());
      if (file.ok()) source_.emplace(*std::move(file));
    } else {
      absl::StatusOr<AtomicFileWriter> file = AtomicFileWriter::Open(path);
      Note(file.status());
      if (file.ok()) target_.emplace(*std::move(file));
    }
  }

  // Begins to send or to receive the bytes from `first` on, if any are left.
  void Begin(int64_t first, Communicator& ranks) {
    const int64_t bytes = std::min(kMessage, transfer_.bytes - first);
    if (bytes <= 0) return;
    message_ = buffer_.View(0, {bytes});
    if (sends_) Load(first);
    work_ = sends_ ? ranks.Send(message_, transfer_.to, kLabel)
                   : ranks.Recv(message_, transfer_.from, kLabel);
  }
  absl::Status End() {
    if (!work_) return absl::OkStatus();
    LS_RETURN_IF_ERROR(work_->Wait());
    work_.reset();
    if (target_) {
      Note(target_->Append(
          {reinterpret_cast<const char*>(message_.raw()), static_cast<size_t>(message_.bytes())}));
    }
    return absl::OkStatus();
  }

  absl::Status Finish() {
    if (target_ && status_.ok()) Note(target_->Commit());
    return status_;
  }

 private:
  // Zeros stand for what cannot be read.
  void Load(int64_t first) {
    const auto size = static_cast<size_t>(message_.bytes());
    size_t count = 0;
    if (source_) {
      const auto all = source_->bytes();
      const auto begin = std::min(static_cast<size_t>(first), all.size());
      count = std::min(size, all.size() - begin);
      if (count > 0) std::memcpy(message_.raw(), all.data() + begin, count);
    }
    std::memset(message_.raw() + count, 0, size - count);
  }
  void Note(const absl::Status& status) {
    if (status_.ok()) status_ = status;
  }

  const FileTransfer& transfer_;
  const bool sends_;
  CpuAllocator allocator_;
  std::optional<MappedFile> source_;
  std::optional<AtomicFileWriter> target_;
  Tensor buffer_, message_;  // a part of it
  std::optional<Work> work_;
  absl::Status status_;
};

}  // namespace

absl::Status TransferFiles(const std::string& folder, const std::vector<FileTransfer>& transfers,
                           Communicator& ranks) {
  std::vector<std::unique_ptr<OwnTransfer>> own;
  int64_t longest = 0;
  for (const FileTransfer& transfer : transfers) {
    if (transfer.from != ranks.rank() && transfer.to != ranks.rank()) continue;
    own.push_back(std::make_unique<OwnTransfer>(folder, transfer, ranks.rank()));
    longest = std::max(longest, transfer.bytes);
  }
  // A message of each file at a time: whoever sends receives meanwhile, so nobody waits in a ring.
  for (int64_t first = 0; first < longest; first += kMessage) {
    for (const auto& transfer : own) transfer->Begin(first, ranks);
    for (const auto& transfer : own) LS_RETURN_IF_ERROR(transfer->End());
  }
  absl::Status status;
  for (const auto& transfer : own) {
    const absl::Status finished = transfer->Finish();
    if (status.ok()) status = finished;
  }
  return status;
}

}  // namespace lockstep
