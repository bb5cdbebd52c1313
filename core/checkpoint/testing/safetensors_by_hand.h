#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace lockstep {

// A safetensors file put together as the format describes it, by none of the code under test.
// Tensors follow each other in the order of their names.
class SafetensorsByHand {
 public:
  // The value at row and column of a matrix as the file has it.
  using Formula = std::function<float(int64_t row, int64_t column)>;

  // Adds or replaces a matrix. Of F32, F16 and BF16, rounded; other dtypes of two bytes get bits.
  void Add(const std::string& name, int64_t rows, int64_t columns, const Formula& value,
           const std::string& dtype = "F32");
  // A vector: row 0.
  void AddVector(const std::string& name, int64_t elements, const Formula& value);
  void Remove(const std::string& name) { tensors_.erase(name); }

  std::string Bytes() const;

 private:
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string bytes;
  };

  std::map<std::string, Tensor> tensors_;
};

}  // namespace lockstep
