#include "strategies/fsdp/unit.h"

#include <algorithm>
#include <utility>

#include "core/base/status.h"

namespace lockstep {
namespace {

constexpr int64_t kAlignedFloats = kAlignment / 4;

int64_t RoundUp(int64_t n, int64_t step) { return (n + step - 1) / step * step; }

}  // namespace

FsdpUnit::FsdpUnit(std::vector<Parameter*> parameters, Communicator& ranks, Kernels& kernels,
                   uint64_t seed)
    : parameters_(std::move(parameters)), ranks_(ranks) {
  int64_t total = 0;
  std::vector<int64_t> offsets;
  for (const Parameter* parameter : parameters_) {
    offsets.push_back(total);
    total += RoundUp(parameter->shape.elements(), kAlignedFloats);
  }
  const int64_t size = RoundUp((total + ranks.size() - 1) / ranks.size(), kAlignedFloats);
  const int64_t begin = ranks.rank() * size;
  shard_ = kernels.Empty({size}, DType::kF32, MemoryClass::kParameters);
  shard_gradient_ = kernels.Empty({size}, DType::kF32, MemoryClass::kGradients);
  whole_ = kernels.Empty({size * ranks.size()}, DType::kF32, MemoryClass::kParameters);
  whole_.storage().Release();
  whole_gradient_ = kernels.Empty({size * ranks.size()}, DType::kF32, MemoryClass::kGradients);
  whole_gradient_.storage().Release();
  kernels.Fill(shard_, 0);

  for (size_t i = 0; i < parameters_.size(); ++i) {
    Parameter& parameter = *parameters_[i];
    parameter.value = whole_.View(offsets[i], parameter.shape);
    parameter.gradient = whole_gradient_.View(offsets[i], parameter.shape);
    // Both ends fall on the boundary, but where the parameter itself ends.
    const int64_t elements = parameter.shape.elements();
    const int64_t first = std::clamp<int64_t>(begin - offsets[i], 0, elements);
    const int64_t end = std::clamp<int64_t>(begin + size - offsets[i], 0, elements);
    const int64_t at = first < end ? offsets[i] + first - begin : 0;
    const Tensor value = shard_.View(at, {end - first});
    state_.push_back({parameter.name, value, parameter.shape, first});
    Initialize(parameter, seed, first, kernels, value);
    trained_.push_back(
        {parameter.name, value, shard_gradient_.View(at, {end - first}), parameter.decays()});
  }
}

void FsdpUnit::Gather() {
  if (!whole_.storage().released()) return;
  whole_.storage().Materialize();
  gather_ = ranks_.AllGather(shard_, whole_, "parameters");
}

void FsdpUnit::AwaitWhole() {
  Gather();
  ThrowIfError(gather_.Wait());
}

void FsdpUnit::Release() { whole_.storage().Release(); }

void FsdpUnit::PrepareGradients() { whole_gradient_.storage().Materialize(); }

void FsdpUnit::Reduce() {
  reduce_ = ranks_.ReduceScatter(whole_gradient_, shard_gradient_, ReduceOp::kSum, "gradients");
}

void FsdpUnit::AwaitReduced() {
  ThrowIfError(reduce_.Wait());
  whole_gradient_.storage().Release();
}

}  // namespace lockstep
