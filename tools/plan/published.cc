#include "tools/plan/published.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "foresight/network_time.h"
#include "foresight/recorded_run.h"
#include "foresight/shipped.h"
#include "foresight/step_time.h"
#include "models/models.h"
#include "strategies/engine/preset.h"
#include "tools/plan/fit.h"
#include "tools/plan/measured_rows.h"

namespace lockstep {
namespace {

absl::StatusOr<Dialect> ShippedDialect(const char* name) {
  return Dialect::Read(ShippedPath("foresight/dialects", name));
}

absl::StatusOr<StepTime> Record(const MeasuredRow& row, const std::vector<std::string>& settings,
                                int64_t stages_per_rank, const Dialect& dialect,
                                const Cluster& cluster) {
  LS_ASSIGN_OR_RETURN(RecordedRun run, RecordRun(RunOf(row, settings, stages_per_rank),
                                                 EnginePreset("plan", {}), MakeModel));
  return StepTime::Create(std::make_shared<const RecordedRun>(std::move(run)), dialect, cluster);
}

MeasuredRow Row(const std::string& name, int64_t layers, int64_t width, int64_t heads, int64_t tp,
                int64_t pp, int64_t dp, int64_t batch) {
  MeasuredRow row;
  row.name = name;
  row.gpus = tp * pp * dp;
  row.batch = batch;
  row.width = width;
  row.heads = heads;
  row.layers = layers;
  row.context = 2048;
  row.tp = tp;
  row.pp = pp;
  row.dp = dp;
  return row;
}

// A model of Korthikanti et al. 2022 and what the paper's Tables 3 and 5 and Figure 7 report of it.
struct RecomputationModel {
  const char* name;
  int64_t layers, width, heads, pp, stages_per_rank, batch, micro_batch;
  double full_seconds, selective_seconds;
  double state, activations;  // GiB; without recomputation and sequence parallelism
  // Activations in % of these. `both`: with sequence parallelism and selective recomputation.
  double sequence_parallel, selective, both, full;

  MeasuredRow Row() const {
    MeasuredRow row = lockstep::Row(name, layers, width, heads, 8, pp, 1, batch);
    row.micro_batch = micro_batch;
    return row;
  }
};
constexpr RecomputationModel kRecomputationModels[] = {
    {"22B", 48, 6144, 64, 1, 1, 4, 4, 1.42, 1.10, 45.56, 59.25, 66.84, 49.42, 16.18, 7.64},
    {"175B", 96, 12288, 96, 8, 3, 64, 1, 18.13, 13.75, 45.56, 66.84, 62.04, 56.53, 18.49, 8.71},
    {"530B", 105, 20480, 128, 35, 3, 280, 1, 49.05, 37.83, 31.64, 114.02, 58.31, 62.04, 20.27,
     9.42},
    {"1T", 128, 25600, 160, 64, 1, 512, 1, 94.42, 71.49, 32.96, 131.25, 58.31, 62.04, 20.27, 9.42}};

constexpr char kSequenceParallel[] = "tensor_parallel.sequence_parallel=true";
constexpr char kSelective[] = "recompute.operations=['attention']";
constexpr char kFull[] = "recompute.blocks=['blocks.*']";

}  // namespace

absl::StatusOr<Cluster> Selene() {
  LS_ASSIGN_OR_RETURN(Cluster cluster, ReadCluster(ShippedPath("foresight/clusters", "a100_80g")));
  cluster.network.bandwidth = 200e9;
  cluster.network.adapters = 8;
  return cluster;
}

absl::StatusOr<PublishedSteps> ActivationRecomputation(const Cluster& cluster) {
  PublishedSteps steps;
  LS_ASSIGN_OR_RETURN(steps.dialect, ShippedDialect("megatron_2022"));
  for (const RecomputationModel& model : kRecomputationModels) {
    for (const bool is_full : {true, false}) {
      MeasuredRow row = model.Row();
      row.name += is_full ? ", full" : ", selective";
      row.seconds = is_full ? model.full_seconds : model.selective_seconds;
      const std::vector<std::string> settings =
          is_full ? std::vector<std::string>{kFull}
                  : std::vector<std::string>{kSelective, kSequenceParallel};
      LS_ASSIGN_OR_RETURN(StepTime step,
                          Record(row, settings, model.stages_per_rank, steps.dialect, cluster));
      steps.recorded.steps.push_back(std::move(step));
      steps.recorded.rows.push_back(std::move(row));
    }
  }
  LS_ASSIGN_OR_RETURN(steps.predicted, Predict(steps.recorded, steps.dialect, cluster));
  return steps;
}

absl::StatusOr<PublishedSteps> RefittedToTwo(const PublishedSteps& steps, const Cluster& cluster) {
  FitRows two;
  two.recorded = &steps.recorded;
  two.dialect = steps.dialect;
  for (size_t i = 0; i < steps.recorded.rows.size(); ++i) {
    const std::string& name = steps.recorded.rows[i].name;
    if (name == "175B, full" || name == "1T, full") two.chosen.push_back(i);
  }
  LS_ASSIGN_OR_RETURN(const Fit fit, FitTo({two}, cluster, {{"product_efficiency", 0.4, 1}}));
  PublishedSteps others;
  others.dialect = fit.dialects[0];
  LS_ASSIGN_OR_RETURN(const std::vector<double> predicted,
                      Predict(steps.recorded, others.dialect, fit.cluster));
  for (size_t i = 0; i < predicted.size(); ++i) {
    if (std::ranges::count(two.chosen, i) > 0) continue;
    others.recorded.rows.push_back(steps.recorded.rows[i]);
    others.recorded.steps.push_back(steps.recorded.steps[i]);
    others.predicted.push_back(predicted[i]);
  }
  return others;
}

absl::StatusOr<std::vector<PublishedMemory>> ActivationMemory(const Cluster& cluster,
                                                              ReportedMemory reported) {
  LS_ASSIGN_OR_RETURN(const Dialect dialect, ShippedDialect("megatron_2022"));
  constexpr double kGiB = 0x1p30;
  std::vector<PublishedMemory> rows;
  for (const RecomputationModel& model : kRecomputationModels) {
    struct Mode {
      const char* name;
      std::vector<std::string> settings;
      double percent;
    };
    for (const Mode& mode :
         std::vector<Mode>{{"no recomputation", {}, 100},
                           {"sequence parallelism", {kSequenceParallel}, model.sequence_parallel},
                           {"selective recomputation", {kSelective}, model.selective},
                           {"both", {kSequenceParallel, kSelective}, model.both},
                           {"full recomputation", {kFull}, model.full}}) {
      const bool is_one_of_both = mode.settings == std::vector<std::string>{kSequenceParallel} ||
                                  mode.settings == std::vector<std::string>{kSelective};
      if (reported == ReportedMemory::kFewOfLargest && is_one_of_both && model.pp > 8) continue;
      MeasuredRow row = model.Row();
      // Later micro-batches take the place of earlier ones: twice as many as stages are enough.
      row.batch = std::min(row.batch, 2 * row.pp * row.micro_batch);
      LS_ASSIGN_OR_RETURN(const StepTime step,
                          Record(row, mode.settings, model.stages_per_rank, dialect, cluster));
      LS_ASSIGN_OR_RETURN(const auto costs, step.Costs(dialect));
      const DialectMemory memory = step.Memory(costs, dialect, 0);
      if (mode.settings.empty()) {
        rows.push_back({.name = absl::StrCat(model.name, ", parameters and optimizer state"),
                        .predicted = memory.layers,
                        .published = model.state * kGiB});
      }
      rows.push_back({.name = absl::StrCat(model.name, ", activations, ", mode.name),
                      .predicted = memory.layer_activations,
                      .published = model.activations * mode.percent / 100 * kGiB});
    }
  }
  return rows;
}

absl::StatusOr<PublishedSteps> EfficientLargeScaleTraining(const Cluster& cluster) {
  PublishedSteps steps;
  LS_ASSIGN_OR_RETURN(steps.dialect, ShippedDialect("megatron_2021"));
  const NetworkTime network(cluster);
  struct Model {
    const char* name;
    int64_t layers, width, heads, tp, pp, dp, batch;
    double teraflops;
  };
  for (const Model& model : {Model{"1.7B", 24, 2304, 24, 1, 1, 32, 512, 137},
                             Model{"3.6B", 30, 3072, 32, 2, 1, 32, 512, 138},
                             Model{"7.5B", 36, 4096, 32, 4, 1, 32, 512, 142},
                             Model{"18B", 40, 6144, 48, 8, 1, 32, 1024, 135},
                             Model{"39B", 48, 8192, 64, 8, 2, 32, 1536, 138},
                             Model{"76B", 60, 10240, 80, 8, 4, 32, 1792, 140},
                             Model{"145B", 80, 12288, 96, 8, 8, 24, 2304, 148},
                             Model{"310B", 96, 16384, 128, 8, 16, 15, 2160, 155},
                             Model{"530B", 105, 20480, 128, 8, 35, 9, 2520, 163},
                             Model{"1T", 128, 25600, 160, 8, 64, 6, 3072, 163}}) {
    MeasuredRow row = Row(model.name, model.layers, model.width, model.heads, model.tp, model.pp,
                          model.dp, model.batch);
    const double s = 2048, h = static_cast<double>(model.width),
                 l = static_cast<double>(model.layers);
    const double operations = 96 * static_cast<double>(model.batch) * s * l * h * h *
                              (1 + s / (6 * h) + 51200 / (16 * l * h));
    row.seconds = operations / (static_cast<double>(row.gpus) * model.teraflops * 1e12);
    double least = INFINITY;
    int64_t best = 0;
    std::optional<StepTime> fastest;
    for (row.micro_batch = 1; row.micro_batch <= 16; row.micro_batch *= 2) {
      if (model.batch % (model.dp * row.micro_batch) != 0) break;
      LS_ASSIGN_OR_RETURN(const StepTime step,
                          Record(row, steps.dialect.row_settings(), 1, steps.dialect, cluster));
      LS_ASSIGN_OR_RETURN(const auto costs, step.Costs(steps.dialect));
      const double bytes = step.Memory(costs, steps.dialect, 0).total();
      if (bytes > 0.95 * cluster.device.memory) break;
      LS_ASSIGN_OR_RETURN(const StepEstimate estimate,
                          step.Estimate(steps.dialect, cluster, network));
      if (estimate.seconds >= least) continue;
      least = estimate.seconds;
      best = row.micro_batch;
      fastest = step;
    }
    if (!fastest) return absl::InternalError(row.name + " fits with no micro-batch");
    row.name += absl::StrFormat(", micro-batch %d", best);
    row.micro_batch = best;
    steps.predicted.push_back(least);
    steps.recorded.steps.push_back(*std::move(fastest));
    steps.recorded.rows.push_back(std::move(row));
  }
  return steps;
}

}  // namespace lockstep
