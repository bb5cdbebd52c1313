#include "core/checkpoint/tensor_part.h"

#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::json;

constexpr char kWhole[] = "whole";
constexpr char kFirst[] = "first";

// Elements of a tensor; nothing if that overflows.
std::optional<int64_t> Elements(const std::vector<int64_t>& shape) {
  int64_t elements = 1;
  for (const int64_t dimension : shape) {
    if (__builtin_mul_overflow(elements, dimension, &elements)) return std::nullopt;
  }
  return elements;
}

// A whole number that fits into int64 and is not negative.
std::optional<int64_t> ParseNumber(const Json& json) {
  if (!json.is_number_unsigned()) return std::nullopt;
  const auto number = json.get<uint64_t>();
  if (!std::in_range<int64_t>(number)) return std::nullopt;
  return static_cast<int64_t>(number);
}

}  // namespace

bool TensorPart::IsWhole() const { return Elements(whole) == elements; }

std::vector<int64_t> TensorPart::StoredShape() const {
  return IsWhole() ? whole : std::vector<int64_t>{elements};
}

std::vector<PartRun> TensorPart::Runs() const {
  if (elements == 0) return {};
  return {{.in_whole = first, .in_part = 0, .elements = elements}};
}

std::string TensorPart::ToText() const { return Json({{kWhole, whole}, {kFirst, first}}).dump(); }

TensorPart WholePart(std::vector<int64_t> shape) {
  const std::optional<int64_t> elements = Elements(shape);
  CHECK(elements.has_value()) << absl::StrJoin(shape, "x");
  return {.whole = std::move(shape), .first = 0, .elements = *elements};
}

absl::StatusOr<TensorPart> ParseTensorPart(const std::string& text,
                                           const std::vector<int64_t>& stored) {
  const Json json = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  const auto invalid = [] {
    return absl::InvalidArgumentError(absl::StrCat("is not described by {\"", kFirst,
                                                   "\": the first element, \"", kWhole,
                                                   "\": the whole's shape}, and only these"));
  };
  if (!json.is_object() || json.size() != 2 || !json.contains(kWhole) || !json.contains(kFirst) ||
      !json[kWhole].is_array()) {
    return invalid();
  }
  TensorPart part;
  for (const Json& extent : json[kWhole]) {
    const std::optional<int64_t> number = ParseNumber(extent);
    if (!number) return invalid();
    part.whole.push_back(*number);
  }
  const std::optional<int64_t> first = ParseNumber(json[kFirst]);
  if (!first) return invalid();
  part.first = *first;
  const std::optional<int64_t> here = Elements(stored), all = Elements(part.whole);
  if (!here || !all || part.first > *all || *here > *all - part.first) {
    return absl::InvalidArgumentError(
        absl::StrCat("should begin with element ", part.first, " of a whole of shape [",
                     absl::StrJoin(part.whole, ", "), "], into which [",
                     absl::StrJoin(stored, ", "), "] does not fit from there on"));
  }
  part.elements = *here;
  return part;
}

}  // namespace lockstep
