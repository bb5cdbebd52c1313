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
  options.schedule = ReadSchedule(reader, settings);
  options.balance = ReadBalance(reader);
  return reader.Finish();
}

absl::Status ReadRecompute(const Config& config, EngineOptions& options) {
  ConfigReader reader(config.Table("recompute"));
  options.checkpointing = ReadCheckpointing(reader);
  return reader.Finish();
}

}  // namespace

std::vector<std::string> EngineTables() {
  return {"pipeline", "data_parallel", "recompute", kTensorParallelTable};
}

absl::StatusOr<EngineOptions> ReadEngineOptions(const Config& config, const Settings& settings) {
  EngineOptions options;
  absl::Status problems = CheckOneShardARank(settings.mesh, settings.cut);
  problems = Both(problems, ReadPipeline(config, settings, options));
  absl::StatusOr<DataParallelMaker> maker = ReadDataParallel(config, settings, options.schedule);
  problems = Both(problems, maker.status());
  if (maker.ok()) options.make_data_parallel = *std::move(maker);
  problems = Both(problems, ReadRecompute(config, options));
  problems = Both(problems, CheckTensorParallelOptions(config));
  if (!problems.ok()) return problems;
  return options;
}

}  // namespace lockstep
