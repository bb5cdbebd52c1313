#include "core/nn/positions.h"

#include <numbers>
#include <utility>

#include "core/autograd/operations.h"
#include "core/base/elementary.h"
#include "core/base/parallel.h"
#include "glog/logging.h"

namespace lockstep {

Tensor PositionsOf(Kernels& kernels, const TokenOrder& tokens, const Range& rows) {
  std::vector<int32_t> positions;
  positions.reserve(static_cast<size_t>(rows.count));
  for (int64_t row = rows.first; row < rows.first + rows.count; ++row) {
    positions.push_back(static_cast<int32_t>(
        tokens.PositionOf(row / tokens.leaf_rows(), row % tokens.leaf_time())));
  }
  Tensor result = kernels.Empty({rows.count}, DType::kI32);
  kernels.CopyFromHost(positions.data(), result);
  return result;
}

Tensor PositionsInDocuments(Kernels& kernels, const TokenOrder& tokens, const Tensor& documents) {
  CHECK_EQ(documents.elements(), tokens.rows()) << documents.shape();
  const int32_t* first = documents.data<int32_t>();
  std::vector<int32_t> positions;
  positions.reserve(static_cast<size_t>(tokens.held_rows()));
  for (int64_t row = tokens.first_row(); row < tokens.first_row() + tokens.held_rows(); ++row) {
    const int64_t sample = row % tokens.leaf_rows() / tokens.leaf_time();
    const int64_t position = tokens.PositionOf(row / tokens.leaf_rows(), row % tokens.leaf_time());
    positions.push_back(static_cast<int32_t>(position - first[sample * tokens.time + position]));
  }
  Tensor result = kernels.Empty({tokens.held_rows()}, DType::kI32);
  kernels.CopyFromHost(positions.data(), result);
  return result;
}

std::vector<double> RotaryFrequencies(int64_t head_width, const RotaryOptions& options) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < head_width / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(head_width);
    frequencies.push_back(Exp(exponent * Log(options.theta)));
  }
  if (!options.scaling) return frequencies;
  const RotaryOptions::Scaling& scaling = *options.scaling;
  for (double& frequency : frequencies) {
    const double turns =
        static_cast<double>(scaling.original_context) * frequency / (2 * std::numbers::pi);
    if (turns > scaling.high_frequency_turns) continue;
    const double slow = frequency / scaling.factor;
    if (turns < scaling.low_frequency_turns) {
      frequency = slow;
      continue;
    }
    const double share = (turns - scaling.low_frequency_turns) /
                         (scaling.high_frequency_turns - scaling.low_frequency_turns);
    frequency = (1 - share) * slow + share * frequency;
  }
  return frequencies;
}

const Tensor& RotaryPositions::Table(Kernels& kernels) {
  if (table_.defined()) return table_;
  std::vector<float> table(static_cast<size_t>(longest_ * head_width_));
  const std::vector<double> frequencies = RotaryFrequencies(head_width_, options_);
  const int64_t half = head_width_ / 2;
  ParallelFor(longest_, 64, [&](int64_t begin, int64_t end) {
    for (int64_t position = begin; position < end; ++position) {
      for (int64_t i = 0; i < half; ++i) {
        const double turns =
            static_cast<double>(position) * (frequencies[i] / (2 * std::numbers::pi));
        const SineAndCosine at = SineAndCosineOfTurns(turns);
        table[position * head_width_ + i] = static_cast<float>(at.cosine);
        table[position * head_width_ + half + i] = static_cast<float>(at.sine);
      }
    }
  });
  table_ = kernels.Empty({longest_, head_width_});
  kernels.CopyFromHost(table.data(), table_);
  return table_;
}

Variable RotaryPositions::Turn(Pass& pass, Variable qkv, const Attention& attention) {
  CHECK_EQ(attention.head_width, head_width_);
  Kernels& kernels = pass.kernels();
  const int64_t rows = qkv.shape().rows();
  if (!pass.positions.defined()) {
    const TokenOrder order = pass.tokens.leaves > 1
                                 ? pass.tokens
                                 : TokenOrder{.samples = qkv.shape()[0], .time = qkv.shape()[1]};
    pass.positions = PositionsOf(kernels, order, {order.first_row(), rows});
  }
  CHECK_EQ(pass.positions.elements(), rows);
  return Rotate(pass.tape, std::move(qkv), attention.heads + attention.heads_of_keys(), head_width_,
                pass.positions, Table(kernels));
}

}  // namespace lockstep
