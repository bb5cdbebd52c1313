#include "core/checkpoint/safetensors_header.h"

#include <algorithm>  // std::sort
#include <array>
#include <bit>  // std::endian
#include <cstddef>
#include <cstdint>
#include <cstring>     // std::memcpy
#include <functional>  // std::ref
#include <map>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/checked_product.h"
#include "core/base/status.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::json;

static_assert(std::endian::native == std::endian::little, "the format is little-endian");

constexpr char kMetadata[] = "__metadata__";
constexpr size_t kAlignment = 64;

// A name as messages show it: whatever a broken file holds, it is short and printable.
std::string Quoted(const std::string& name) {
  constexpr size_t kLongest = 100;
  const std::string shown = name.size() <= kLongest ? name : name.substr(0, kLongest) + "...";
  return absl::StrCat("\"", absl::Utf8SafeCEscape(shown), "\"");
}

absl::Status Invalid(const std::string& what) { return absl::InvalidArgumentError(what); }

// Watches the parser for what the parsed document no longer shows (a name that came twice), or what
// it must not even build (lists in lists in lists).
class JsonGuard {
 public:
  bool operator()(int depth, Json::parse_event_t event, Json& parsed) {
    const auto level = static_cast<size_t>(depth);
    switch (event) {
      case Json::parse_event_t::object_start:
      case Json::parse_event_t::array_start:
        if (level >= kLevels) {
          is_too_deep = true;
          return false;
        }
        names_[level].clear();
        return true;
      case Json::parse_event_t::key:
        // A key stands one level below its object.
        if (level <= kLevels && !names_[level - 1].insert(parsed.get<std::string>()).second) {
          duplicate = parsed.get<std::string>();
        }
        return true;
      default:
        return true;
    }
  }

  bool is_too_deep = false;
  std::optional<std::string> duplicate;

 private:
  // The header; a tensor or the metadata; a shape.
  static constexpr size_t kLevels = 3;
  std::array<std::set<std::string>, kLevels> names_;
};

absl::StatusOr<Json> ParseJson(const std::string& text) {
  if (text.empty() || text[0] != '{') return Invalid("its header does not begin with \"{\"");
  JsonGuard guard;
  Json json;
  try {
    json = Json::parse(text, std::ref(guard));
  } catch (const Json::parse_error& error) {
    return Invalid(absl::StrCat("its header is not valid JSON at byte ", error.byte));
  } catch (const Json::out_of_range&) {
    return Invalid("its header holds a number that is too large");
  }
  if (guard.is_too_deep) return Invalid("its header holds lists or objects too deep inside others");
  if (guard.duplicate) {
    return Invalid(absl::StrCat("its header has ", Quoted(*guard.duplicate), " twice"));
  }
  return json;
}

// A list of whole numbers that fit into int64 and are not negative.
std::optional<std::vector<int64_t>> ParseNumbers(const Json& json) {
  if (!json.is_array()) return std::nullopt;
  std::vector<int64_t> numbers;
  for (const Json& element : json) {
    if (!element.is_number_unsigned()) return std::nullopt;
    const auto number = element.get<uint64_t>();
    if (!std::in_range<int64_t>(number)) return std::nullopt;
    numbers.push_back(static_cast<int64_t>(number));
  }
  return numbers;
}

// The bytes of a tensor; nothing if that overflows.
std::optional<int64_t> ByteCount(int64_t element_bytes, const std::vector<int64_t>& shape) {
  return CheckedProduct(shape, element_bytes);
}

// Errors say what is wrong with the tensor, without its name.
absl::StatusOr<SafetensorsTensor> ParseTensor(const std::string& name, const Json& json) {
  if (!json.is_object() || json.size() != 3 || !json.contains("dtype") || !json.contains("shape") ||
      !json.contains("data_offsets")) {
    return Invalid("is not described by \"dtype\", \"shape\" and \"data_offsets\", and only these");
  }
  SafetensorsTensor tensor{.name = name};
  if (!json["dtype"].is_string()) return Invalid("has a dtype that is no string");
  tensor.dtype = json["dtype"].get<std::string>();
  const std::optional<int64_t> element_bytes = SafetensorsElementBytes(tensor.dtype);
  if (!element_bytes) return Invalid(absl::StrCat("has an unknown dtype ", Quoted(tensor.dtype)));

  const auto shape = ParseNumbers(json["shape"]);
  if (!shape) return Invalid("has a shape that is no list of dimensions");
  tensor.shape = *shape;
  const auto offsets = ParseNumbers(json["data_offsets"]);
  if (!offsets || offsets->size() != 2 || (*offsets)[0] > (*offsets)[1]) {
    return Invalid("has data_offsets that are no [begin, end]");
  }
  tensor.begin = (*offsets)[0];
  tensor.bytes = (*offsets)[1] - tensor.begin;

  const std::optional<int64_t> expected = ByteCount(*element_bytes, tensor.shape);
  if (!expected || *expected != tensor.bytes) {
    return Invalid(absl::StrCat("has ", tensor.bytes, " bytes, which do not fit its dtype ",
                                tensor.dtype, " and shape [", absl::StrJoin(tensor.shape, ", "),
                                "]"));
  }
  return tensor;
}

absl::StatusOr<std::map<std::string, std::string>> ParseMetadata(const Json& json) {
  if (!json.is_object()) return Invalid("its __metadata__ is no map");
  std::map<std::string, std::string> metadata;
  for (const auto& [key, value] : json.items()) {
    if (!value.is_string()) {
      return Invalid(absl::StrCat("its __metadata__ ", Quoted(key), " is no string"));
    }
    metadata.emplace(key, value.get<std::string>());
  }
  return metadata;
}

// Sorts the tensors by their data and checks that they tile it.
absl::Status CheckRanges(int64_t data_bytes, std::vector<SafetensorsTensor>* tensors) {
  std::sort(tensors->begin(), tensors->end(), [](const auto& a, const auto& b) {
    return std::tie(a.begin, a.bytes, a.name) < std::tie(b.begin, b.bytes, b.name);
  });
  int64_t end = 0;
  std::string before = "the start of the data";
  for (const SafetensorsTensor& tensor : *tensors) {
    const std::string name = absl::StrCat("tensor ", Quoted(tensor.name));
    if (tensor.begin + tensor.bytes > data_bytes) {
      return Invalid(absl::StrCat(name, " ends at byte ", tensor.begin + tensor.bytes,
                                  " of the data, of which the file has only ", data_bytes,
                                  ": it was cut short"));
    }
    if (tensor.begin < end) return Invalid(absl::StrCat(name, " overlaps ", before));
    if (tensor.begin > end) {
      return Invalid(absl::StrCat("between ", before, " and ", name, " lie ", tensor.begin - end,
                                  " bytes that belong to no tensor"));
    }
    end += tensor.bytes;
    before = name;
  }
  if (end < data_bytes) {
    return Invalid(absl::StrCat(data_bytes - end, " bytes at its end belong to no tensor"));
  }
  return absl::OkStatus();
}

absl::StatusOr<SafetensorsHeader> Parse(const std::string& text, int64_t data_bytes) {
  LS_ASSIGN_OR_RETURN(const Json json, ParseJson(text));
  SafetensorsHeader header;
  for (const auto& [name, value] : json.items()) {
    if (name == kMetadata) {
      LS_ASSIGN_OR_RETURN(header.metadata, ParseMetadata(value));
      continue;
    }
    absl::StatusOr<SafetensorsTensor> tensor = ParseTensor(name, value);
    if (!tensor.ok()) {
      return Invalid(absl::StrCat("tensor ", Quoted(name), " ", tensor.status().message()));
    }
    header.tensors.push_back(*std::move(tensor));
  }
  LS_RETURN_IF_ERROR(CheckRanges(data_bytes, &header.tensors));
  return header;
}

// Bytes that are no UTF-8, in metadata, become the replacement character.
std::string JsonString(const std::string& text) {
  return Json(text).dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
}

}  // namespace

std::optional<int64_t> SafetensorsElementBytes(const std::string& dtype) {
  static constexpr std::pair<const char*, int64_t> kSizes[] = {
      {"F32", 4}, {"F16", 2}, {"BF16", 2}, {"F64", 8},     {"I64", 8},
      {"I32", 4}, {"I16", 2}, {"I8", 1},   {"U64", 8},     {"U32", 4},
      {"U16", 2}, {"U8", 1},  {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1},
  };
  for (const auto& [name, bytes] : kSizes) {
    if (dtype == name) return bytes;
  }
  return std::nullopt;
}

absl::Status UnsoundSafetensors(const std::string& file, const std::string& what) {
  return InvalidArgument("\"", file, "\" is no sound safetensors file: ", what, kDamageRemedy);
}

absl::StatusOr<SafetensorsHeader> ParseSafetensorsHeader(const std::string& json,
                                                         int64_t data_bytes,
                                                         const std::string& file) {
  absl::StatusOr<SafetensorsHeader> header = Parse(json, data_bytes);
  if (header.ok()) return header;
  return UnsoundSafetensors(file, std::string(header.status().message()));
}

std::string LayOutSafetensors(SafetensorsHeader* header) {
  std::vector<std::string> members;
  if (!header->metadata.empty()) {
    const auto append_pair = [](std::string* out, const auto& pair) {
      absl::StrAppend(out, JsonString(pair.first), ":", JsonString(pair.second));
    };
    members.push_back(absl::StrCat("\"", kMetadata, "\":{",
                                   absl::StrJoin(header->metadata, ",", append_pair), "}"));
  }
  int64_t end = 0;
  std::set<std::string> names = {kMetadata};
  for (SafetensorsTensor& tensor : header->tensors) {
    CHECK(names.insert(tensor.name).second) << "two tensors are called " << tensor.name;
    const auto element_bytes = SafetensorsElementBytes(tensor.dtype);
    CHECK(element_bytes) << tensor.name << " has the unknown dtype " << tensor.dtype;
    for (const int64_t dimension : tensor.shape) CHECK_GE(dimension, 0) << tensor.name;
    const auto bytes = ByteCount(*element_bytes, tensor.shape);
    CHECK(bytes) << tensor.name << " is larger than anything";
    tensor.begin = end;
    tensor.bytes = *bytes;
    end += *bytes;
    members.push_back(absl::StrCat(JsonString(tensor.name), ":{\"dtype\":\"", tensor.dtype,
                                   "\",\"shape\":[", absl::StrJoin(tensor.shape, ","),
                                   "],\"data_offsets\":[", tensor.begin, ",", end, "]}"));
  }
  std::string json = absl::StrCat("{", absl::StrJoin(members, ","), "}");
  // The format allows spaces at the end.
  while ((sizeof(uint64_t) + json.size()) % kAlignment != 0) json += ' ';
  std::string length(sizeof(uint64_t), '\0');
  const uint64_t size = json.size();
  std::memcpy(length.data(), &size, sizeof(size));
  return length + json;
}

}  // namespace lockstep
