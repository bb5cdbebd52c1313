#include "core/nn/key_value_cache.h"

#include "core/nn/positions.h"
#include "glog/logging.h"

namespace lockstep {

Pass KeyValueCache::Begin(Tape& tape, int64_t count) {
  CHECK(count > 0 && tokens_ + count <= capacity_) << tokens_ << " + " << count;
  CHECK(!tape.recording()) << "what is kept has no gradient";
  const Range rows = {.first = tokens_, .count = count};
  Pass pass = {.tape = tape,
               .mode = Pass::Mode::kEvaluate,
               .tokens = {.samples = 1, .time = count},
               .positions = PositionsOf(kernels_, {.samples = 1, .time = capacity_}, rows),
               .cache = this};
  tokens_ += count;
  next_layer_ = 0;
  return pass;
}

Variable KeyValueCache::Attend(const Pass& pass, const Variable& qkv, const Attention& attention) {
  const int64_t count = pass.tokens.time, before = tokens_ - count;
  const int64_t width = 2 * attention.key_width();
  if (next_layer_ == layers_.size()) {
    layers_.push_back(kernels_.Empty({capacity_, width}, qkv.value.dtype()));
  }
  const Tensor& keys = layers_[next_layer_++];
  CHECK_EQ(keys.shape()[1], width) << "layers attend in another order than before";
  const Tensor own = kernels_.Empty({count, width}, keys.dtype());
  kernels_.CopyColumns(qkv.value, attention.query_width(), width, own, 0);
  kernels_.CopyColumns(own.Reshape({1, count * width}), 0, count * width,
                       keys.Reshape({1, capacity_ * width}), before * width);
  const Tensor y = kernels_.Empty({1, count, attention.query_width()}, keys.dtype());
  kernels_.AttentionOfFurtherTokens(attention, before, qkv.value, keys, y);
  return Variable(y);
}

}  // namespace lockstep
