#include "tools/compare/references.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "tools/compare/comparison.h"

namespace lockstep {
namespace {

// The run with the sums of `record`: "gpt_markov/single_1x2", of feature leaves "..._1x2_f4".
PlannedRun CutAs(const RunRecord& record, const PlannedRun& alone) {
  PlannedRun run = alone;
  absl::StrAppend(&run.name, "_", record.shards, "x", record.micro_batches,
                  record.tokens > 1 ? absl::StrCat("_t", record.tokens) : "",
                  record.features > 1 ? absl::StrCat("_f", record.features) : "");
  for (const auto& [key, value] :
       {std::pair("shards", record.shards), std::pair("micro_batches", record.micro_batches),
        std::pair("tokens", record.tokens), std::pair("features", record.features)}) {
    run.arguments.insert(run.arguments.end(), {"--set", absl::StrCat("cut.", key, "=", value)});
  }
  return run;
}

}  // namespace

std::vector<PlannedRun> MissingReferences(const std::vector<PlannedRun>& runs,
                                          const std::vector<RunRecord>& records) {
  std::vector<PlannedRun> missing;
  for (const RunRecord& record : records) {
    if (!record.complete() || FindReference(record, records) != nullptr) continue;
    const auto alone = std::ranges::find_if(
        records, [&record](const RunRecord& other) { return IsAlone(other, record); });
    if (alone == records.end()) continue;
    PlannedRun reference = CutAs(record, runs[alone - records.begin()]);
    if (std::ranges::find(missing, reference.name, &PlannedRun::name) == missing.end()) {
      missing.push_back(std::move(reference));
    }
  }
  return missing;
}

}  // namespace lockstep
