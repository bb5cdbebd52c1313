// Steps that papers report, as rows that the planner is held to.

#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "tools/plan/held_to.h"

namespace lockstep {

// Rows of a paper and the seconds that are predicted of them.
struct PublishedSteps {
  Dialect dialect;
  RecordedRows recorded;
  std::vector<double> predicted;  // by row

  Judgement Judged() const { return Judge(recorded.rows, predicted); }
};

// Selene, on which the papers measured: the cluster a100_80g with eight HDR adapters a node (NVIDIA
// DGX A100 SuperPOD reference architecture), each device with its own.
absl::StatusOr<Cluster> Selene();

// Korthikanti et al. 2022, Table 5: steps of four models with all of a layer recomputed, and with
// sequence parallelism and attention recomputed.
absl::StatusOr<PublishedSteps> ActivationRecomputation(const Cluster& cluster);
// Those again but 175B and 1T in full recomputation, to which the efficiency of large products is
// fitted anew.
absl::StatusOr<PublishedSteps> RefittedToTwo(const PublishedSteps& steps, const Cluster& cluster);

// Memory that a paper reports and what is predicted, of layers alone, on the first stage's devices.
struct PublishedMemory {
  std::string name;                     // "22B, activations, selective recomputation"
  double predicted = 0, published = 0;  // bytes

  double error() const { return predicted / published - 1; }
};

// Korthikanti et al. 2022, Table 3 and Figure 7: of the same four models, the parameters and the
// optimizer's state, and the activations without and with sequence parallelism and recomputation.
// Recording 530B or 1T once takes some two seconds.
enum class ReportedMemory {
  kAll,
  kFewOfLargest,  // for 530B and 1T sequence parallelism and selective recomputation together only
};
absl::StatusOr<std::vector<PublishedMemory>> ActivationMemory(const Cluster& cluster,
                                                              ReportedMemory reported);

// Narayanan et al. 2021, Table 1: TFLOP/s a GPU of ten models. The paper's table has no
// micro-batches: each row takes the fastest that fits. Its schedules are taken not to be
// interleaved.
absl::StatusOr<PublishedSteps> EfficientLargeScaleTraining(const Cluster& cluster);

}  // namespace lockstep
