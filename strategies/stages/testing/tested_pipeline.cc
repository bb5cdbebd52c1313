#include "strategies/stages/testing/tested_pipeline.h"

#include <functional>
#include <iterator>  // std::ssize
#include <memory>
#include <mutex>
#include <numeric>
#include <utility>
#include <vector>

#include "absl/time/time.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr int64_t kWidth = 8;

Batch VectorsInClasses(Kernels& kernels, int64_t first_sample, int64_t samples) {
  const Batch batch = {.inputs = kernels.Empty({samples, kWidth}),
                       .targets = kernels.Empty({samples}, DType::kI32)};
  for (int64_t i = 0; i < samples * kWidth; ++i) {
    // Numbers without a pattern, which a product could cancel.
    const auto number = static_cast<uint32_t>(first_sample * kWidth + i + 1) * 2654435761u;
    batch.inputs.data<float>()[i] = static_cast<float>(number >> 8) / (1 << 23) - 1;
  }
  for (int64_t i = 0; i < samples; ++i) {
    batch.targets.data<int32_t>()[i] = static_cast<int32_t>((first_sample + i) * 5 % kWidth);
  }
  return batch;
}

class Batches : public BatchSource {
 public:
  Batches(RankUnderTest& rank, int64_t step, const Settings& settings)
      : rank_(rank), settings_(settings), first_sample_(step * settings.batch.size) {}

  Batch Next() override {
    const int64_t samples = settings_.samples_of(micro_batch_++);
    return rank_.MakeBatch(std::exchange(first_sample_, first_sample_ + samples), samples);
  }

 private:
  RankUnderTest& rank_;
  const Settings& settings_;
  int64_t micro_batch_ = 0, first_sample_;
};

StagePlan PlanOf(const PipelineUnderTest& pipeline) {
  std::vector<int64_t> balance = pipeline.balance;
  if (balance.empty()) balance.assign(pipeline.schedule.stages(), 1);
  CHECK_EQ(std::ssize(balance), pipeline.schedule.stages());
  StagePlan plan = {.stages = {}, .rank_of_stage = pipeline.schedule.rank_of_stage};
  int64_t begin = 0;
  for (const int64_t blocks : balance) {
    plan.stages.push_back({begin, begin + blocks});
    begin += blocks;
  }
  return plan;
}

Settings SettingsOf(const PipelineUnderTest& pipeline) {
  Settings settings;
  settings.seed = 3;
  settings.steps = pipeline.steps;
  settings.deferred_batch_norm = pipeline.deferred_batch_norm;
  settings.cut.micro_batches = pipeline.schedule.micro_batches;
  settings.batch.size = pipeline.samples > 0 ? pipeline.samples : 2 * settings.cut.micro_batches;
  settings.mesh.pp = static_cast<int>(pipeline.schedule.ranks.size());
  return settings;
}

}  // namespace

RankUnderTest::RankUnderTest(RankHandle& handle, const PipelineUnderTest& pipeline)
    : handle_(handle),
      pipeline_(pipeline),
      plan_(PlanOf(pipeline)),
      settings_(SettingsOf(pipeline)),
      mesh_(Mesh::Create(settings_.mesh, handle.comm()).value()),
      trace_(handle.rank(), {.first_step = pipeline.steps - 1, .steps = 1}),
      timer_({.trace = &trace_}),
      rank_(kernels_, mesh_, timer_, trace_),
      local_model_(std::make_unique<LocalModel>(rank_, pipeline.make_model(),
                                                plan_.RangesByRank()[handle.rank()], settings_, 1)),
      statistics_(std::make_unique<BatchStatistics>(*local_model_, settings_,
                                                    ShardAssignment::kConsecutive)),
      links_(std::make_unique<StageLinks>(*local_model_, plan_, mesh_.pp())),
      runner_(std::make_unique<ScheduleRunner>(*local_model_, plan_, pipeline.schedule,
                                               handle.rank(), pipeline.checkpointing,
                                               BatchUse::kAtEnds, *links_)) {
  local_model_->AllocateGradients();
  allocator_.ResetPeaks();
}

void RankUnderTest::Step(int64_t step) {
  timer_.BeginStep(step);
  local_model_->Clear(1);
  Batches batches(*this, step, settings_);
  std::vector<int64_t> micro_batches(settings_.cut.micro_batches);
  std::iota(micro_batches.begin(), micro_batches.end(), 0);
  runner_->Run(step, micro_batches, settings_.cut.micro_batches, batches,
               {.forwarded = [this](int stage, int64_t micro_batch) {
                 statistics_->EndForward(plan_.stages[stage], micro_batch);
               }});
  for (Parameter* use : local_model_->uses()) CompleteGradient(kernels_, *use);
  timer_.EndStep(0);
}

void RankUnderTest::UpdateStatistics() {
  statistics_->Share(mesh_);
  statistics_->Update();
}

Batch RankUnderTest::MakeBatch(int64_t first_sample, int64_t samples) {
  const auto& make = pipeline_.make_batch;
  return make ? make(kernels_, first_sample, samples)
              : VectorsInClasses(kernels_, first_sample, samples);
}

absl::StatusOr<StepOutcome> RunPipeline(const PipelineUnderTest& pipeline,
                                        const std::function<void(RankUnderTest&)>& look) {
  if (absl::Status status = Validate(pipeline.schedule); !status.ok()) return status;
  StepOutcome outcome;
  std::mutex mutex;
  const absl::Status status =
      RunRanks(static_cast<int>(pipeline.schedule.ranks.size()), {.timeout = absl::Seconds(20)},
               [&](RankHandle& handle) {
                 RankUnderTest rank(handle, pipeline);
                 for (int64_t step = 0; step < pipeline.steps; ++step) rank.Step(step);
                 look(rank);
                 const std::lock_guard lock(mutex);
                 outcome.loss += rank.local_model().MeanLoss();
                 for (const Parameter* parameter : rank.local_model().parameters()) {
                   const auto gradient = parameter->gradient.span<float>();
                   outcome.gradients[parameter->name] = {gradient.begin(), gradient.end()};
                 }
                 return absl::OkStatus();
               });
  if (!status.ok()) return status;
  return outcome;
}

StepOutcome WithoutPipeline(PipelineUnderTest pipeline) {
  Schedule one = {.name = "one", .micro_batches = pipeline.schedule.micro_batches};
  one.rank_of_stage = {0};
  one.ranks.resize(1);
  for (int i = 0; i < one.micro_batches; ++i) {
    one.ranks[0].push_back({ActionKind::kForward, 0, i});
    one.ranks[0].push_back({ActionKind::kBackward, 0, i});
  }
  pipeline.balance = {std::ssize(pipeline.make_model().blocks)};
  pipeline.schedule = std::move(one);
  pipeline.checkpointing = Checkpointing::kNever;
  const auto outcome = RunPipeline(pipeline);
  EXPECT_TRUE(outcome.ok()) << outcome.status();
  return outcome.value_or(StepOutcome());
}

}  // namespace lockstep
