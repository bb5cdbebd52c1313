// Safetensors files, read tensor by tensor and written in one stream.
//
//   LS_ASSIGN_OR_RETURN(SafetensorsReader reader, SafetensorsReader::Open(path));
//   for (const SafetensorsTensor& tensor : reader.tensors()) {
//     LS_RETURN_IF_ERROR(reader.Read(tensor, buffer.first(tensor.bytes)));
//   }

#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>  // std::less
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/file.h"
#include "core/checkpoint/checksums.h"
#include "core/checkpoint/safetensors_header.h"

namespace lockstep {

// Where bytes of a tensor go that are read.
struct SafetensorsPiece {
  int64_t offset = 0;  // the first one's, in the tensor
  std::span<std::byte> out;
};

// An open file. Knows its header; data is read on demand, and held to the checksums of a file that
// has them. Thread-safe.
class SafetensorsReader {
 public:
  // Opens a file, and reads and checks its header (ParseSafetensorsHeader says what must hold). A
  // file that cannot be read, or is no sound safetensors file, is an error that names it. DataLoss
  // if the header is not what the file's checksums say.
  static absl::StatusOr<SafetensorsReader> Open(const std::string& path);

  const std::string& path() const { return path_; }
  // Without the tensor that holds checksums.
  const std::vector<SafetensorsTensor>& tensors() const { return header_.tensors; }
  bool has_checksums() const { return checksums_.has_value(); }
  // One number for all that a file with checksums holds.
  uint64_t checksum() const { return checksums_->Total(); }
  int64_t file_bytes() const { return file_bytes_; }
  // Without the entry that holds checksums.
  const std::map<std::string, std::string>& metadata() const { return header_.metadata; }

  // The tensor of that name, or null. O(log n).
  const SafetensorsTensor* Find(const std::string& name) const;

  // Reads out.size() bytes of a tensor of this file, from its byte `offset` on, which must lie
  // inside it. DataLoss if they are not what was written.
  absl::Status Read(const SafetensorsTensor& tensor, std::span<std::byte> out,
                    int64_t offset = 0) const;
  // Reads several pieces, in any order. In a file with checksums, each block that a piece lies in
  // is read once.
  absl::Status ReadPieces(const SafetensorsTensor& tensor,
                          std::vector<SafetensorsPiece> pieces) const;

 private:
  SafetensorsReader(std::string path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  // Reads the checksums of a file that has them, and holds its header to them.
  absl::Status TakeChecksums(std::string first_bytes);
  absl::Status TakeChecksumsFromMetadata(std::string first_bytes);
  // Holds the header to the checksums.
  absl::Status CheckFirstBytes(const std::string& first_bytes) const;
  absl::Status CheckBlock(const SafetensorsTensor& tensor, int64_t number,
                          std::span<const std::byte> block) const;

  std::string path_;
  FileDescriptor file_;
  int64_t file_bytes_ = 0;
  int64_t data_begin_ = 0;
  SafetensorsHeader header_;
  std::optional<FileChecksums> checksums_;  // none: the file has none
  // What a user can do about damage.
  std::string remedy_ = kDamageRemedy;
  std::map<std::string, size_t> index_;  // into header_.tensors
};

// A file being written; it appears under its name when it is whole. For one thread at a time.
//
//   LS_ASSIGN_OR_RETURN(SafetensorsWriter writer,
//                       SafetensorsWriter::Open(path, {{.name = "w", .dtype = "F32",
//                                                       .shape = {2, 3}}}));
//   LS_RETURN_IF_ERROR(writer.Append("w", std::as_bytes(std::span(values))));
//   LS_RETURN_IF_ERROR(writer.Commit());
class SafetensorsWriter {
 public:
  // Begins a file that will hold `tensors`, of which name, dtype and shape count, in this order.
  // Names must be unique and dtypes known to the format.
  static absl::StatusOr<SafetensorsWriter> Open(const std::string& path,
                                                std::vector<SafetensorsTensor> tensors,
                                                std::map<std::string, std::string> metadata = {},
                                                WithChecksums with_checksums = WithChecksums::kNo);

  // Adds bytes to the tensor `name`, whole or in pieces: it must be the first that lacks any.
  absl::Status Append(const std::string& name, std::span<const std::byte> bytes);

  // Puts the file in place. All tensors must be complete. At most once, and last; a writer that is
  // destroyed without it leaves nothing.
  absl::Status Commit();

 private:
  SafetensorsWriter(AtomicFileWriter file, SafetensorsHeader header, WithChecksums with_checksums)
      : file_(std::move(file)), header_(std::move(header)), with_checksums_(with_checksums) {}

  // Moves on to the next tensor that lacks bytes.
  void SkipComplete();

  AtomicFileWriter file_;
  SafetensorsHeader header_;  // without checksums
  WithChecksums with_checksums_;
  std::optional<FileChecksums> checksums_;
  int64_t place_of_checksums_ = 0;  // in the file, if they are in its metadata
  size_t current_ = 0;              // index of the tensor being written
  int64_t filled_ = 0;              // bytes of it that are there
};

}  // namespace lockstep
