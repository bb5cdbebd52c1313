#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/report/metrics.h"
#include "tools/curve/loss_band.h"
#include "tools/report/report.h"

namespace lockstep {

// A curve to place, and what a report calls it.
struct NamedCurve {
  std::string name;
  std::vector<LossPoint> losses = {};
};

// Reads the losses of a run directory, or of a file with the columns of losses.csv.
absl::StatusOr<NamedCurve> ReadNamedCurve(const std::string& path);

// The size of a band at some of its steps, as a table.
Table BandTable(const LossBand& band);

// Where the curves lie in the band: a line for each, "inside" or "outside from step s", and a chart
// of their distance from the band's mean in spreads beside the band's limit. InvalidArgument, with
// the curve's name, for one that has none of the band's steps. `id` is the chart's.
absl::StatusOr<Section> BandSection(const LossBand& band, const std::vector<NamedCurve>& curves,
                                    const std::string& id = "band");

}  // namespace lockstep
