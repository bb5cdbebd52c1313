#include "strategies/engine/options.h"

#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "strategies/data_parallel/data_parallel_option.h"
#include "strategies/stages/schedule_option.h"
#include "strategies/tensor_parallel/tensor_parallel.h"

namespace lockstep {
namespace {

absl::Status ReadPipeline(const Config& config, const Settings& settings, EngineOptions& options) {
  ConfigReader reader(config.Table("pipeline"));
  options.schedule = ReadSchedule(reader, settings, ReadDivided(config));
  options.balance = ReadBalance(reader);
  return reader.Finish();
}

}  // namespace

std::vector<std::string> EngineTables() {
  return {"pipeline", "data_parallel", kRecomputeTable, kTensorParallelTable};
}

absl::StatusOr<EngineOptions> ReadEngineOptions(const Config& config, const Settings& settings) {
  EngineOptions options;
  options.shards = AssignmentOf(ReadDivided(config));
  absl::Status problems = CheckShards(settings.mesh, settings.cut, options.shards);
  problems = Both(problems, ReadPipeline(config, settings, options));
  absl::StatusOr<DataParallelMaker> maker = ReadDataParallel(config, settings, options.schedule);
  problems = Both(problems, maker.status());
  if (maker.ok()) options.make_data_parallel = *std::move(maker);
  absl::StatusOr<RecomputePolicy> recompute = ReadRecomputePolicy(config);
  problems = Both(problems, recompute.status());
  if (recompute.ok()) options.recompute = *std::move(recompute);
  problems = Both(problems, CheckTensorParallelOptions(config));
  if (!problems.ok()) return problems;
  return options;
}

}  // namespace lockstep
