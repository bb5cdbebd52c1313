#include "core/report/reporter.h"

#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/report/error_file.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

double Seconds(int64_t nanos) { return static_cast<double>(nanos) * 1e-9; }

}  // namespace

absl::Status Reporter::Check(const RunDescription& run, int64_t first_step) {
  const auto check = [&](const char* name, const RowFormat& format, EarlierRows earlier) {
    return RowFile::Check(absl::StrCat(run.out, "/", name), format, first_step, earlier);
  };
  LS_RETURN_IF_ERROR(check("losses.csv", kLossesCsv, EarlierRows::kEveryStep));
  LS_RETURN_IF_ERROR(check("metrics.jsonl", kMetricsJsonl, EarlierRows::kOptional));
  if (run.settings.hash_every == 0) return absl::OkStatus();
  return check("hashes.csv", kHashesCsv, EarlierRows::kOptional);
}

absl::StatusOr<std::unique_ptr<Reporter>> Reporter::Open(const RunDescription& run,
                                                         int64_t first_step) {
  const auto open = [&](const char* name, const RowFormat& format) {
    return RowFile::Open(absl::StrCat(run.out, "/", name), format, first_step);
  };
  LS_ASSIGN_OR_RETURN(RowFile losses, open("losses.csv", kLossesCsv));
  LS_ASSIGN_OR_RETURN(RowFile metrics, open("metrics.jsonl", kMetricsJsonl));
  std::optional<RowFile> hashes;
  if (run.settings.hash_every > 0) {
    LS_ASSIGN_OR_RETURN(hashes, open("hashes.csv", kHashesCsv));
  }
  LS_RETURN_IF_ERROR(WriteFileAtomically(run.out + "/config.toml", run.config.ToToml()));
  // The summary of an earlier, shorter run is none of this one, and neither is its error.
  RemoveTree(run.out + "/summary.json");
  RemoveError(run.out);
  return std::unique_ptr<Reporter>(
      new Reporter(run, std::move(losses), std::move(metrics), std::move(hashes)));
}

Reporter::Reporter(const RunDescription& run, RowFile losses, RowFile metrics,
                   std::optional<RowFile> hashes)
    : run_(run),
      losses_(std::move(losses)),
      metrics_(std::move(metrics)),
      hashes_(std::move(hashes)),
      progress_(ProgressLine::ForStderr(run_.settings.steps, run_.unit())) {}

void Reporter::Start(const ValidationResult& result) {
  Note(absl::StrFormat("at the start  validation loss %.4f  accuracy %.2f %%", result.loss,
                       100 * result.accuracy));
}

absl::Status Reporter::Step(int64_t step, const StepResult& result, const StepTimes& times,
                            const MemoryBooks& memory) {
  LS_RETURN_IF_ERROR(losses_.Append(LossPoint{.step = step, .loss = result.loss}.ToRow()));
  nlohmann::ordered_json row = {{"step", step},
                                {"loss", result.loss},
                                {"learning_rate", result.learning_rate},
                                {"gradient_norm", result.gradient_norm},
                                {"seconds", Seconds(times.total)}};
  for (const auto& [name, nanos] : times.ByName()) row["time"][name] = Seconds(nanos);
  row["memory_peak"] = memory.peak_total();
  if (run_.settings.precision.scales_losses()) {
    row["loss_scale"] = result.loss_scale;
    row["skipped"] = result.skipped;
  }
  for (const ExpertLoadOfLayer& load : result.expert_load) {
    // Millionths are enough to look at, and short.
    nlohmann::ordered_json& fractions = row["expert_load"][load.layer];
    for (const float fraction : load.fractions) {
      fractions.push_back(std::round(1e6 * static_cast<double>(fraction)) / 1e6);
    }
  }
  LS_RETURN_IF_ERROR(metrics_.Append(row.dump()));
  if (result.skipped) {
    Note(absl::StrFormat("step %d  skipped: gradients overflowed under a loss scale of %g",
                         step + 1, result.loss_scale));
  }
  progress_.Update({.number = step + 1,
                    .loss = result.loss,
                    .units = run_.units_per_step(),
                    .memory_bytes = memory.peak_total()});
  return absl::OkStatus();
}

absl::Status Reporter::Sync() {
  LS_RETURN_IF_ERROR(losses_.Sync());
  LS_RETURN_IF_ERROR(metrics_.Sync());
  return hashes_ ? hashes_->Sync() : absl::OkStatus();
}

void Reporter::Note(const std::string& message) {
  if (progress_.is_terminal()) progress_.Print(message);
}

absl::Status Reporter::Checkpoint(int64_t step, int64_t steps, const CheckpointCosts& costs) {
  const nlohmann::ordered_json row = {{"step", step},
                                      {"checkpoint",
                                       {{"steps", steps},
                                        {"copied_bytes", costs.bytes},
                                        {"held_seconds", Seconds(costs.held_nanos)},
                                        {"waited_seconds", Seconds(costs.waited_nanos)},
                                        {"written_seconds", Seconds(costs.written_nanos)}}}};
  return metrics_.Append(row.dump());
}

absl::Status Reporter::Validation(int64_t step, const ValidationResult& result) {
  Note(absl::StrFormat("step %d  validation loss %.4f  accuracy %.2f %%", step + 1, result.loss,
                       100 * result.accuracy));
  const nlohmann::ordered_json row = {
      {"step", step}, {"validation_loss", result.loss}, {"validation_accuracy", result.accuracy}};
  return metrics_.Append(row.dump());
}

}  // namespace lockstep
