// The header of a safetensors file: which tensors it holds, and where.
//
// The format (huggingface/safetensors, "Format" in its README): 8 bytes, the little-endian length N
// of the header; N bytes of JSON that map each name to dtype, shape and the range of its bytes, and
// optionally `__metadata__` to strings; then the data, row-major and little-endian, without holes.

#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace lockstep {

// One tensor of a file.
struct SafetensorsTensor {
  std::string name;
  std::string dtype = {};           // "F32", "BF16", ...
  std::vector<int64_t> shape = {};  // empty for a scalar

  // Its bytes within the data section. A writer computes both.
  int64_t begin = 0;
  int64_t bytes = 0;
};

struct SafetensorsHeader {
  std::vector<SafetensorsTensor> tensors;  // in the order of their data
  std::map<std::string, std::string> metadata;
};

// The longest header that is read, as in the format's own implementation: 100 MB.
inline constexpr int64_t kMaxSafetensorsHeaderBytes = 100'000'000;

// Bytes of one element, e.g. 4 for "F32"; nothing for a dtype that the format does not know.
std::optional<int64_t> SafetensorsElementBytes(const std::string& dtype);

// Parses the JSON of a header whose file has `data_bytes` bytes after it. What is returned is
// sound: names are unique, dtypes known, each range has the length that dtype and shape ask for,
// and the ranges cover the data without holes or overlap. Anything else is an InvalidArgument error
// that names `file` and the tensor. O(n log n).
absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(const std::string& json,
                                                         int64_t data_bytes,
                                                         const std::string& file);

// What a user can do about a file that is damaged: the end of each message that names one.
inline constexpr char kDamageRemedy[] = "; put a sound copy in its place, or use another file";

// The error of a file that is none of the format, or was cut short: InvalidArgument.
absl::Status UnsoundSafetensors(const std::string& file, const std::string& what);

// Whether a file that we write has the checksums of its contents, and where
// (core/checkpoint/checksums.h).
enum class WithChecksums {
  kNo,
  kAsTensor,    // for our own programs: others see a tensor more
  kInMetadata,  // for other programs, which pass over metadata that they do not know
};

// Lays the tensors out one after the other: fills in `begin` and `bytes`, and returns the first
// bytes of the file, up to the data, which they let begin on a multiple of 64. Names must be
// unique, dtypes known, and dimensions not negative.
std::string LayOutSafetensors(SafetensorsHeader* header);

}  // namespace lockstep
