#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

// Elements that lie one behind the other both in a whole tensor and in a part of it.
struct PartRun {
  int64_t in_whole = 0;  // where they begin, counted in elements of the row-major whole
  int64_t in_part = 0;   // and of the part
  int64_t elements = 0;
};

// Which elements of a whole tensor a part holds: a range of the row-major whole, which may be
// empty. Saving, loading and checking know parts by their runs only: a part of another kind (a
// slice along a dimension) is a matter of this type alone.
struct TensorPart {
  std::vector<int64_t> whole;  // the whole's shape
  int64_t first = 0;           // the range
  int64_t elements = 0;

  // Whether nothing is missing.
  bool IsWhole() const;
  // The shape under which a file holds the part: the whole's own if it is all of it.
  std::vector<int64_t> StoredShape() const;
  // All of its elements, in their order in the part; none of the runs is empty.
  std::vector<PartRun> Runs() const;

  // What a file says of a part that is not whole, as JSON.
  std::string ToText() const;
};

// A tensor of that shape, of which nothing is missing. Its size must fit into int64.
TensorPart WholePart(std::vector<int64_t> shape);

// The part of which a file says `text` and which it holds under the shape `stored`. InvalidArgument
// if the text is none of ToText, or the part does not fit into the whole; the message says what is
// wrong with the tensor, without its name.
absl::StatusOr<TensorPart> ParseTensorPart(const std::string& text,
                                           const std::vector<int64_t>& stored);

}  // namespace lockstep
