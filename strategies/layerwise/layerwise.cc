#include "strategies/layerwise/layerwise.h"

#include <memory>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/train/config_reader.h"
#include "strategies/gpipe/schedules.h"
#include "strategies/pipeline/pipeline.h"
#include "strategies/tp/tensor_parallel.h"

namespace lockstep {
namespace {

struct Options {
  std::vector<int64_t> balance;  // empty: by cost
  BucketLimits buckets;
};

absl::StatusOr<Options> ReadOptions(const Config& config) {
  Options options;
  ConfigReader reader(config.Table("layerwise"));
  reader.Read("balance", &options.balance);
  options.buckets = ReadBucketLimits(reader);
  LS_RETURN_IF_ERROR(reader.Finish());
  LS_RETURN_IF_ERROR(CheckTensorParallelOptions(config));
  return options;
}

// A pipeline in which one stage works at a time.
absl::StatusOr<PipelineOptions> MakeOptions(const Config& config, const Settings& settings,
                                            const Model& model) {
  LS_ASSIGN_OR_RETURN(const Options options, ReadOptions(config));
  PipelineOptions pipeline = {.plan = {},
                              .schedule = LayerwiseSchedule(
                                  settings.mesh.pp, static_cast<int>(settings.batch.micro_batches)),
                              .buckets = options.buckets};
  LS_ASSIGN_OR_RETURN(pipeline.plan,
                      PlanStages(model, pipeline.schedule, options.balance, "layerwise.balance"));
  return pipeline;
}

}  // namespace

StrategyDefinition LayerwiseStrategy() {
  return {
      .name = "layerwise",
      .axes = {MeshAxis::kPp, MeshAxis::kDp, MeshAxis::kTp},
      .more_tables = {kTensorParallelTable},
      .check = [](const Config& config, const Settings&) { return ReadOptions(config).status(); },
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
