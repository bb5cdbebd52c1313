#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/tensor/slice.h"

namespace lockstep {

// Some elements of a whole tensor: a range, which may be empty, of the row-major whole, or of a
// slice of it along a dimension. Saving, loading and checking know them by their ranges only: their
// kinds are a matter of this type alone.
struct TensorSlice {
  std::vector<int64_t> whole;  // the whole's shape
  int64_t first = 0;           // the range's first element, counted in the slice if there is one
  int64_t elements = 0;
  std::optional<Slice> slice = {};  // none: the whole

  // Whether nothing is missing.
  bool IsWhole() const;
  // The shape under which a file holds the elements: the whole's own if it is all of it, that of
  // all of a slice with its extent for the whole's, a range's flat.
  std::vector<int64_t> StoredShape() const;
  // All of its elements, in their order in the slice; no range is empty.
  std::vector<ElementRange> ElementRanges() const;

  // What a file says of a slice that is not whole, as JSON.
  std::string ToText() const;
};

// A tensor of that shape, of which nothing is missing. Its size must fit into int64.
TensorSlice WholeSlice(std::vector<int64_t> shape);

// All of a slice of a tensor of that shape, into which it fits.
TensorSlice SliceOf(std::vector<int64_t> shape, Slice slice);

// The slice of which a file says `text` and which it holds under the shape `stored`.
// InvalidArgument if the text is none of ToText, or the slice does not fit into the whole; the
// message says what is wrong with the tensor, without its name.
absl::StatusOr<TensorSlice> ParseTensorSlice(const std::string& text,
                                             const std::vector<int64_t>& stored);

}  // namespace lockstep
