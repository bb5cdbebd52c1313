// Values as bytes and back, for processes of one program on machines of the same byte order.

#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/types/span.h"

namespace lockstep {

template <typename T>
concept PlainValue = std::is_trivially_copyable_v<T>;

// Puts values one behind the other.
class ByteWriter {
 public:
  template <PlainValue T>
  void Put(const T& value) {
    const auto* from = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), from, from + sizeof(T));
  }
  template <PlainValue T>
  void Put(const std::vector<T>& values) {
    PutElements(values.data(), values.size());
  }
  void Put(const std::string& text) { PutElements(text.data(), text.size()); }

  std::vector<std::byte> Take() { return std::move(bytes_); }

 private:
  // How many, and then the elements.
  template <typename T>
  void PutElements(const T* elements, size_t count) {
    Put(static_cast<uint64_t>(count));
    const auto* from = reinterpret_cast<const std::byte*>(elements);
    bytes_.insert(bytes_.end(), from, from + count * sizeof(T));
  }

  std::vector<std::byte> bytes_;
};

// Takes them out again, in the same order. Where bytes are missing, this and all later values stay
// as they are, and ok() is false.
class ByteReader {
 public:
  explicit ByteReader(absl::Span<const std::byte> bytes) : bytes_(bytes) {}

  template <PlainValue T>
  void Get(T* value) {
    if (Has(sizeof(T))) Copy(value, sizeof(T));
  }
  template <PlainValue T>
  void Get(std::vector<T>* values) {
    const size_t count = GetCount(sizeof(T));
    if (!ok_) return;
    values->resize(count);
    if (count > 0) Copy(values->data(), count * sizeof(T));
  }
  void Get(std::string* text) {
    const size_t count = GetCount(1);
    if (!ok_) return;
    text->assign(reinterpret_cast<const char*>(bytes_.data()), count);
    bytes_.remove_prefix(count);
  }

  bool ok() const { return ok_; }
  // Whether all bytes were taken, and none was missing.
  bool complete() const { return ok_ && bytes_.empty(); }

 private:
  bool Has(size_t bytes) {
    ok_ = ok_ && bytes <= bytes_.size();
    return ok_;
  }
  size_t GetCount(size_t element) {
    uint64_t count = 0;
    Get(&count);
    ok_ = ok_ && count <= bytes_.size() / element;
    return static_cast<size_t>(count);
  }
  void Copy(void* to, size_t bytes) {
    std::memcpy(to, bytes_.data(), bytes);
    bytes_.remove_prefix(bytes);
  }

  absl::Span<const std::byte> bytes_;
  bool ok_ = true;
};

}  // namespace lockstep
