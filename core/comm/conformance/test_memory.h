#pragma once

#include <cstdint>

#include "core/comm/communicator.h"
#include "core/comm/conformance/serial_model.h"
#include "core/tensor/allocator.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// Where the tensors of a rank under test are, and the way there and back.
class TestMemory {
 public:
  virtual ~TestMemory() = default;
  virtual Allocator& allocator() = 0;
  // In the order in which the rank computes. Read waits for what is read.
  virtual void Write(const Bytes& bytes, const Tensor& tensor) = 0;
  virtual Bytes Read(const Tensor& tensor) = 0;

  Tensor Empty(int64_t count, DType dtype);
  // A tensor with these contents.
  Tensor TensorOf(const Bytes& bytes, DType dtype);
};

class HostMemory final : public TestMemory {
 public:
  Allocator& allocator() override { return allocator_; }
  void Write(const Bytes& bytes, const Tensor& tensor) override;
  Bytes Read(const Tensor& tensor) override;

 private:
  CpuAllocator allocator_;
};

// What the body of a test is given.
class RankUnderTest {
 public:
  RankUnderTest(Communicator& comm, TestMemory& memory, Arithmetic arithmetic = Arithmetic::kTree)
      : comm_(comm), memory_(memory), arithmetic_(arithmetic) {}

  int rank() const { return comm_.rank(); }
  int size() const { return comm_.size(); }
  Communicator& comm() const { return comm_; }
  TestMemory& memory() const { return memory_; }
  Arithmetic arithmetic() const { return arithmetic_; }

 private:
  Communicator& comm_;
  TestMemory& memory_;
  const Arithmetic arithmetic_;
};

}  // namespace lockstep
