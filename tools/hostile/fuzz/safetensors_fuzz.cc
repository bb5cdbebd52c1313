#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/safetensors_header.h"
#include "glog/logging.h"
#include "tools/hostile/fuzz/fuzz_targets.h"
#include "tools/hostile/fuzz/memory_file.h"

namespace lockstep {
namespace {

// A header that was read can be written, and is read as the same.
void CheckHeaderIsWritable(const SafetensorsReader& reader) {
  SafetensorsHeader header = {.tensors = reader.tensors(), .metadata = reader.metadata()};
  int64_t data_bytes = 0;
  for (const SafetensorsTensor& tensor : header.tensors) data_bytes += tensor.bytes;
  const std::string beginning = LayOutSafetensors(&header);
  const auto again = ParseSafetensorsHeader(beginning.substr(8), data_bytes, "written");
  CHECK(again.ok()) << again.status();
  CHECK(again->metadata == header.metadata);
  CHECK_EQ(again->tensors.size(), header.tensors.size());
  for (size_t i = 0; i < header.tensors.size(); ++i) {
    CHECK_EQ(again->tensors[i].name, header.tensors[i].name);
    CHECK_EQ(again->tensors[i].dtype, header.tensors[i].dtype);
    CHECK(again->tensors[i].shape == header.tensors[i].shape);
    CHECK_EQ(again->tensors[i].bytes, header.tensors[i].bytes);
  }
}

}  // namespace

absl::Status FuzzSafetensors(std::string_view input) {
  const MemoryFile file(input);
  LS_ASSIGN_OR_RETURN(const SafetensorsReader reader, SafetensorsReader::Open(file.path()));
  CheckHeaderIsWritable(reader);
  for (const SafetensorsTensor& tensor : reader.tensors()) {
    CHECK(reader.Find(tensor.name) == &tensor);
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes));
    LS_RETURN_IF_ERROR(reader.Read(tensor, bytes));
  }
  return absl::OkStatus();
}

}  // namespace lockstep
