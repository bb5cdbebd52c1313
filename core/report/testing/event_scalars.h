// Event files read back: by the format's checksums, and by TensorBoard's own reader where Python
// has it.

#pragma once

#include <cstdint>
#include <ostream>
#include <string>
#include <vector>

namespace lockstep {

// The data of all records of an event file's `bytes`; expects their checksums to be right.
std::vector<std::string> EventRecords(const std::string& bytes);

struct EventScalar {
  std::string tag;
  int64_t step = 0;
  double value = 0;

  friend bool operator==(const EventScalar&, const EventScalar&) = default;
  friend void PrintTo(const EventScalar& scalar, std::ostream* out) {
    *out << scalar.tag << " of step " << scalar.step << ": " << scalar.value;
  }
};

// The scalars of all event files of `folder`, by tag and then step. Where `python3` can import
// tensorboard, expects its reader to find the same.
std::vector<EventScalar> ReadEventScalars(const std::string& folder);

}  // namespace lockstep
