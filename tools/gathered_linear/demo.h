// One linear layer whose weight is split by column over ranks, and whose outputs every rank
// gathers.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/comm_totals.h"
#include "core/tensor/shape.h"

namespace lockstep {

struct GatheredLinearOptions {
  int ranks = 2;
  int64_t rows = 32;   // of x: the batch
  int64_t in = 1000;   // features of x
  int64_t out = 1000;  // features of y, at least `ranks`
  uint64_t seed = 1;   // of x, dy and the layer's initial values
};

// What a forward and a backward of y = x weight^T + bias make, row by row.
struct LinearOutcome {
  std::vector<float> y;        // [rows, out]
  std::vector<float> dx;       // [rows, in]
  std::vector<float> dweight;  // [output features that are here, in]
  std::vector<float> dbias;    // [output features that are here]

  friend bool operator==(const LinearOutcome&, const LinearOutcome&) = default;
};

// One rank's side. It holds `outputs` of the output features: those rows of the weight, and makes
// those columns of y before it gathers the others.
struct GatheredLinearRank {
  int64_t first_output = 0;
  int64_t outputs = 0;
  Shape weight, own_y, y;
  LinearOutcome outcome;
  CommTotals traffic;
};

// A layer on all ranks, and the undivided layer beside it, which sums the gradient of x over as
// many leaves of output features as there are ranks (docs/numerics.md, "Feature leaves").
struct GatheredLinear {
  GatheredLinearOptions options;
  // What all have begun with: [rows, in], [out, in], [out], and [rows, out].
  std::vector<float> x, weight, bias, dy;
  LinearOutcome undivided;
  std::vector<GatheredLinearRank> ranks;

  // Bytes that a rank sends by the closed formulas: in forward its columns of y to every other
  // rank, each rank's columns filled up to a multiple of 64 bytes; in backward its share of a ring
  // all-reduce of dx.
  double ForwardBytes(int rank) const;
  double BackwardBytes() const;
  // Whether a rank has the bits of the undivided layer: all of y and dx, and its rows of the
  // gradients of weight and bias.
  bool HasSameBits(int rank) const;
  // HasSameBits of all ranks, and the traffic of each as the formulas say, and no more.
  bool IsAsExpected() const;
};

// Runs the layer on ranks that are threads of this process. CHECKs the options: 1 or more of each,
// and `out` at least `ranks`.
absl::StatusOr<GatheredLinear> RunGatheredLinear(const GatheredLinearOptions& options);

// Shapes, traffic and comparison, for a terminal.
std::string TextOf(const GatheredLinear& demo);

}  // namespace lockstep
