#include "strategies/data_parallel/buckets.h"

#include <algorithm>
#include <utility>

namespace lockstep {
namespace {

int64_t AlignedElements(const Parameter& parameter, DType dtype) {
  return AlignedBytes(parameter.held_shape().elements() * SizeOf(dtype)) / SizeOf(dtype);
}

}  // namespace

Buckets PlanBuckets(const std::vector<int64_t>& parameter_bytes, int64_t first_limit,
                    int64_t limit) {
  Buckets buckets;
  int64_t filled = 0;
  for (size_t i = parameter_bytes.size(); i-- > 0;) {
    const int64_t bound = buckets.size() <= 1 ? first_limit : limit;
    if (buckets.empty() || filled + parameter_bytes[i] > bound) {
      buckets.emplace_back();
      filled = 0;
    }
    buckets.back().push_back(i);
    filled += parameter_bytes[i];
  }
  return buckets;
}

std::vector<Tensor> MakeBuckets(const Buckets& buckets, const std::vector<Parameter*>& parameters,
                                DType dtype, Kernels& kernels) {
  std::vector<Tensor> flats;
  for (std::vector<size_t> bucket : buckets) {
    // Those that fill whole cache lines first: then at most the others leave gaps.
    std::stable_partition(bucket.begin(), bucket.end(), [&](size_t i) {
      return AlignedElements(*parameters[i], dtype) == parameters[i]->held_shape().elements();
    });
    std::vector<int64_t> offsets;
    int64_t next = 0, total = 0;
    for (size_t i : bucket) {
      offsets.push_back(next);
      total = next + parameters[i]->held_shape().elements();
      next += AlignedElements(*parameters[i], dtype);
    }
    Tensor flat = kernels.Empty({total}, dtype, MemoryClass::kGradients);
    kernels.Fill(flat, 0);
    for (size_t i = 0; i < bucket.size(); ++i) {
      Parameter& parameter = *parameters[bucket[i]];
      parameter.gradient = flat.View(offsets[i], parameter.held_shape());
    }
    flats.push_back(std::move(flat));
  }
  return flats;
}

}  // namespace lockstep
