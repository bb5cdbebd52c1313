// What the tests of the kernels' invariance share: the bits of a result depend on its operands
// alone, not on the number of threads, on the instructions that are used, or on how many rows a
// call has.

#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/base/parallel.h"
#include "core/base/philox.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gtest/gtest.h"

namespace lockstep::invariance {

// Samples of a call, and rows of a sample: enough for several leaves of 128 rows, so that threads
// take different ranges of them.
inline constexpr int64_t kBatch = 5, kTime = 127;

// Makes operands, and remembers what kernels have written.
class Bench {
 public:
  Bench(InstructionSet instructions, DType dtype) : kernels_(allocator_, instructions) {
    dtype_ = dtype;
  }

  CpuKernels& kernels() { return kernels_; }

  Tensor Normal(const Shape& shape, const std::string& name) { return Normal(shape, name, dtype_); }
  Tensor Normal(const Shape& shape, const std::string& name, DType dtype) {
    const Tensor drawn = kernels_.Empty(shape);
    Philox(PhiloxKey(1, "test", name))
        .FillNormal({drawn.data<float>(), static_cast<size_t>(drawn.elements())}, 0, 0.1f, 1);
    if (dtype == DType::kF32) return drawn;
    const Tensor rounded = kernels_.Empty(shape, dtype, MemoryClass::kActivations);
    kernels_.Cast(drawn, rounded);
    return rounded;
  }
  Tensor Integers(int64_t count, int32_t end, const std::string& name) {
    std::vector<uint32_t> bits(count);
    Philox(PhiloxKey(1, "test", name)).FillBits(bits, 0);
    const Tensor x = kernels_.Empty({count}, DType::kI32, MemoryClass::kActivations);
    // Some negative: ignored targets, words of other ranks.
    for (int64_t i = 0; i < count; ++i) {
      x.data<int32_t>()[i] = i % 11 == 5 ? -1 : static_cast<int32_t>(bits[i] % end);
    }
    return x;
  }
  Tensor Floats(const Shape& shape) { return Out(shape, DType::kF32); }
  Tensor Out(const Shape& shape) { return Out(shape, dtype_); }
  Tensor Out(const Shape& shape, DType dtype) {
    outputs_.push_back(kernels_.Empty(shape, dtype, MemoryClass::kActivations));
    return outputs_.back();
  }
  // An output that holds something before it is added to.
  Tensor Held(const Shape& shape, const std::string& name, DType dtype) {
    outputs_.push_back(Normal(shape, name, dtype));
    return outputs_.back();
  }

  // The bytes of all outputs, of the first `batch` of `whole` samples: each output has samples, or
  // their rows, in its first dimension.
  std::string Bytes(int64_t batch = 1, int64_t whole = 1) const {
    std::string bytes;
    for (const Tensor& x : outputs_) {
      bytes.append(reinterpret_cast<const char*>(x.raw()), x.bytes() / whole * batch);
    }
    return bytes;
  }

 private:
  CpuAllocator allocator_;
  CpuKernels kernels_;
  DType dtype_ = DType::kF32;
  std::vector<Tensor> outputs_;
};

struct NamedKernel {
  std::string name;
  // Calls the kernel on the first `batch` samples.
  std::function<void(Bench&, int64_t batch)> run;
  // Whether an element of its outputs depends on one sample alone.
  bool by_row = true;
};

inline std::string Results(const NamedKernel& kernel, DType dtype, int threads,
                           InstructionSet instructions, int64_t batch = kBatch) {
  SetThreads(threads);
  Bench bench(instructions, dtype);
  kernel.run(bench, batch);
  return bench.Bytes();
}

// Restores the number of threads when a test ends.
class ThreadsRestored {
 public:
  ~ThreadsRestored() { SetThreads(before_); }

 private:
  const int before_ = MaxThreads();
};

// Each kernel has the same bits on any number of threads and with each of the instruction sets.
inline void ExpectThreadsDoNotMatter(const std::vector<NamedKernel>& kernels, DType dtype,
                                     const std::vector<InstructionSet>& sets) {
  const ThreadsRestored restored;
  for (const NamedKernel& kernel : kernels) {
    const std::string expected = Results(kernel, dtype, 1, sets.front());
    EXPECT_FALSE(expected.empty());
    for (const int threads : {1, 2, 3, 5}) {
      for (const InstructionSet set : sets) {
        EXPECT_TRUE(Results(kernel, dtype, threads, set) == expected)
            << kernel.name << " on " << threads << " threads with " << Name(set);
      }
    }
  }
}

// The first samples have the same bits whether a call has them alone or more.
inline void ExpectRowsDoNotDependOnOthers(const std::vector<NamedKernel>& kernels, DType dtype) {
  const ThreadsRestored restored;
  SetThreads(2);
  for (const NamedKernel& kernel : kernels) {
    if (!kernel.by_row) continue;
    Bench whole(WidestInstructionSet(), dtype);
    kernel.run(whole, kBatch);
    for (const int64_t batch : {1, 2, 4}) {
      Bench some(WidestInstructionSet(), dtype);
      kernel.run(some, batch);
      EXPECT_TRUE(some.Bytes() == whole.Bytes(batch, kBatch)) << kernel.name << " of " << batch;
    }
  }
}

}  // namespace lockstep::invariance
