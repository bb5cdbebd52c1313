#include "core/checkpoint/tensor_slice.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_join.h"
#include "core/base/checked_product.h"
#include "core/base/json.h"
#include "core/base/status.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr char kWhole[] = "whole";
constexpr char kFirst[] = "first";
constexpr char kDimension[] = "dimension";
constexpr char kRanges[] = "ranges";

// Elements of a tensor; nothing if that overflows.
std::optional<int64_t> Elements(const std::vector<int64_t>& shape) { return CheckedProduct(shape); }

// A whole number that fits into int64 and is not negative.
std::optional<int64_t> ParseNumber(const Json& json) {
  if (!json.is_number_unsigned()) return std::nullopt;
  const auto number = json.get<uint64_t>();
  if (!std::in_range<int64_t>(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

// The extents of a tensor.
std::optional<std::vector<int64_t>> ParseExtents(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<int64_t> extents;
  for (const Json& extent : json) {
    const std::optional<int64_t> number = ParseNumber(extent);
    if (!number) return std::nullopt;
    extents.push_back(*number);
  }
  return extents;
}

// A slice with at least one range, none of them empty; whether it fits anywhere is another
// question.
std::optional<Slice> ParseSlice(const Json& dimension, const Json& ranges) {
  const std::optional<int64_t> number = ParseNumber(dimension);
  if (!number || !ranges.is_array() || ranges.empty()) return std::nullopt;
  Slice slice = {.dimension = *number, .ranges = {}};
  for (const Json& range : ranges) {
    if (!range.is_array() || range.size() != 2) return std::nullopt;
    const std::optional<int64_t> first = ParseNumber(range[0]), count = ParseNumber(range[1]);
    if (!first || !count || *count == 0) return std::nullopt;
    slice.ranges.push_back({.first = *first, .count = *count});
  }
  return slice;
}

bool Fits(const Slice& slice, const std::vector<int64_t>& whole) {
  if (slice.dimension >= static_cast<int64_t>(whole.size())) return false;
  const int64_t extent = whole[slice.dimension];
  int64_t end = 0;
  for (const Range& range : slice.ranges) {
    if (range.first < end || range.first > extent || range.count > extent - range.first) {
      return false;
    }
    end = range.first + range.count;
  }
  return true;
}

// Number of elements of a slice that fits.
int64_t Elements(const std::vector<int64_t>& whole, const Slice& slice) {
  const int64_t extent = whole[slice.dimension];
  return extent == 0 ? 0 : *Elements(whole) / extent * slice.extent();
}

bool IsAllOfSlice(const TensorSlice& held) {
  return held.slice && held.elements == Elements(held.whole, *held.slice);
}

}  // namespace

bool TensorSlice::IsWhole() const { return Elements(whole) == elements; }

std::vector<int64_t> TensorSlice::StoredShape() const {
  if (IsWhole()) return whole;
  if (!IsAllOfSlice(*this)) return {elements};
  std::vector<int64_t> shape = whole;
  shape[slice->dimension] = slice->extent();
  return shape;
}

std::vector<ElementRange> TensorSlice::ElementRanges() const {
  if (elements == 0) return {};
  if (slice) return RangesWithin(slice->ElementRanges(whole), {.first = first, .count = elements});
  return {{.in_whole = first, .in_slice = 0, .elements = elements}};
}

std::string TensorSlice::ToText() const {
  if (!slice) return Json({{kWhole, whole}, {kFirst, first}}).dump();
  Json ranges = Json::array();
  for (const Range& range : slice->ranges) {
    if (range.count > 0) ranges.push_back(Json::array({range.first, range.count}));
  }
  Json text = {{kWhole, whole}, {kDimension, slice->dimension}, {kRanges, ranges}};
  if (!IsAllOfSlice(*this)) text[kFirst] = first;
  return text.dump();
}

TensorSlice WholeSlice(std::vector<int64_t> shape) {
  const std::optional<int64_t> elements = Elements(shape);
  CHECK(elements.has_value()) << absl::StrJoin(shape, "x");
  return {.whole = std::move(shape), .first = 0, .elements = *elements};
}

TensorSlice SliceOf(std::vector<int64_t> shape, Slice slice) {
  CHECK(Fits(slice, shape)) << absl::StrJoin(shape, "x");
  TensorSlice held = WholeSlice(std::move(shape));
  held.elements = Elements(held.whole, slice);
  held.slice = std::move(slice);
  return held;
}

absl::StatusOr<TensorSlice> ParseTensorSlice(const std::string& text,
                                             const std::vector<int64_t>& stored) {
  const Json json = ParseJson<Json>(text);
  const auto invalid = [] {
    return InvalidArgument("is not described by {\"", kFirst, "\": the first element, \"", kWhole,
                           "\": the whole's shape} or {\"", kDimension,
                           "\": one of the whole's, \"", kRanges,
                           "\": pairs of its first index and their number, \"", kWhole,
                           "\": the whole's shape} and, of a part of that, \"", kFirst,
                           "\": its first element there, and only these");
  };
  if (!json.is_object() || !json.contains(kWhole)) return invalid();
  const std::optional<std::vector<int64_t>> whole = ParseExtents(json[kWhole]);
  if (!whole) return invalid();
  const std::optional<int64_t> here = Elements(stored), all = Elements(*whole);
  if (json.size() == 2 && json.contains(kFirst)) {
    const std::optional<int64_t> first = ParseNumber(json[kFirst]);
    if (!first) return invalid();
    if (!here || !all || *first > *all || *here > *all - *first) {
      return InvalidArgument("should begin with element ", *first, " of a whole of shape [",
                             absl::StrJoin(*whole, ", "), "], into which [",
                             absl::StrJoin(stored, ", "), "] does not fit from there on");
    }
    return TensorSlice{.whole = *whole, .first = *first, .elements = *here};
  }
  const bool has_first = json.contains(kFirst);
  if (json.size() != (has_first ? 4 : 3) || !json.contains(kDimension) || !json.contains(kRanges)) {
    return invalid();
  }
  std::optional<Slice> slice = ParseSlice(json[kDimension], json[kRanges]);
  if (!slice) return invalid();
  const auto no_slice = [&] {
    return InvalidArgument("is described by ", text, ", which is no slice of shape [",
                           absl::StrJoin(stored, ", "), "]");
  };
  if (!all || !Fits(*slice, *whole)) return no_slice();
  TensorSlice held = SliceOf(*whole, *std::move(slice));
  if (has_first) {
    const std::optional<int64_t> first = ParseNumber(json[kFirst]);
    if (!first) return invalid();
    if (!here || *first > held.elements || *here > held.elements - *first) return no_slice();
    held.first = *first;
    held.elements = *here;
  }
  if (held.StoredShape() != stored) return no_slice();
  return held;
}

}  // namespace lockstep
