// Steps that papers report, predicted with what was fitted on vTrain's rows alone.

#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_format.h"
#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "foresight/network_time.h"
#include "foresight/recorded_run.h"
#include "foresight/step_time.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/engine/preset.h"
#include "tools/plan/fit.h"
#include "tools/plan/held_to.h"
#include "tools/plan/measured_rows.h"

namespace lockstep {
namespace {

class PublishedTest : public testing::Test {
 protected:
  void SetUp() override {
    auto cluster = ReadCluster("foresight/clusters/a100_80g.toml");
    ASSERT_TRUE(cluster.ok()) << cluster.status();
    cluster_ = *std::move(cluster);
    // Selene: eight HDR adapters a node (NVIDIA DGX A100 SuperPOD reference architecture).
    cluster_.network.bandwidth = 200e9;
    network_ = std::make_unique<NetworkTime>(cluster_);
  }

  StepTime Record(const MeasuredRow& row, const std::vector<std::string>& settings,
                  int64_t stages_per_rank, const Dialect& dialect) {
    auto run =
        RecordRun(RunOf(row, settings, stages_per_rank), EnginePreset("plan", {}), MakeModel);
    EXPECT_TRUE(run.ok()) << run.status();
    auto step =
        StepTime::Create(std::make_shared<const RecordedRun>(*std::move(run)), dialect, cluster_);
    EXPECT_TRUE(step.ok()) << step.status();
    return *std::move(step);
  }

  double Seconds(const StepTime& step, const Dialect& dialect) {
    const auto estimate = step.Estimate(dialect, cluster_, *network_);
    EXPECT_TRUE(estimate.ok()) << estimate.status();
    return estimate->seconds;
  }

  void Hold(const std::vector<MeasuredRow>& rows, const std::vector<double>& predicted) {
    for (size_t i = 0; i < rows.size(); ++i) {
      absl::PrintF("%-20s predicted %7.2f s, measured %7.2f s, error %+5.1f %%\n", rows[i].name,
                   predicted[i], rows[i].seconds, 100 * (predicted[i] / rows[i].seconds - 1));
    }
    const Judgement judgement = Judge(rows, predicted);
    absl::PrintF("%s\n", judgement.ToString());
    EXPECT_LE(judgement.mean, 0.05);
    EXPECT_LE(judgement.largest, 0.12);
  }

  Cluster cluster_;
  std::unique_ptr<NetworkTime> network_;
};

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

// Korthikanti et al. 2022, Table 5: seconds of a step with all of a layer recomputed, and with
// sequence parallelism and attention recomputed.
TEST_F(PublishedTest, ActivationRecomputation) {
  const auto dialect = Dialect::Read("foresight/dialects/megatron_2022.toml");
  ASSERT_TRUE(dialect.ok()) << dialect.status();
  struct Model {
    const char* name;
    int64_t layers, width, heads, pp, stages_per_rank, batch, micro_batch;
    double full, selective;
  };
  RecordedRows recorded;
  std::vector<double> predicted;
  for (const Model& model : {Model{"22B", 48, 6144, 64, 1, 1, 4, 4, 1.42, 1.10},
                             Model{"175B", 96, 12288, 96, 8, 3, 64, 1, 18.13, 13.75},
                             Model{"530B", 105, 20480, 128, 35, 3, 280, 1, 49.05, 37.83},
                             Model{"1T", 128, 25600, 160, 64, 1, 512, 1, 94.42, 71.49}}) {
    for (const bool is_full : {true, false}) {
      MeasuredRow row = Row(std::string(model.name) + (is_full ? ", full" : ", selective"),
                            model.layers, model.width, model.heads, 8, model.pp, 1, model.batch);
      row.micro_batch = model.micro_batch;
      row.seconds = is_full ? model.full : model.selective;
      const std::vector<std::string> settings =
          is_full ? std::vector<std::string>{"recompute.blocks=['blocks.*']"}
                  : std::vector<std::string>{"recompute.operations=['attention']",
                                             "tensor_parallel.sequence_parallel=true"};
      recorded.steps.push_back(Record(row, settings, model.stages_per_rank, *dialect));
      predicted.push_back(Seconds(recorded.steps.back(), *dialect));
      recorded.rows.push_back(std::move(row));
    }
  }
  Hold(recorded.rows, predicted);

  // With the efficiency of large products refitted on two rows, the others come closer.
  FitRows two;
  two.recorded = &recorded;
  two.dialect = *dialect;
  two.chosen = {2, 6};  // 175B and 1T, full
  const auto fit = FitTo({two}, cluster_, {{"product_efficiency", 0.4, 1}});
  ASSERT_TRUE(fit.ok()) << fit.status();
  const auto refitted = Predict(recorded, fit->dialects[0], fit->cluster);
  ASSERT_TRUE(refitted.ok()) << refitted.status();
  std::vector<MeasuredRow> others;
  std::vector<double> of_others;
  for (size_t i = 0; i < recorded.rows.size(); ++i) {
    if (i == 2 || i == 6) continue;
    others.push_back(recorded.rows[i]);
    of_others.push_back((*refitted)[i]);
  }
  const Judgement judgement = Judge(others, of_others);
  absl::PrintF("product_efficiency %.3f: %s\n", fit->cluster.fitted.at("product_efficiency"),
               judgement.ToString());
  EXPECT_LE(judgement.mean, 0.03);
}

// Narayanan et al. 2021, Table 1: TFLOP/s a GPU. The paper's table has no micro-batches: each row
// takes the fastest that fits. Its schedules are taken not to be interleaved.
TEST_F(PublishedTest, EfficientLargeScaleTraining) {
  const auto dialect = Dialect::Read("foresight/dialects/megatron_2021.toml");
  ASSERT_TRUE(dialect.ok()) << dialect.status();
  struct Model {
    const char* name;
    int64_t layers, width, heads, tp, pp, dp, batch;
    double teraflops;
  };
  std::vector<MeasuredRow> rows;
  std::vector<double> predicted;
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
    for (row.micro_batch = 1; row.micro_batch <= 16; row.micro_batch *= 2) {
      if (model.batch % (model.dp * row.micro_batch) != 0) break;
      const StepTime step = Record(row, dialect->row_settings(), 1, *dialect);
      const double bytes = step.Memory(*step.Costs(*dialect), *dialect, 0).total();
      if (bytes > 0.95 * cluster_.device.memory) break;
      const double seconds = Seconds(step, *dialect);
      if (seconds < least) {
        least = seconds;
        best = row.micro_batch;
      }
    }
    row.name += absl::StrFormat(", micro-batch %d", best);
    predicted.push_back(least);
    rows.push_back(std::move(row));
  }
  Hold(rows, predicted);
}

}  // namespace
}  // namespace lockstep
