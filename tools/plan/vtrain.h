// vTrain's rows (Bang et al., MICRO 2024; tools/plan/measured), and what was fitted to them.

#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "tools/plan/fit.h"
#include "tools/plan/held_to.h"

namespace lockstep {

// 720 steps on one node and 54 on many, each with its dialect.
struct VtrainRows {
  Dialect one_node_dialect, many_nodes_dialect;
  RecordedRows one_node, many_nodes;

  // Both files, with the weight that a row of each has in a fit. They refer to the rows.
  std::vector<FitRows> ToFit() const;
};
// Reads and records them all, in about a minute.
absl::StatusOr<VtrainRows> ReadVtrainRows(const Cluster& cluster);

// What was fitted of the cluster a100_80g and of the two dialects, within bounds that exceed no
// data sheet.
const std::vector<FitParameter>& VtrainParameters();

// Returns the numbers, by name, that were fitted to every other row of both files: to those of
// ChooseRows(0, 2), then to those of ChooseRows(1, 2). From tools/plan/measured/halves.toml,
// because the fits take minutes.
absl::StatusOr<std::array<std::map<std::string, double>, 2>> VtrainHalves();

}  // namespace lockstep
