#include "core/kernels/cpu/weight_sum.h"

#include <algorithm>
#include <bit>

#include "core/base/parallel.h"
#include "core/kernels/cpu/float_elements.h"
#include "core/kernels/cpu/tile_gemm.h"
#include "glog/logging.h"

namespace lockstep::cpu {

WeightSum::WeightSum(Kernels& kernels, const Tiling& leaves, int chunks, Write write,
                     const Tensor& dw)
    : write_(write),
      chunks_(chunks),
      is_f32_(dw.dtype() == DType::kF32),
      dw_(dw),
      leaves_(leaves.count),
      first_slot_is_dw_(is_f32_ && (write == Write::kOverwrite || leaves.count == 1)) {
  int64_t slots = 0;
  for (int chunk = 0; chunk < chunks; ++chunk) {
    const int64_t begin = ChunkBegin(leaves_, chunks, chunk),
                  end = ChunkBegin(leaves_, chunks, chunk + 1);
    TreeStack stack(leaves_, begin);
    for (int64_t leaf = begin; leaf < end; ++leaf) {
      const int64_t merged = stack.Push();
      steps_.push_back({static_cast<int>(stack.nodes().size()) - 1, static_cast<int>(merged)});
    }
    first_slot_.push_back(slots);
    for (size_t i = 0; i < stack.nodes().size(); ++i) {
      nodes_.push_back(stack.nodes()[i]);
      slots_.push_back(slots + static_cast<int64_t>(i));
    }
    slots += DeepestStack(leaves_, begin, end);
  }
  const int64_t held = slots - (first_slot_is_dw_ ? 1 : 0);
  if (held > 0) {
    constexpr int64_t kLine = 16;
    partial_ = kernels.Empty({held, (dw.elements() + kLine - 1) / kLine * kLine}, DType::kF32,
                             MemoryClass::kWorkspace);
  }
}

float* WeightSum::Partial(int64_t index) const {
  if (first_slot_is_dw_ && index == 0) return dw_.data<float>();
  return partial_.data<float>() + (first_slot_is_dw_ ? index - 1 : index) * partial_.shape()[1];
}

WeightSum::Place WeightSum::PlaceOf(int chunk, int64_t first_leaf, int64_t count,
                                    int64_t offset) const {
  DCHECK(std::has_single_bit(static_cast<uint64_t>(count)) && first_leaf % count == 0);
  const int64_t last = first_leaf + count - 1;
  const Step& step = steps_[last];
  // The first nodes that the last leaf completes are those within the group.
  const int within = std::countr_zero(static_cast<uint64_t>(count));
  Place place{.to = Slot(chunk, step.slot) + offset, .pointers = {}, .count = 0};
  for (int i = step.merged - within; i-- > 0;) {
    place.pointers[place.count++] = Slot(chunk, step.slot + i) + offset;
  }
  if (last + 1 == leaves_ && LastLeafCompletes()) {
    place.to = dw_.data<float>() + offset;
    if (write_ == Write::kAccumulate) place.pointers[place.count++] = place.to;
  }
  return place;
}

void WeightSum::Finish() const {
  if (LastLeafCompletes()) return;
  const std::vector<TreeAddition> additions = TreeAdditions(nodes_, leaves_);
  ParallelFor(dw_.elements(), 1 << 14, [&](int64_t begin, int64_t end) {
    std::vector<float> held(kStretch);
    ForStretches(begin, end, kStretch, [&](int64_t first, int64_t count) {
      const auto value = [&](int64_t node) { return Partial(slots_[node]) + first; };
      for (const TreeAddition& addition : additions) {
        float* __restrict left = value(addition.left);
        const float* __restrict right = value(addition.right);
        for (int64_t i = 0; i < count; ++i) left[i] += right[i];
      }
      float* sum = value(0);
      if (first_slot_is_dw_ && write_ == Write::kOverwrite) return;  // it lies in dw
      if (write_ == Write::kAccumulate) {
        LoadFloats(dw_, first, count, held.data());
        for (int64_t i = 0; i < count; ++i) sum[i] += held[i];
      }
      StoreFloats(sum, first, count, dw_);
    });
  });
}

void WeightGradient::Run(int chunk, int64_t first_leaf, int64_t count, int64_t rows,
                         const float* dy, int64_t first_out, int64_t outs, const float* x,
                         int64_t first_in, int64_t ins) const {
  const int64_t in = sum_.in(), offset = first_out * in + first_in;
  const WeightSum::Place place = sum_.PlaceOf(chunk, first_leaf, count, offset);
  Multiply({.m = outs,
            .n = ins,
            .k = rows,
            .leaves = static_cast<int>(count),
            .a = dy,
            .packed_b = x,
            .c = place.to,
            .c_stride = in,
            .addends = place.addends(),
            .addend_stride = in},
           instructions_);
}

}  // namespace lockstep::cpu
