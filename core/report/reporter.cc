#include "core/report/reporter.h"

#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/config/config.h"
#include "core/report/banner.h"
#include "core/report/earlier_attempt.h"
#include "core/report/error_file.h"
#include "core/report/step_csv.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Changes = std::vector<Config::Difference>;

double Seconds(int64_t nanos) { return static_cast<double>(nanos) * 1e-9; }

// Files of a run that grow by rows, in its directory; without hashes.csv where it has no hashes.
std::vector<NamedRows> RowsOf(const RunDescription& run) {
  std::vector<NamedRows> rows = {{.name = "losses.csv", .format = &kLossesCsv},
                                 {.name = "steps.csv", .format = &kStepsCsv},
                                 {.name = "metrics.jsonl", .format = &kMetricsJsonl}};
  if (run.settings.hash_every > 0) rows.push_back({.name = "hashes.csv", .format = &kHashesCsv});
  return rows;
}

}  // namespace

absl::Status Reporter::Check(const RunDescription& run, int64_t first_step) {
  const std::vector<NamedRows> files = RowsOf(run);
  for (const NamedRows& rows : files) {
    const bool needs_all = rows.format == &kLossesCsv;
    LS_RETURN_IF_ERROR(
        RowFile::Check(absl::StrCat(run.out, "/", rows.name), *rows.format, first_step,
                       needs_all ? EarlierRows::kEveryStep : EarlierRows::kOptional));
  }
  return RowChecksums::Check(run.out, files, first_step);
}

absl::StatusOr<std::unique_ptr<Reporter>> Reporter::Open(const RunDescription& run,
                                                         int64_t first_step,
                                                         const std::string& from) {
  const auto open = [&](const char* name, const RowFormat& format) {
    return RowFile::Open(absl::StrCat(run.out, "/", name), format, first_step);
  };
  const std::string config = run.written_config().ToToml();
  LS_RETURN_IF_ERROR(KeepEarlierAttempt(run.out, config, RowsOf(run), first_step));
  const std::string config_path = run.out + "/config.toml";
  const absl::StatusOr<Config> before = Config::FromFile(config_path);
  // Syncs the directory too, and with it what was kept: before any row is cut.
  LS_RETURN_IF_ERROR(WriteFileAtomically(config_path, config));
  RowChecksums checksums(run.out, RowsOf(run), first_step);
  LS_RETURN_IF_ERROR(checksums.Cut());  // before the rows that they are of
  LS_ASSIGN_OR_RETURN(RowFile losses, open("losses.csv", kLossesCsv));
  LS_ASSIGN_OR_RETURN(RowFile steps, open("steps.csv", kStepsCsv));
  LS_ASSIGN_OR_RETURN(RowFile metrics, open("metrics.jsonl", kMetricsJsonl));
  Files files = {
      .losses = std::move(losses), .steps = std::move(steps), .metrics = std::move(metrics)};
  if (run.settings.hash_every > 0) {
    LS_ASSIGN_OR_RETURN(files.hashes, open("hashes.csv", kHashesCsv));
  }
  if (run.settings.tensorboard) {
    LS_ASSIGN_OR_RETURN(files.events, EventFile::Make(run.out + "/tensorboard", first_step));
  }
  // The summary of an earlier, shorter run is none of this one, and neither is its error.
  RemoveTree(run.out + "/summary.json");
  RemoveError(run.out);
  auto reporter =
      std::unique_ptr<Reporter>(new Reporter(run, std::move(files), std::move(checksums)));
  if (run.speaks) {
    reporter->progress_.Print(
        Banner(run, first_step, from,
               before.ok() ? run.written_config().Differences(*before) : Changes()));
  }
  return reporter;
}

Reporter::Reporter(const RunDescription& run, Files files, RowChecksums checksums)
    : run_(run),
      files_(std::move(files)),
      checksums_(std::move(checksums)),
      progress_(ProgressLine::ForStderr(run_.settings.steps, run_.unit(),
                                        run_.speaks ? ProgressLine::kLineNanos : 0)) {}

absl::Status Reporter::Show(int64_t step, const EventFile::Scalars& scalars) {
  return files_.events ? files_.events->Append(step, scalars) : absl::OkStatus();
}

void Reporter::Start(const ValidationResult& result) {
  Note(absl::StrFormat("at the start  validation loss %.4f  accuracy %.2f %%", result.loss,
                       100 * result.accuracy));
}

absl::Status Reporter::Step(int64_t step, const StepResult& result, const StepTimes& times,
                            const MemoryBooks& memory) {
  LS_RETURN_IF_ERROR(files_.losses.Append(LossPoint{.step = step, .loss = result.loss}.ToRow()));
  LS_RETURN_IF_ERROR(files_.steps.Append(StepRow(step, result)));
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
  LS_RETURN_IF_ERROR(files_.metrics.Append(row.dump()));
  LS_RETURN_IF_ERROR(Show(step, {{"train/loss", result.loss},
                                 {"train/learning_rate", result.learning_rate},
                                 {"train/gradient_norm", result.gradient_norm},
                                 {"train/seconds", Seconds(times.total)},
                                 {"train/memory_peak", static_cast<double>(memory.peak_total())}}));
  if (result.skipped) {
    Note(absl::StrFormat("step %d  skipped: gradients overflowed under a loss scale of %g",
                         step + 1, result.loss_scale));
  }
  progress_.Update({.number = step + 1,
                    .loss = result.loss,
                    .learning_rate = result.learning_rate,
                    .gradient_norm = result.gradient_norm,
                    .units = run_.units_per_step(),
                    .memory_bytes = memory.peak_total()});
  return absl::OkStatus();
}

absl::Status Reporter::SyncRows() {
  LS_RETURN_IF_ERROR(files_.losses.Sync());
  LS_RETURN_IF_ERROR(files_.steps.Sync());
  LS_RETURN_IF_ERROR(files_.metrics.Sync());
  return files_.hashes ? files_.hashes->Sync() : absl::OkStatus();
}

absl::Status Reporter::Sync(int64_t steps) {
  LS_RETURN_IF_ERROR(SyncRows());
  if (files_.events) LS_RETURN_IF_ERROR(files_.events->Sync());
  const std::lock_guard lock(checksums_mutex_);
  return checksums_.Add(steps);
}

void Reporter::Note(const std::string& message) {
  if (progress_.is_terminal()) progress_.Print(message);
}

absl::Status Reporter::Change(const MeshChange& change) {
  Note(absl::StrFormat("step %d  %s -> %s  %s  %s sent", change.steps, change.from, change.to,
                       FormatDuration(change.seconds), FormatBytes(change.sent_bytes)));
  const nlohmann::ordered_json row = {{"step", change.steps - 1},
                                      {"change_from", change.from},
                                      {"change_to", change.to},
                                      {"change_seconds", change.seconds},
                                      {"change_bytes", change.sent_bytes}};
  return files_.metrics.Append(row.dump());
}

absl::Status Reporter::Slow(const Straggler& straggler) {
  Note(absl::StrFormat("step %d  rank %d is slow: %.1f times the others' time, most of it in %s",
                       straggler.step + 1, straggler.rank, straggler.factor, Name(straggler.part)));
  return files_.metrics.Append(straggler.ToRow());
}

absl::Status Reporter::Checkpoint(int64_t step, int64_t steps, const CheckpointCosts& costs) {
  const nlohmann::ordered_json row = {{"step", step},
                                      {"checkpoint",
                                       {{"steps", steps},
                                        {"copied_bytes", costs.bytes},
                                        {"held_seconds", Seconds(costs.held_nanos)},
                                        {"waited_seconds", Seconds(costs.waited_nanos)},
                                        {"written_seconds", Seconds(costs.written_nanos)}}}};
  return files_.metrics.Append(row.dump());
}

absl::Status Reporter::Copy(int64_t steps, double seconds, int64_t bytes) {
  const nlohmann::ordered_json row = {
      {"step", steps - 1},
      {"copy_in_memory", {{"steps", steps}, {"bytes", bytes}, {"seconds", seconds}}}};
  return files_.metrics.Append(row.dump());
}

absl::Status Reporter::Validation(int64_t step, const ValidationResult& result) {
  Note(absl::StrFormat("step %d  validation loss %.4f  accuracy %.2f %%", step + 1, result.loss,
                       100 * result.accuracy));
  const nlohmann::ordered_json row = {
      {"step", step}, {"validation_loss", result.loss}, {"validation_accuracy", result.accuracy}};
  LS_RETURN_IF_ERROR(files_.metrics.Append(row.dump()));
  return Show(step, {{"validation/loss", result.loss}, {"validation/accuracy", result.accuracy}});
}

}  // namespace lockstep
