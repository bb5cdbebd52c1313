#include "foresight/recorded_run.h"

#include <algorithm>
#include <map>
#include <memory>
#include <numeric>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "core/data/sampler.h"
#include "glog/logging.h"
#include "strategies/data_parallel/data_parallel_option.h"
#include "strategies/schedules/excerpt.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/stages/plan.h"
#include "strategies/stages/schedule_option.h"

namespace lockstep {
namespace {

Schedule ScheduleOf(const Config& config, const Settings& settings) {
  ConfigReader pipeline(config.Table("pipeline"));
  return ReadSchedule(pipeline, settings, ReadDivided(config));
}

// Whether a run can be recorded by an excerpt of its schedule.
bool StandsForAll(const Schedule& excerpt, const TrainingRun& run) {
  ConfigReader pipeline(run.config.Table("pipeline"));
  // Bytes of activations depend on how many micro-batches are on their way.
  const bool is_balanced_by_size = ReadBalance(pipeline).by == BalanceOption::By::kSize;
  const bool can_be_written =
      std::max(excerpt.micro_batches, excerpt.stages()) <= kLargestInCsv + 1;
  const bool are_equal = run.settings.samples_of_shard() % run.settings.cut.micro_batches == 0;
  return are_equal && can_be_written && !is_balanced_by_size;
}

// The same run with another schedule, of fewer micro-batches of the same size.
absl::Status Shorten(const Schedule& schedule, int64_t of_shard, TrainingRun& run) {
  Settings& settings = run.settings;
  settings.batch.size = settings.batch.size / settings.cut.micro_batches * of_shard;
  settings.cut.micro_batches = of_shard;
  for (const char* key : {"schedule", "schedule_file", "stages_per_rank"}) {
    run.config = run.config.Without(absl::StrCat("pipeline.", key));
  }
  return run.config.Set(absl::StrCat("pipeline.actions=\"\"\"", ScheduleToCsv(schedule), "\"\"\""));
}

// The place of a micro-batch in its shard. A record of one micro-batch holds for all that have the
// same place.
struct Role {
  int64_t shard = 0;
  enum class Turn { kFirst, kBetween, kLast } turn = Turn::kFirst;

  friend auto operator<=>(const Role&, const Role&) = default;
};
Role RoleOf(int64_t micro_batch, int64_t of_shard) {
  const int64_t at = micro_batch % of_shard;
  // A single micro-batch is the last one: it completes the shard.
  return {micro_batch / of_shard, at + 1 == of_shard ? Role::Turn::kLast
                                  : at == 0          ? Role::Turn::kFirst
                                                     : Role::Turn::kBetween};
}

using Key = std::tuple<int64_t, StepPlace::Kind, int, int, Role>;  // round, kind, action, stage

}  // namespace

std::vector<int32_t> RecordedRun::Stretches(int pp) const {
  const std::vector<RecordedStretch>& recorded = steps[pp].stretches;
  std::vector<int32_t> order;
  if (recorded_of_shard == settings.cut.micro_batches) {
    order.resize(recorded.size());
    std::iota(order.begin(), order.end(), 0);
    return order;
  }
  // Stretches between rounds stand in their order; a round begins where an action, or what it
  // expects, follows one.
  std::map<Key, int32_t> place_of;
  std::vector<std::vector<int32_t>> between(1);
  bool in_round = false;
  for (int32_t i = 0; i < static_cast<int32_t>(recorded.size()); ++i) {
    const StepPlace& place = recorded[i].place;
    if (place.kind == StepPlace::Kind::kBetween) {
      if (in_round) between.emplace_back();
      in_round = false;
      between.back().push_back(i);
      continue;
    }
    in_round = true;
    const auto round = static_cast<int64_t>(between.size()) - 1;
    place_of.try_emplace({round, place.kind, place.action, place.stage,
                          RoleOf(place.micro_batch, recorded_of_shard)},
                         i);
  }
  CHECK_EQ(static_cast<int64_t>(between.size()), rounds + 1);
  const auto add = [&](int64_t round, StepPlace::Kind kind, const Action& action) {
    order.push_back(place_of.at({round, kind, static_cast<int>(action.kind), action.stage,
                                 RoleOf(action.micro_batch, settings.cut.micro_batches)}));
  };
  const std::vector<Action>& actions = schedule.ranks[pp];
  for (int64_t round = 0; round <= rounds; ++round) {
    order.insert(order.end(), between[round].begin(), between[round].end());
    if (round == rounds) break;
    // As ScheduleRunner::Run: what an action needs is expected while the one before it runs.
    if (!actions.empty()) add(round, StepPlace::Kind::kExpect, actions[0]);
    for (size_t i = 0; i < actions.size(); ++i) {
      if (i + 1 < actions.size()) add(round, StepPlace::Kind::kExpect, actions[i + 1]);
      add(round, StepPlace::Kind::kAction, actions[i]);
    }
  }
  return order;
}

absl::StatusOr<RecordedRun> RecordRun(const TrainingRun& run, const RehearsalOptions& options) {
  RecordedRun recorded;
  recorded.settings = run.settings;
  recorded.schedule = ScheduleOf(run.config, run.settings);
  recorded.rounds = run.settings.micro_batches_of_rank() / recorded.schedule.micro_batches;
  const int64_t all = run.settings.cut.micro_batches;
  const auto record = [&](const Schedule& schedule) -> absl::Status {
    const int64_t of_shard = all * schedule.micro_batches / recorded.schedule.micro_batches;
    recorded.recorded_of_shard = of_shard;
    TrainingRun shorter = run;
    if (of_shard < all) LS_RETURN_IF_ERROR(Shorten(schedule, of_shard, shorter));
    // The prefetcher must have batches left to fetch while the second step runs.
    shorter.settings.steps = 8;
    SamplerOptions sampler = run.sampler->options();
    sampler.global_batch = shorter.settings.batch.size;
    sampler.micro_batches = of_shard;
    LS_ASSIGN_OR_RETURN(const Sampler sampler_of_few, Sampler::Create(*run.dataset, sampler));
    shorter.sampler = std::make_shared<const Sampler>(sampler_of_few);
    LS_ASSIGN_OR_RETURN(recorded.steps, RecordStep(shorter, options));
    return absl::OkStatus();
  };
  Schedule excerpt = ExcerptOf(recorded.schedule, all);
  if (!StandsForAll(excerpt, run)) excerpt = recorded.schedule;
  LS_RETURN_IF_ERROR(record(excerpt));
  // A strategy that is no preset runs no schedule, so that nothing says what a micro-batch is.
  if (recorded.recorded_of_shard < all && recorded.steps[0].stretches.size() == 1) {
    LS_RETURN_IF_ERROR(record(recorded.schedule));
  }
  return recorded;
}

absl::StatusOr<RecordedRun> RecordRun(const CommandLine& command_line,
                                      const StrategyDefinition& strategy,
                                      const ModelFactory& make_model) {
  LS_ASSIGN_OR_RETURN(const TrainingRun run, CheckRun(command_line, strategy, make_model));
  return RecordRun(run);
}

PeakBytes MemoryOf(const RecordedStep& step, const std::vector<int32_t>& stretches) {
  PeakBytes memory = step.validation_peaks;
  memory.total =
      std::max(memory.total, std::accumulate(step.live.begin(), step.live.end(), int64_t{0}));
  LiveBytes live(step);
  for (const int32_t index : stretches) {
    memory.Raise(live.Pass(step.stretches[index]));
  }
  return memory;
}

}  // namespace lockstep
