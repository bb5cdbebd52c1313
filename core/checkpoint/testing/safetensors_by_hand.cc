#include "core/checkpoint/testing/safetensors_by_hand.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/half.h"

namespace lockstep {
namespace {

template <typename T>
void AppendBytes(T value, std::string* bytes) {
  bytes->append(reinterpret_cast<const char*>(&value), sizeof(value));
}

}  // namespace

void SafetensorsByHand::Add(const std::string& name, int64_t rows, int64_t columns,
                            const Formula& value, const std::string& dtype) {
  Tensor tensor = {.dtype = dtype, .shape = {rows, columns}, .bytes = {}};
  for (int64_t row = 0; row < rows; ++row) {
    for (int64_t column = 0; column < columns; ++column) {
      const float x = value(row, column);
      if (dtype == "F32") {
        AppendBytes(x, &tensor.bytes);
      } else {
        AppendBytes(dtype == "F16" ? FloatToHalf(x) : FloatToBFloat16(x), &tensor.bytes);
      }
    }
  }
  tensors_[name] = tensor;
}

void SafetensorsByHand::AddVector(const std::string& name, int64_t elements, const Formula& value) {
  Add(name, 1, elements, value);
  tensors_[name].shape = {elements};
}

std::string SafetensorsByHand::Bytes() const {
  std::string members, data;
  for (const auto& [name, tensor] : tensors_) {
    absl::StrAppend(&members, members.empty() ? "" : ",", "\"", name, "\":{\"dtype\":\"",
                    tensor.dtype, "\",\"shape\":[", absl::StrJoin(tensor.shape, ","),
                    "],\"data_offsets\":[", data.size(), ",", data.size() + tensor.bytes.size(),
                    "]}");
    data += tensor.bytes;
  }
  const std::string header = absl::StrCat("{", members, "}");
  std::string length;
  for (uint64_t rest = header.size(), i = 0; i < 8; ++i, rest >>= 8) {
    length.push_back(static_cast<char>(rest & 0xFF));
  }
  return length + header + data;
}

}  // namespace lockstep
