#include "core/run/strategy/parameter_hash.h"

#include <cstdint>
#include <cstring>

#include "absl/strings/str_format.h"
#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"

namespace lockstep {
namespace {

// A finalizer that lets each bit of a number reach all bits (Steele et al., "Fast Splittable
// Pseudorandom Number Generators", OOPSLA 2014).
uint64_t Mix(uint64_t x) {
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// The sum over a run of elements of `Bits`, which lie from `bytes` on.
template <typename Bits>
uint64_t HashOfRun(uint64_t name, const uint8_t* bytes, const ElementRange& run) {
  uint64_t hash = 0;
  for (int64_t i = 0; i < run.elements; ++i) {
    Bits bits;
    std::memcpy(&bits, bytes + i * sizeof(Bits), sizeof(Bits));
    hash += Mix(Mix(name + static_cast<uint64_t>(run.in_whole + i)) ^ bits);
  }
  return hash;
}

// What this rank adds to a tensor's hash: of ranks that hold the same elements, one counts them.
uint64_t HashOf(Kernels& kernels, const StateTensor& part) {
  if (!part.is_writer) return 0;
  uint64_t name = 0xcbf29ce484222325, hash = 0;
  for (const char c : part.name) name = Mix(name ^ static_cast<uint8_t>(c));
  const int64_t size = SizeOf(part.tensor.dtype());
  std::vector<uint8_t> bytes(part.tensor.bytes());
  kernels.CopyToHost(part.tensor, bytes.data());
  for (const ElementRange& run : part.held().ElementRanges()) {
    const uint8_t* first = bytes.data() + run.in_slice * size;
    hash += size == 8   ? HashOfRun<uint64_t>(name, first, run)
            : size == 4 ? HashOfRun<uint32_t>(name, first, run)
            : size == 2 ? HashOfRun<uint16_t>(name, first, run)
                        : HashOfRun<uint8_t>(name, first, run);
  }
  return hash;
}

// The sum of the hashes of the weights that this rank holds.
uint64_t SumOfHashes(Kernels& kernels, const std::vector<StateTensor>& state) {
  uint64_t hash = 0;
  for (const StateTensor& part : state) {
    if (!IsOptimizerState(part.name)) hash += HashOf(kernels, part);
  }
  return hash;
}

std::string Format(uint64_t hash) { return absl::StrFormat("%016x", hash); }

}  // namespace

absl::StatusOr<std::vector<TensorHash>> HashTensors(Kernels& kernels, Communicator& ranks,
                                                    const std::vector<StateTensor>& state) {
  std::vector<int64_t> sums;
  for (const StateTensor& part : state) {
    sums.push_back(static_cast<int64_t>(HashOf(kernels, part)));
  }
  LS_RETURN_IF_ERROR(
      AllReduceNumbers(ranks, absl::MakeSpan(sums), ReduceOp::kSum, "hashes of tensors"));
  std::vector<TensorHash> hashes;
  for (size_t i = 0; i < state.size(); ++i) {
    hashes.push_back({.tensor = state[i].name, .hash = static_cast<uint64_t>(sums[i])});
  }
  return hashes;
}

std::string HashParameters(Kernels& kernels, const std::vector<StateTensor>& state) {
  return Format(SumOfHashes(kernels, state));
}

absl::StatusOr<std::string> HashParameters(Kernels& kernels, Communicator& ranks,
                                           const std::vector<StateTensor>& state) {
  auto sum = static_cast<int64_t>(SumOfHashes(kernels, state));
  LS_RETURN_IF_ERROR(
      AllReduceNumbers(ranks, absl::MakeSpan(&sum, 1), ReduceOp::kSum, "parameter hash"));
  return Format(static_cast<uint64_t>(sum));
}

}  // namespace lockstep
