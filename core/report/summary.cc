#include "core/report/summary.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <ranges>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/report/chrome_trace.h"
#include "core/report/metrics.h"

namespace lockstep {
namespace {

// Bytes of a class: what the strategy predicts (negative: no prediction), and the largest peak of
// any rank.
struct MemoryRow {
  MemoryClass memory_class;
  int64_t predicted = -1;
  int64_t measured = 0;
};

std::vector<MemoryRow> MemoryRows(const std::vector<RankReport>& reports) {
  std::vector<MemoryRow> rows;
  for (int i = 0; i < kMemoryClasses; ++i) {
    MemoryRow row = {.memory_class = static_cast<MemoryClass>(i)};
    for (const RankReport& report : reports) {
      row.measured = std::max(row.measured, report.memory.peak(row.memory_class));
      for (const CostPrediction::Memory& memory : report.prediction.memory) {
        if (memory.memory_class == row.memory_class) {
          row.predicted = std::max(row.predicted, memory.bytes);
        }
      }
    }
    rows.push_back(row);
  }
  return rows;
}

// Bytes that a rank sends for one purpose, in a step or once in the run, the most of any rank.
struct TrafficRow {
  std::string operation, label;
  CostPrediction::Often often = CostPrediction::Often::kEachStep;
  double predicted = 0;
  double measured = 0;
};

std::vector<TrafficRow> TrafficRows(const std::vector<RankReport>& reports) {
  std::vector<TrafficRow> rows;
  const auto row_of = [&rows](Operation operation, const std::string& label) -> TrafficRow& {
    for (TrafficRow& row : rows) {
      if (row.operation == Name(operation) && row.label == label) return row;
    }
    rows.push_back({.operation = Name(operation), .label = label});
    return rows.back();
  };
  for (const RankReport& report : reports) {
    for (const CostPrediction::Traffic& traffic : report.prediction.traffic) {
      TrafficRow& row = row_of(traffic.operation, traffic.label);
      row.predicted = std::max(row.predicted, traffic.wire_bytes);
      row.often = traffic.often;
    }
  }
  for (const RankReport& report : reports) {
    for (const auto& [kind, total] : report.traffic.by_kind) {
      TrafficRow& row = row_of(kind.first, kind.second);
      const int64_t times = row.often == CostPrediction::Often::kOnce ? 1 : report.steps;
      row.measured = std::max(row.measured,
                              total.wire_bytes / static_cast<double>(std::max<int64_t>(1, times)));
    }
  }
  // Such as receiving, and groups of one rank.
  std::erase_if(rows,
                [](const TrafficRow& row) { return row.predicted == 0 && row.measured == 0; });
  return rows;
}

// What share of its steps a rank waits for other stages.
double MeasuredBubble(const RankReport& report) {
  if (report.times.total == 0) return 0;
  return static_cast<double>(report.times.Of(Phase::kBubble)) /
         static_cast<double>(report.times.total);
}

// The same, over all ranks: what part of their time together is lost. Both 0 where there are no
// stages.
struct Bubble {
  double predicted = 0;
  double measured = 0;
};

Bubble MeanBubble(const std::vector<RankReport>& reports) {
  Bubble sum;
  for (const RankReport& report : reports) {
    sum.predicted += report.prediction.bubble_fraction;
    sum.measured += MeasuredBubble(report);
  }
  const auto ranks = static_cast<double>(reports.size());
  return {sum.predicted / ranks, sum.measured / ranks};
}

MetricsRow BubbleRow(const Bubble& bubble) {
  return MetricsRow().Set("predicted", bubble.predicted).Set("measured", bubble.measured);
}

// Not a number when no step was left to run.
double LastLoss(const RankReport& report) {
  return report.losses.empty() ? std::nan("") : report.losses.back();
}

double PerStep(const RankReport& report, int64_t nanos) {
  return static_cast<double>(nanos) * 1e-9 /
         static_cast<double>(std::max<int64_t>(1, report.measured_steps));
}

MetricsRow TimeRow(const RankReport& report) {
  MetricsRow row;
  for (int i = 0; i < kPhases; ++i) {
    row.Set(Name(static_cast<Phase>(i)), PerStep(report, report.times.phases[i]));
  }
  row.Set("communication_exposed", PerStep(report, report.times.communication_exposed));
  row.Set("communication_overlapped", PerStep(report, report.times.communication_overlapped));
  return row;
}

// The slowest rank's: a step is over when all have ended.
double StepSeconds(const std::vector<RankReport>& reports) {
  return std::ranges::max(reports | std::views::transform(&RankReport::median_step_seconds));
}

double UnitsPerSecond(const RunDescription& run, const std::vector<RankReport>& reports) {
  const double seconds = StepSeconds(reports);
  return seconds > 0 ? static_cast<double>(run.settings.batch.size * run.units_per_sample) / seconds
                     : 0;
}

bool ScalesLosses(const RunDescription& run) {
  return run.settings.precision.loss_scale.kind != LossScaleOptions::Kind::kNone;
}

// Returns the bytes of the newest checkpoint, or 0 where the run keeps none.
int64_t BytesOfCheckpoint(const RunDescription& run) {
  const auto newest = NewestCheckpoint(run.checkpoints);
  if (!newest.ok() || !*newest) return 0;
  return CheckpointBytes(**newest).value_or(0);
}

// What the ranks compute with.
std::string_view InstructionsOf(const RunDescription& run) {
  return run.device == DeviceType::kCpu ? Name(run.settings.instructions) : "CUDA";
}

MetricsRow SummaryRow(const RunDescription& run, const std::vector<RankReport>& reports) {
  const RankReport& first = reports[0];
  MetricsRow memory, traffic, traffic_once;
  for (const MemoryRow& row : MemoryRows(reports)) {
    MetricsRow entry;
    if (row.predicted >= 0) entry.Set("predicted", row.predicted);
    memory.Set(Name(row.memory_class), entry.Set("measured", row.measured));
  }
  for (const TrafficRow& row : TrafficRows(reports)) {
    MetricsRow& rows = row.often == CostPrediction::Often::kOnce ? traffic_once : traffic;
    rows.Set(absl::StrCat(row.operation, " ", row.label),
             MetricsRow().Set("predicted", row.predicted).Set("measured", row.measured));
  }
  int64_t peak = 0;
  std::vector<MetricsRow> ranks;
  for (const RankReport& report : reports) {
    peak = std::max(peak, report.memory.peak_total());
    MetricsRow at_peak;
    for (int i = 0; i < kMemoryClasses; ++i) {
      const auto memory_class = static_cast<MemoryClass>(i);
      at_peak.Set(Name(memory_class), report.memory.at_peak(memory_class));
    }
    ranks.push_back(MetricsRow()
                        .Set("time", TimeRow(report))
                        .Set("bubble_fraction",
                             BubbleRow({report.prediction.bubble_fraction, MeasuredBubble(report)}))
                        .Set("memory_peak", report.memory.peak_total())
                        .Set("memory_at_peak", at_peak));
  }
  MetricsRow per_parameter;
  for (const CostPrediction::PerParameter& part : first.prediction.per_parameter) {
    per_parameter.Set(part.what, part.bytes);
  }
  MetricsRow row;
  row.Set("workload", run.workload)
      .Set("strategy", run.strategy)
      .Set("mesh", run.settings.mesh.ToString())
      .Set("ranks", run.settings.mesh.ranks())
      .Set("shards", run.settings.cut.shards)
      .Set("tokens", run.settings.cut.tokens)
      .Set("features", run.settings.cut.features)
      .Set("micro_batches", run.settings.cut.micro_batches)
      .Set("steps", run.settings.steps)
      .Set("config", run.config.Fingerprint())
      .Set("parameters", run.parameters)
      .Set("trained_parameters", run.trained_parameters)
      .Set("loss", LastLoss(first))
      .Set("validation_loss", first.validation.loss)
      .Set("validation_accuracy", first.validation.accuracy)
      .Set("parameter_hash", first.parameter_hash)
      .Set("step_seconds", StepSeconds(reports))
      .Set(run.unit + "_per_second", UnitsPerSecond(run, reports))
      .Set("memory_peak", peak)
      .Set("memory", memory)
      .Set("instructions", InstructionsOf(run))
      .Set("compute", Name(run.settings.precision.compute))
      .Set("reduce", Name(run.settings.precision.reduce))
      .Set("bytes_per_parameter", per_parameter)
      .Set("traffic_bytes_per_step", traffic)
      .Set("traffic_bytes_once", traffic_once)
      .Set("bubble_fraction", BubbleRow(MeanBubble(reports)))
      .Set("per_rank", ranks);
  if (const auto& start = first.validation_at_start) {
    row.Set("validation_at_start",
            MetricsRow().Set("loss", start->loss).Set("accuracy", start->accuracy));
  }
  if (const int64_t bytes = BytesOfCheckpoint(run); bytes > 0) row.Set("checkpoint_bytes", bytes);
  if (ScalesLosses(run)) {
    row.Set("loss_scale", first.loss_scale).Set("skipped_steps", first.skipped_steps);
  }
  if (const auto rate = run.entropy_rate) row.Set("entropy_rate", *rate);
  if (const auto floor = run.loss_floor) row.Set("loss_floor", *floor);
  return row;
}

std::string BubbleText(const std::vector<RankReport>& reports) {
  std::string text = absl::StrFormat("  %-32s %14s %14s\n", "share of a step spent waiting",
                                     "predicted", "measured");
  const auto add = [&text](const std::string& whose, const Bubble& bubble) {
    absl::StrAppendFormat(&text, "    %-30s %12.1f %% %12.1f %%\n", whose, 100 * bubble.predicted,
                          100 * bubble.measured);
  };
  for (size_t rank = 0; rank < reports.size(); ++rank) {
    add(absl::StrCat("rank ", rank),
        {reports[rank].prediction.bubble_fraction, MeasuredBubble(reports[rank])});
  }
  add("all together", MeanBubble(reports));
  return text;
}

std::string TrafficText(const std::vector<TrafficRow>& rows) {
  std::string text;
  for (const auto& [often, title] :
       {std::pair(CostPrediction::Often::kEachStep, "sent by a rank in a step"),
        std::pair(CostPrediction::Often::kOnce, "sent by a rank in the first one")}) {
    bool is_first = true;
    for (const TrafficRow& row : rows) {
      if (row.often != often) continue;
      if (std::exchange(is_first, false)) {
        absl::StrAppendFormat(&text, "  %-32s %14s %14s\n", title, "predicted", "measured");
      }
      absl::StrAppendFormat(&text, "    %-30s %14.0f %14.0f\n",
                            absl::StrCat(row.operation, " ", row.label), row.predicted,
                            row.measured);
    }
  }
  return text;
}

std::string CutText(const CutSettings& cut) {
  const auto leaves = [](int64_t count, const char* what, bool are_of_mesh) {
    return absl::StrCat(count == 1 ? "" : absl::StrCat("; ", count, " ", what, " leaves"),
                        are_of_mesh ? ", as the mesh says" : "");
  };
  return absl::StrCat("cut: ", cut.shards, cut.shards == 1 ? " shard" : " shards",
                      cut.shards_are_of_mesh ? ", as the mesh says, not [cut]" : "", "; ",
                      cut.micro_batches,
                      cut.micro_batches == 1 ? " micro-batch each" : " micro-batches each",
                      leaves(cut.tokens, "token", cut.tokens_are_of_mesh),
                      leaves(cut.features, "feature", cut.features_are_of_mesh));
}

std::string SummaryText(const RunDescription& run, const std::vector<RankReport>& reports) {
  const RankReport& first = reports[0];
  std::string text = absl::StrFormat(
      "%s  %s  %s\n"
      "  loss %.6f   validation loss %.4f   accuracy %.2f %%\n"
      "  step %s   %s %s/s   %s\n",
      run.workload, run.strategy, run.settings.mesh.ToString(), LastLoss(first),
      first.validation.loss, 100 * first.validation.accuracy, FormatDuration(StepSeconds(reports)),
      FormatCount(static_cast<int64_t>(UnitsPerSecond(run, reports))), run.unit,
      InstructionsOf(run));
  absl::StrAppend(&text, "  ", CutText(run.settings.cut), "\n");
  if (const auto& start = first.validation_at_start) {
    absl::StrAppendFormat(&text, "  at the start: validation loss %.4f   accuracy %.2f %%\n",
                          start->loss, 100 * start->accuracy);
  }
  if (run.trained_parameters < run.parameters) {
    absl::StrAppend(&text, "  trains ", FormatCount(run.trained_parameters), " of ",
                    FormatCount(run.parameters), " parameters   checkpoint ",
                    FormatBytes(BytesOfCheckpoint(run)), "\n");
  }
  if (run.settings.mesh.divided_axes() > 1) text += run.settings.mesh.Grid();
  if (const auto floor = run.loss_floor) {
    absl::StrAppendFormat(&text, "  floor of the loss %.4f, entropy rate %.4f\n", *floor,
                          run.entropy_rate.value_or(*floor));
  }
  if (ScalesLosses(run)) {
    absl::StrAppendFormat(&text, "  loss scale %g, %d steps skipped\n", first.loss_scale,
                          first.skipped_steps);
  }
  absl::StrAppendFormat(&text, "  time of a step, rank 0:");
  for (int i = 0; i < kPhases; ++i) {
    const auto phase = static_cast<Phase>(i);
    absl::StrAppend(&text, "  ", Name(phase), " ",
                    FormatDuration(PerStep(first, first.times.Of(phase))));
  }
  absl::StrAppend(&text, "  communication ",
                  FormatDuration(PerStep(first, first.times.communication_exposed)), " exposed, ",
                  FormatDuration(PerStep(first, first.times.communication_overlapped)),
                  " overlapped\n");
  absl::StrAppendFormat(&text, "  %-32s %14s %14s\n", "memory of a rank", "predicted", "measured");
  for (const MemoryRow& row : MemoryRows(reports)) {
    absl::StrAppendFormat(&text, "    %-30s %14s %14s\n", Name(row.memory_class),
                          row.predicted < 0 ? "-" : FormatBytes(row.predicted),
                          FormatBytes(row.measured));
  }
  absl::StrAppend(&text, "  bytes for each parameter:");
  double bytes = 0;
  for (const CostPrediction::PerParameter& part : first.prediction.per_parameter) {
    absl::StrAppendFormat(&text, "  %s %g", part.what, part.bytes);
    bytes += part.bytes;
  }
  absl::StrAppendFormat(&text, "  together %g\n", bytes);
  if (run.settings.mesh.pp > 1) text += BubbleText(reports);
  text += TrafficText(TrafficRows(reports));
  return text;
}

}  // namespace

absl::Status WriteRunSummary(const RunDescription& run, const std::vector<RankReport>& reports) {
  LS_RETURN_IF_ERROR(WriteSummary(run.out + "/summary.json", SummaryRow(run, reports)));
  std::vector<const Trace*> traces;
  for (const RankReport& report : reports) traces.push_back(report.trace.get());
  LS_RETURN_IF_ERROR(WriteChromeTrace(run.out + "/trace.json", traces));
  std::fputs((SummaryText(run, reports) + "  " + run.out + "\n").c_str(), stdout);
  return absl::OkStatus();
}

}  // namespace lockstep
