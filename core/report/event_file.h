// Scalars for TensorBoard: an event file, which is a row of TensorFlow's records
// (www.tensorflow.org/tutorials/load_data/tfrecord), each a protocol buffer `Event`
// (tensorflow/core/util/event.proto). The few fields that are needed are encoded here.

#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/file.h"

namespace lockstep {

// CRC-32C (Castagnoli) of `data`, as RFC 3720 defines it.
uint32_t Crc32c(std::string_view data);

class EventFile {
 public:
  using Scalars = std::vector<std::pair<std::string, double>>;  // tag and value

  // Makes an event file in `folder`, which is made too, for steps from `first_step` on. A later
  // step than 0 tells TensorBoard to forget what other files of the folder say of this step and
  // those behind it.
  static absl::StatusOr<EventFile> Make(const std::string& folder, int64_t first_step);

  // Adds the scalars of a step, rounded to fp32. When it returns they survive the process, and
  // after Sync the machine.
  absl::Status Append(int64_t step, const Scalars& scalars);
  absl::Status Sync();

 private:
  EventFile(std::string path, FileDescriptor file)
      : path_(std::move(path)), file_(std::move(file)) {}

  // Writes `event`, fields of an Event without its time, as a record.
  absl::Status Write(const std::string& event);

  std::string path_;
  FileDescriptor file_;
};

}  // namespace lockstep
