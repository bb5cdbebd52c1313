#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "tools/curve/band_report.h"
#include "tools/curve/loss_band.h"
#include "tools/experiment/run_record.h"

namespace lockstep {

struct ShowOptions {
  std::string html = {};     // where the page goes; empty: see ShowComparison
  bool pictures = false;     // the page and each chart as PNG files too, beside it
  bool tensorboard = false;  // the loss curves as event files too (loss_events.h), beside it
  // The band that the losses of the runs of its workload are placed in, and losses of other
  // programs beside them.
  std::optional<LossBand> band = {};
  std::vector<NamedCurve> foreign = {};
};

// Compares the runs: prints the report, writes the page, and says where it is: by default
// comparison.html in the deepest directory that all runs are in, or beside the first file of
// another program's losses where there are no runs. InvalidArgument where nothing is of the band's
// workload.
absl::Status ShowComparison(const std::vector<RunRecord>& runs, const ShowOptions& options);

}  // namespace lockstep
