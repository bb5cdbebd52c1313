#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/config/command_line.h"

namespace lockstep {

// A measured step of a GPT model, as vTrain's files have them (Bang et al., MICRO 2024).
struct MeasuredRow {
  std::string name;  // "line 3: 8 GPUs, tp 2, dp 2, pp 2, micro-batch 4"
  int64_t gpus = 1, batch = 1, micro_batch = 1;
  int64_t width = 1, heads = 1, layers = 1, context = 1;
  int64_t tp = 1, dp = 1, pp = 1;
  double seconds = 0;

  // Rows of equal groups differ in the mesh alone, the micro-batch included.
  std::vector<int64_t> Group() const { return {gpus, batch, layers, width, heads, context}; }
  std::string GroupName() const;  // "8 GPUs, batch 32, 24 x 1024, 16 heads, sequence 512"
  std::string MeshName() const;   // "tp 2, dp 2, pp 2, micro-batch 4"
};

// Reads a CSV file whose first line names the columns, in any order and beside others: "# GPUs",
// "global batch", "micro batch", "hidden size", "attention heads", "# layers", "sequence length",
// "tensor parallelism", "data parallelism", "pipeline parallelism", "iteration time (ms)".
// InvalidArgument, with the file, names all columns that are missing, or the line and cell that is
// no number above zero, or a mesh that is not of so many GPUs, or does not divide batch or layers.
absl::StatusOr<std::vector<MeasuredRow>> ReadMeasuredRows(const std::string& path);

// A run of Lockstep that trains the row's model on its mesh: workloads/measured_gpt.toml, whose
// vocabulary has 51,200 words, with the layers even among stages. `settings`: "key=value", laid
// over it.
CommandLine RunOf(const MeasuredRow& row, const std::vector<std::string>& settings,
                  int64_t stages_per_rank = 1);

}  // namespace lockstep
