#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/tensor/slice.h"

namespace lockstep {

// Which elements of a whole tensor a part holds: a range, which may be empty, of the row-major
// whole, or of a slice of it along a dimension. Saving, loading and checking know parts by their
// runs only: their kinds are a matter of this type alone.
struct TensorPart {
  std::vector<int64_t> whole;  // the whole's shape
  int64_t first = 0;           // the range's first element, counted in the slice if there is one
  int64_t elements = 0;
  std::optional<Slice> slice = {};  // none: the whole

  // Whether nothing is missing.
  bool IsWhole() const;
  // The shape under which a file holds the part: the whole's own if it is all of it, that of all of
  // a slice with its extent for the whole's, a range's flat.
  std::vector<int64_t> StoredShape() const;
  // All of its elements, in their order in the part; none of the runs is empty.
  std::vector<PartRun> Runs() const;

  // What a file says of a part that is not whole, as JSON.
  std::string ToText() const;
};

// A tensor of that shape, of which nothing is missing. Its size must fit into int64.
TensorPart WholePart(std::vector<int64_t> shape);

// All of a slice of a tensor of that shape, into which it fits.
TensorPart SlicePart(std::vector<int64_t> shape, Slice slice);

// The part of which a file says `text` and which it holds under the shape `stored`. InvalidArgument
// if the text is none of ToText, or the part does not fit into the whole; the message says what is
// wrong with the tensor, without its name.
absl::StatusOr<TensorPart> ParseTensorPart(const std::string& text,
                                           const std::vector<int64_t>& stored);

}  // namespace lockstep
