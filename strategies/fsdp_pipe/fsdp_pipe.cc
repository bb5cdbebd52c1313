#include "strategies/fsdp_pipe/fsdp_pipe.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "strategies/data_parallel/sharded.h"
#include "strategies/engine/engine.h"
#include "strategies/stages/balance_option.h"
#include "strategies/stages/schedule_option.h"

namespace lockstep {
namespace {

absl::StatusOr<EngineOptions> ReadOptions(const Config& config, const Settings& settings) {
  ConfigReader reader(config.Table("fsdp_pipe"));
  EngineOptions options = {.schedule = ReadSchedule(reader, settings),
                           .recompute = {.micro_batches = Checkpointing::kExceptLast},
                           .balance = ReadBalance(reader)};
  Unshard unshard = Unshard::kStep;
  reader.ReadChoice("unshard", &unshard,
                    {{"step", Unshard::kStep}, {"micro_batch", Unshard::kPass}});
  if (unshard == Unshard::kPass && HalvesBackwards(options.schedule)) {
    reader.AddProblem("unshard",
                      absl::StrCat("is \"micro_batch\", which gives parameters back behind the "
                                   "first half of a backward, and the schedule ",
                                   options.schedule.name,
                                   " has a second one that reads them; use \"step\", or a schedule "
                                   "of whole backwards"));
  }
  options.make_data_parallel = MakeSharded({.unshard = unshard});
  LS_RETURN_IF_ERROR(reader.Finish());
  return options;
}

}  // namespace

StrategyDefinition FsdpPipeStrategy() {
  return EngineStrategy("fsdp_pipe", Stages::kSeveral, ReadOptions);
}

}  // namespace lockstep
