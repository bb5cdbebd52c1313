#include "strategies/gpipe/gpipe.h"

#include <utility>

#include "core/base/status.h"
#include "core/train/config_reader.h"
#include "strategies/pipeline/options.h"
#include "strategies/pipeline/pipeline.h"
#include "strategies/tp/tensor_parallel.h"

namespace lockstep {
namespace {

struct Options {
  ScheduleOptions schedule;
  BucketLimits buckets;
};

absl::StatusOr<Options> ReadOptions(const Config& config, const Settings& settings) {
  Options options;
  ConfigReader reader(config.Table("gpipe"));
  options.schedule = ReadScheduleOptions(reader, settings, "gpipe");
  options.buckets = ReadBucketLimits(reader);
  LS_RETURN_IF_ERROR(reader.Finish());
  LS_RETURN_IF_ERROR(CheckTensorParallelOptions(config));
  return options;
}

absl::StatusOr<PipelineOptions> MakeOptions(const Config& config, const Settings& settings,
                                            const Model& model) {
  LS_ASSIGN_OR_RETURN(Options options, ReadOptions(config, settings));
  auto& [schedule, balance, checkpointing] = options.schedule;
  LS_ASSIGN_OR_RETURN(StagePlan plan, PlanStages(model, schedule, balance, "gpipe.balance"));
  return PipelineOptions{.plan = std::move(plan),
                         .schedule = std::move(schedule),
                         .checkpointing = checkpointing,
                         .buckets = options.buckets};
}

}  // namespace

StrategyDefinition GPipeStrategy() {
  return {.name = "gpipe",
          .axes = {MeshAxis::kPp, MeshAxis::kDp, MeshAxis::kTp},
          .more_tables = {kTensorParallelTable},
          .check = [](const Config& config,
                      const Settings& settings) { return ReadOptions(config, settings).status(); },
          .check_model =
              [](const Config& config, const Settings& settings, const Model& model) {
                LS_RETURN_IF_ERROR(CheckTensorParallelModel(config, settings, model));
                return MakeOptions(config, settings, model).status();
              },
          .make =
              [](StrategyInputs inputs) {
                PipelineOptions options =
                    MakeOptions(inputs.config, inputs.settings, inputs.model).value();
                return MakePipeline(std::move(inputs), std::move(options));
              }};
}

}  // namespace lockstep
