// The positions of tokens, row by row: which rows of a table of positions belong to them.

#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "core/autograd/variable.h"
#include "core/kernels/kernels.h"
#include "core/nn/pass.h"

namespace lockstep {

// The positions of `rows` of a micro-batch in its samples, in the order of memory: i32 [rows].
Tensor PositionsOf(Kernels& kernels, const TokenOrder& tokens, const Range& rows);

// The positions of this rank's rows in their documents, which `documents` (Batch) says of all
// tokens of the micro-batch: i32 [tokens.held_rows()].
Tensor PositionsInDocuments(Kernels& kernels, const TokenOrder& tokens, const Tensor& documents);

// How rotary positions turn: plane i of a head turns by frequency theta^(-2 i / head_width) a
// position (Su et al., "RoFormer", 2021).
struct RotaryOptions {
  double theta = 10000;
  // Llama 3.1's way to a longer context: planes that turn slowly, less than `low_frequency_turns`
  // times in `original_context` positions, turn `factor` times slower; planes of more than
  // `high_frequency_turns` turn as before; between the two, frequencies are interpolated.
  struct Scaling {
    double factor = 8;
    double low_frequency_turns = 1, high_frequency_turns = 4;
    int64_t original_context = 8192;

    friend bool operator==(const Scaling&, const Scaling&) = default;
  };
  std::optional<Scaling> scaling = std::nullopt;

  friend bool operator==(const RotaryOptions&, const RotaryOptions&) = default;
};

// The frequencies of the head_width / 2 planes, in radians a position. The same bits on every
// processor.
std::vector<double> RotaryFrequencies(int64_t head_width, const RotaryOptions& options);

// Rotary positions of the queries and keys of a model's layers, which share one of these. Makes its
// table (Kernels::Rotate) when it is first used.
class RotaryPositions {
 public:
  // For positions below `longest`. Requires head_width to be even.
  RotaryPositions(int64_t longest, int64_t head_width, const RotaryOptions& options)
      : longest_(longest), head_width_(head_width), options_(options) {}

  // Turns the queries and keys of packed projections qkv [batch, time, packed_width], or of a
  // sequence's leaves, [leaves * batch, leaf time, packed_width]: all rows of the pass, of the
  // heads that `attention` says. Uses qkv up.
  Variable Turn(Pass& pass, Variable qkv, const Attention& attention);

 private:
  const Tensor& Table(Kernels& kernels);

  int64_t longest_, head_width_;
  RotaryOptions options_;
  Tensor table_;
};

}  // namespace lockstep
