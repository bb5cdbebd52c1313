// Memory that a paper reports, from what the engine records and what Megatron's dialect keeps of
// it.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "foresight/cluster.h"
#include "foresight/dialect.h"
#include "foresight/recorded_run.h"
#include "foresight/step_time.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/engine/preset.h"
#include "tools/plan/measured_rows.h"

namespace lockstep {
namespace {

// Korthikanti et al. 2022, Table 3 and Figure 7: tensor parallelism of 8, of layers alone.
struct Published {
  int64_t layers, width, heads, pp, stages_per_rank, batch, micro_batch;
  double state;                            // GiB: parameters and optimizer state
  double none;                             // GiB: activations
  double sequence, selective, both, full;  // in % of these
};

TEST(PublishedMemoryTest, MegatronKeepsWhatThePaperSays) {
  const auto dialect = Dialect::Read("foresight/dialects/megatron_2022.toml");
  ASSERT_TRUE(dialect.ok()) << dialect.status();
  const auto cluster = ReadCluster("foresight/clusters/a100_80g.toml");
  ASSERT_TRUE(cluster.ok()) << cluster.status();
  for (const Published& p :
       {Published{48, 6144, 64, 1, 1, 4, 4, 45.56, 59.25, 66.84, 49.42, 16.18, 7.64},
        Published{96, 12288, 96, 8, 3, 64, 1, 45.56, 66.84, 62.04, 56.53, 18.49, 8.71}}) {
    MeasuredRow row;
    row.gpus = 8 * p.pp;
    row.batch = p.batch;
    row.micro_batch = p.micro_batch;
    row.width = p.width;
    row.heads = p.heads;
    row.layers = p.layers;
    row.context = 2048;
    row.tp = 8;
    row.pp = p.pp;
    const std::string sequence = "tensor_parallel.sequence_parallel=true",
                      selective = "recompute.operations=[\"attention\"]",
                      full = "recompute.blocks=[\"blocks.*\"]";
    const std::vector<std::pair<std::vector<std::string>, double>> modes = {
        {{}, 100},
        {{sequence}, p.sequence},
        {{selective}, p.selective},
        {{sequence, selective}, p.both},
        {{full}, p.full}};
    for (const auto& [settings, percent] : modes) {
      auto run =
          RecordRun(RunOf(row, settings, p.stages_per_rank), EnginePreset("plan", {}), MakeModel);
      ASSERT_TRUE(run.ok()) << run.status();
      const auto step = StepTime::Create(std::make_shared<const RecordedRun>(*std::move(run)),
                                         *dialect, *cluster);
      ASSERT_TRUE(step.ok()) << step.status();
      const DialectMemory memory = step->Memory(*step->Costs(*dialect), *dialect, 0);
      const double expected = p.none * percent / 100;
      EXPECT_NEAR(memory.layer_activations / 0x1p30, expected, 0.01 * expected)
          << p.width << ", " << percent << " %";
      EXPECT_NEAR(memory.layers / 0x1p30, p.state, 0.01 * p.state) << p.width;
    }
  }
}

}  // namespace
}  // namespace lockstep
