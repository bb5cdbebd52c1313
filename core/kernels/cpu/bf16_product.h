#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "core/kernels/kernels.h"
#include "dnnl.hpp"

namespace lockstep::cpu {

// Matrix products of bf16 operands, added up in fp32, on one thread each: linear layers run many of
// them side by side, a tile of rows each. They are oneDNN's, which uses whatever the processor has
// for bf16 (AVX512-BF16, AMX). Compiling one costs about as much as running it; it is kept, and
// found again by its shape. dnnl::error becomes a crash: shapes are checked before.
class Bf16Products {
 public:
  // The allocator, from which packed operands come, outlives this.
  explicit Bf16Products(Allocator& allocator);

  // Whether the processor multiplies bf16 faster than fp32.
  static bool Supported();

  // c[m, n] = a[m, k] b[k, n] (+ bias[n]) (+ what c holds); a, b and bias are bf16.
  struct Spec {
    int64_t m, n, k;
    // As they lie in memory, without gaps.
    Transpose transpose_a = Transpose::kNo, transpose_b = Transpose::kNo;
    enum class Right { kPlain, kPacked } right = Right::kPlain;  // packed: by Pack
    enum class Bias { kNone, kRow } bias = Bias::kNone;
    Write write = Write::kOverwrite;
    DType c = DType::kBF16;  // or fp32

    std::vector<int64_t> Key() const;
  };
  class Product;

  // Valid as long as this object. Not to be called by several threads at once.
  const Product& Get(const Spec& spec);

  // b as `spec`, whose right operand is packed, reads it: for an operand that many tiles share.
  Tensor Pack(const Spec& spec, const Tensor& b);

 private:
  Allocator& allocator_;
  dnnl::engine engine_;
  dnnl::stream stream_;
  absl::flat_hash_map<std::vector<int64_t>, std::unique_ptr<Product>> products_;
  absl::flat_hash_map<std::vector<int64_t>, dnnl::reorder> packings_;
};

// One compiled product.
class Bf16Products::Product {
 public:
  Product(const Spec& spec, const dnnl::engine& engine);

  // Bytes that a thread must give Run.
  int64_t scratch_bytes() const { return static_cast<int64_t>(scratch_.get_size()); }
  const dnnl::memory::desc& right() const { return b_; }

  // Safe on several threads at once, with a scratch of its own for each. `bias` as in the spec.
  void Run(const void* a, const void* b, const void* bias, void* c, void* scratch) const;

 private:
  dnnl::engine engine_;
  dnnl::matmul primitive_;
  dnnl::memory::desc a_, b_, c_, bias_, scratch_;
};

}  // namespace lockstep::cpu
