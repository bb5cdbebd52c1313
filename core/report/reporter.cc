#include "core/report/reporter.h"

#include <filesystem>
#include <system_error>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/report/error_file.h"

namespace lockstep {
namespace {

template <typename File>
absl::StatusOr<File> Opened(const std::string& path, int64_t first_step) {
  return first_step > 0 ? File::Resume(path, first_step) : File::Create(path);
}

}  // namespace

absl::StatusOr<std::unique_ptr<Reporter>> Reporter::Open(RunDescription run, int64_t first_step) {
  LS_ASSIGN_OR_RETURN(LossesCsv losses, Opened<LossesCsv>(run.out + "/losses.csv", first_step));
  LS_ASSIGN_OR_RETURN(MetricsJsonl metrics,
                      Opened<MetricsJsonl>(run.out + "/metrics.jsonl", first_step));
  std::optional<HashesCsv> hashes;
  if (run.settings.hash_every > 0) {
    LS_ASSIGN_OR_RETURN(hashes, Opened<HashesCsv>(run.out + "/hashes.csv", first_step));
  }
  LS_RETURN_IF_ERROR(WriteFileAtomically(run.out + "/config.toml", run.config.ToToml()));
  // The summary of an earlier, shorter run is none of this one, and neither is its error.
  std::error_code ignored;
  std::filesystem::remove(run.out + "/summary.json", ignored);
  RemoveError(run.out);
  return std::unique_ptr<Reporter>(
      new Reporter(std::move(run), std::move(losses), std::move(metrics), std::move(hashes)));
}

Reporter::Reporter(RunDescription run, LossesCsv losses, MetricsJsonl metrics,
                   std::optional<HashesCsv> hashes)
    : run_(std::move(run)),
      losses_(std::move(losses)),
      metrics_(std::move(metrics)),
      hashes_(std::move(hashes)),
      progress_options_(ProgressLine::ForStderr(run_.settings.steps, run_.unit)),
      progress_(progress_options_) {}

void Reporter::Start(const ValidationResult& result) {
  Note(absl::StrFormat("at the start  validation loss %.4f  accuracy %.2f %%", result.loss,
                       100 * result.accuracy));
}

absl::Status Reporter::Step(int64_t step, const StepResult& result, const StepTimes& times,
                            const MemoryBooks& memory) {
  LS_RETURN_IF_ERROR(losses_.Append(step, result.loss));
  const auto seconds = [](int64_t nanos) { return static_cast<double>(nanos) * 1e-9; };
  MetricsRow phases;
  for (int i = 0; i < kPhases; ++i) {
    phases.Set(Name(static_cast<Phase>(i)), seconds(times.phases[i]));
  }
  phases.Set("communication_exposed", seconds(times.communication_exposed));
  phases.Set("communication_overlapped", seconds(times.communication_overlapped));
  MetricsRow row;
  row.Set("loss", result.loss)
      .Set("learning_rate", result.learning_rate)
      .Set("gradient_norm", result.gradient_norm)
      .Set("seconds", seconds(times.total))
      .Set("time", phases)
      .Set("memory_peak", memory.peak_total());
  if (run_.settings.precision.loss_scale.kind != LossScaleOptions::Kind::kNone) {
    row.Set("loss_scale", result.loss_scale).Set("skipped", result.skipped);
  }
  LS_RETURN_IF_ERROR(metrics_.Append(step, row));
  if (result.skipped) {
    Note(absl::StrFormat("step %d  skipped: gradients overflowed under a loss scale of %g",
                         step + 1, result.loss_scale));
  }
  progress_.Update({.number = step + 1,
                    .loss = result.loss,
                    .units = run_.settings.batch.size * run_.units_per_sample,
                    .memory_bytes = memory.peak_total()});
  return absl::OkStatus();
}

void Reporter::Note(const std::string& message) {
  if (progress_options_.is_terminal) progress_.Print(message);
}

absl::Status Reporter::Validation(int64_t step, const ValidationResult& result) {
  Note(absl::StrFormat("step %d  validation loss %.4f  accuracy %.2f %%", step + 1, result.loss,
                       100 * result.accuracy));
  return metrics_.Append(
      step,
      MetricsRow().Set("validation_loss", result.loss).Set("validation_accuracy", result.accuracy));
}

}  // namespace lockstep
