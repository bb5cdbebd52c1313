// Files and folders. Every error names the path and the reason, and nothing here throws because of
// what a path is: std::filesystem is used in its error_code forms, and behind these functions only.
// A file that somebody may read appears under its name only when it is whole: it is written beside
// the name and renamed.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>  // std::exchange
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep {

// An open file, closed with this object.
class FileDescriptor {
 public:
  explicit FileDescriptor(int descriptor = -1) : descriptor_(descriptor) {}
  FileDescriptor(FileDescriptor&& other) noexcept
      : descriptor_(std::exchange(other.descriptor_, -1)) {}
  FileDescriptor& operator=(FileDescriptor&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);  // the other one closes what was ours
    return *this;
  }
  FileDescriptor(const FileDescriptor&) = delete;
  FileDescriptor& operator=(const FileDescriptor&) = delete;
  ~FileDescriptor();

  bool is_open() const { return descriptor_ >= 0; }
  int get() const { return descriptor_; }

 private:
  int descriptor_;  // -1: none
};

// Opens a regular file; `flags` are those of open(2), O_CLOEXEC comes with them. NotFound,
// PermissionDenied, and so on. FailedPrecondition for a directory, a FIFO, a socket and a device:
// the open file is asked for what it is, and opening never waits for a writer.
absl::StatusOr<FileDescriptor> OpenRegularFile(const std::string& path, int flags);

// Returns the contents of a file. Errors are those of OpenRegularFile, and ResourceExhausted for a
// file that does not fit into memory.
absl::StatusOr<std::string> ReadFile(const std::string& path);

// Returns whether something is there under that name; links are followed. Where that cannot be
// found out (a folder that may not be searched), false: whoever uses the path hears why.
bool PathExists(const std::string& path);
// Whether nothing has the path. False where that cannot be told, as behind a disk that does not
// answer.
bool IsGone(const std::string& path);
bool IsDirectory(const std::string& path);

// Returns the size of a file in bytes.
absl::StatusOr<int64_t> FileBytes(const std::string& path);

// Returns the names in a folder, sorted. NotFound if there is no such folder.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path);

// Removes a file, or a folder with all that it holds. What cannot be removed stays.
void RemoveTree(const std::string& path);

// Removes files of the folder that a killed AtomicFileWriter has left. For whoever knows that
// nobody writes into the folder.
void RemoveTemporaryFiles(const std::string& folder);

// Makes a directory and those above it that are missing; one that exists is fine. An error names
// the very directory that could not be made, and why. Thread-safe, and safe beside other processes.
absl::Status MakeDirectories(const std::string& path);

// Replaces or makes the file at `path`, whose directory exists: readers see the old contents or the
// new, also after a crash of the machine. On an error `path` is as it was; only if the last step
// fails, syncing the directory, it may be new already. FailedPrecondition where `path` is a
// directory, a FIFO or a device: these are never replaced.
absl::Status WriteFileAtomically(const std::string& path, std::string_view contents);

// Renames a file or a folder to `path`, in the same directory, and forces that to the disk. It
// replaces a file of that name, or an empty folder; else `path` is as it was on an error, but for
// the last step, as above.
absl::Status PutInPlace(const std::string& temporary, const std::string& path);

// The streaming form of WriteFileAtomically, for files that one would not hold in memory twice.
//
//   LS_ASSIGN_OR_RETURN(AtomicFileWriter writer, AtomicFileWriter::Open(path));
//   LS_RETURN_IF_ERROR(writer.Append(header));
//   LS_RETURN_IF_ERROR(writer.Append(data));
//   LS_RETURN_IF_ERROR(writer.Commit());
//
// Without a Commit that succeeded, nothing appears under `path`, and the destructor removes what
// was written. A process that is killed leaves a file "<path>.tmp-<digits>", which nobody reads.
// For one thread at a time.
class AtomicFileWriter {
 public:
  // Makes the temporary file. An error names the directory that cannot be written, and why.
  static absl::StatusOr<AtomicFileWriter> Open(const std::string& path);

  AtomicFileWriter(AtomicFileWriter&& other) noexcept;
  AtomicFileWriter& operator=(AtomicFileWriter&& other) noexcept;
  AtomicFileWriter(const AtomicFileWriter&) = delete;
  AtomicFileWriter& operator=(const AtomicFileWriter&) = delete;
  ~AtomicFileWriter();

  // Adds bytes at the end. Small pieces are gathered in memory first, so an error (a full disk) may
  // show in a later Append or in Commit. After an error the writer is only good for destruction.
  absl::Status Append(std::string_view data);

  // Replaces bytes that were added, from byte `offset` of the file on; those to add come behind all
  // that were added, as before.
  absl::Status Overwrite(int64_t offset, std::string_view data);

  // Forces the bytes to the disk and renames the file to `path`. At most once, and last.
  absl::Status Commit();

  const std::string& path() const { return path_; }

 private:
  AtomicFileWriter(std::string path, std::string temporary, int descriptor);

  // Writes out what Append has gathered.
  absl::Status Flush();
  absl::Status WriteOut(std::string_view data);
  absl::Status Error(int error_number, std::string_view doing) const;
  void Discard();

  std::string path_;
  std::string temporary_;
  int descriptor_ = -1;  // -1: committed, discarded or moved from
  std::string buffer_;
};

}  // namespace lockstep
