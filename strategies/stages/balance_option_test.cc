// The option pipeline.balance, and the profiles of blocks that it evens stages out by.

#include <memory>
#include <numeric>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/layers.h"
#include "core/run/leg/profile_blocks.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "strategies/schedules/named_schedules.h"
#include "strategies/stages/balance.h"
#include "strategies/stages/plan.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;

using By = BalanceOption::By;
using Numbers = std::vector<int64_t>;

constexpr int64_t kWidth = 8;

// Vectors of kWidth features in as many classes.
class Vectors final : public Dataset {
 public:
  std::string Describe() const override { return "vectors"; }
  Task task() const override { return Task::kClassification; }
  Shape input_shape() const override { return {kWidth}; }
  Shape target_shape() const override { return {}; }
  DType input_dtype() const override { return DType::kF32; }
  int64_t classes() const override { return kWidth; }
  int64_t size(Split) const override { return 3; }  // fewer than a micro-batch

  absl::Status Fill(Split, absl::Span<const SampleKey> keys, const Batch& batch) const override {
    std::iota(batch.inputs.span<float>().begin(), batch.inputs.span<float>().end(), 0.0f);
    for (size_t i = 0; i < keys.size(); ++i) {
      EXPECT_LT(keys[i].index, 3);
      batch.targets.data<int32_t>()[i] = static_cast<int32_t>(keys[i].index);
    }
    return absl::OkStatus();
  }
};

// What a block of a test takes and holds, beside a small linear layer.
struct Needs {
  absl::Duration forward = absl::ZeroDuration(), backward = absl::ZeroDuration();
  int64_t kept_bytes = 0;  // by forward for backward
  int64_t parameters = 0;
};

class Needy : public Block {
 public:
  Needy(const std::string& name, const Needs& needs)
      : Block(name),
        needs_(needs),
        linear_(AddChild<LinearLayer>("linear", kWidth, kWidth,
                                      LinearLayer::Options{.bias = Bias::kNo})) {
    if (needs.parameters > 0) AddParameter("more", {needs.parameters}, Init::Normal(1));
  }

 protected:
  Variables Forward(Pass& pass, Variables inputs) override {
    absl::SleepFor(needs_.forward);
    const Tensor kept = pass.kernels().Empty({needs_.kept_bytes / 4});
    pass.tape.RecordAlways([kept, this] { absl::SleepFor(needs_.backward); });
    return {linear_(pass, inputs[0])};
  }

 private:
  const Needs needs_;
  LinearLayer& linear_;
};

Model ModelOf(const std::vector<Needs>& needs) {
  Model model;
  for (const Needs& block : needs) {
    model.blocks.push_back(std::make_unique<Needy>(absl::StrCat("b", model.blocks.size()), block));
  }
  return model;
}

Settings SettingsOf(const OptimizerRule& optimizer = AdamW()) {
  Settings settings;
  settings.batch.size = 4;
  settings.optimizer.rule = optimizer;
  return settings;
}

// A rank alone in its world.
class Alone {
 public:
  explicit Alone(RankHandle& handle, const MeshShape& shape = {})
      : mesh_(Mesh::Create(shape, handle.comm()).value()), rank_(kernels_, mesh_, timer_, trace_) {}

  Rank& rank() { return rank_; }
  MemoryBooks books() { return allocator_.books(); }

 private:
  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  Mesh mesh_;
  StepTimer timer_{{}};
  Trace trace_{0, TraceWindow{.first_step = 0, .steps = 1}};
  Rank rank_;
};

std::vector<BlockProfile> Profile(const std::vector<Needs>& needs,
                                  const Settings& settings = SettingsOf()) {
  std::vector<BlockProfile> profiles;
  const absl::Status status = RunRanks(1, {}, [&](RankHandle& handle) {
    Alone alone(handle);
    profiles = ProfileBlocks(alone.rank(), ModelOf(needs), settings, Vectors());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return profiles;
}

Numbers Parameters(const std::vector<BlockProfile>& profiles) {
  Numbers bytes;
  for (const BlockProfile& profile : profiles) bytes.push_back(profile.parameter_bytes);
  return bytes;
}

Numbers TimeCosts(const std::vector<BlockProfile>& profiles) {
  return BalanceCosts({}, profiles, By::kTime, 1);
}
Numbers SizeCosts(const std::vector<BlockProfile>& profiles, int64_t micro_batches_in_flight) {
  return BalanceCosts({}, profiles, By::kSize, micro_batches_in_flight);
}

// --- by time: what sleeps longer than all others compute
// ------------------------------------------

constexpr Needs kFast = {};
const Needs kSlowForward = {.forward = absl::Milliseconds(20)};
const Needs kSlowBackward = {.backward = absl::Milliseconds(20)};

TEST(BalanceByTimeTest, SlowBlocksStandAlone) {
  for (const Needs& slow : {kSlowForward, kSlowBackward}) {
    EXPECT_THAT(EvenBalance(TimeCosts(Profile({slow, kFast, kFast, kFast})), 2), ElementsAre(1, 3));
    EXPECT_THAT(EvenBalance(TimeCosts(Profile({kFast, kFast, kFast, slow})), 2), ElementsAre(3, 1));
  }
}

TEST(BalanceByTimeTest, EvensOutSixBlocks) {
  std::vector<Needs> needs;
  for (int i = 1; i <= 6; ++i) needs.push_back({.forward = i * absl::Milliseconds(5)});
  EXPECT_THAT(EvenBalance(TimeCosts(Profile(needs)), 2), ElementsAre(4, 2));
}

// --- by size
// --------------------------------------------------------------------------------------

TEST(BalanceBySizeTest, Latent) {
  std::vector<Needs> up, down;
  for (int i = 1; i <= 6; ++i) up.push_back({.kept_bytes = i * 100'000});
  down.assign(up.rbegin(), up.rend());
  EXPECT_THAT(EvenBalance(SizeCosts(Profile(up), 1), 2), ElementsAre(4, 2));
  EXPECT_THAT(EvenBalance(SizeCosts(Profile(down), 1), 2), ElementsAre(2, 4));
  // With the block's output, four vectors, and what its linear layer keeps.
  for (const BlockProfile& profile : Profile(std::vector<Needs>(3, {.kept_bytes = 100'000}))) {
    EXPECT_NEAR(static_cast<double>(profile.activation_bytes), 100'000, 500);
  }
}

TEST(BalanceBySizeTest, Parameter) {
  std::vector<Needs> needs;
  for (int i = 1; i <= 6; ++i) needs.push_back({.parameters = i * 10'000});
  EXPECT_THAT(EvenBalance(SizeCosts(Profile(needs), 1), 2), ElementsAre(4, 2));
}

// What a parameter takes follows from the optimizer and the precision.
TEST(BalanceBySizeTest, Scale) {
  const std::vector<Needs> one = {{.parameters = 1000 - kWidth * kWidth}};
  Settings settings = SettingsOf(Sgd());
  EXPECT_THAT(Parameters(Profile(one, settings)), ElementsAre((4 + 4) * 1000));
  settings.optimizer.rule = Sgd{.momentum = 0.9f};
  EXPECT_THAT(Parameters(Profile(one, settings)), ElementsAre((4 + 4 + 4) * 1000));
  settings = SettingsOf();
  EXPECT_THAT(Parameters(Profile(one, settings)), ElementsAre((4 + 4 + 8) * 1000));
  settings.precision.compute = settings.precision.reduce = DType::kBF16;
  EXPECT_THAT(Parameters(Profile(one, settings)), ElementsAre((2 + 2 + 4 + 8) * 1000));

  // Eight bytes a parameter leave the first block alone, sixteen the last.
  const std::vector<Needs> three = {
      {.kept_bytes = 100'000}, {.parameters = 5'000}, {.parameters = 10'000}};
  const auto balance = [&](const OptimizerRule& optimizer) {
    return EvenBalance(SizeCosts(Profile(three, SettingsOf(optimizer)), 1), 2);
  };
  EXPECT_THAT(balance(Sgd()), ElementsAre(1, 2));
  EXPECT_THAT(balance(AdamW()), ElementsAre(2, 1));
}

TEST(BalanceBySizeTest, ActivationsOfAllMicroBatchesInFlight) {
  const std::vector<BlockProfile> profiles = {{.activation_bytes = 10, .parameter_bytes = 3},
                                              {.activation_bytes = 1, .parameter_bytes = 30}};
  EXPECT_THAT(SizeCosts(profiles, 1), ElementsAre(13, 31));
  EXPECT_THAT(SizeCosts(profiles, 4), ElementsAre(43, 34));
}

// --- what measuring leaves behind
// -----------------------------------------------------------------

TEST(ProfileBlocksTest, LeavesTheRankAsItWas) {
  const absl::Status status = RunRanks(1, {}, [](RankHandle& handle) {
    Alone alone(handle);
    Rank& rank = alone.rank();
    const int64_t calls = handle.ledger().Mark().All().calls;  // those that make the mesh
    rank.timer.BeginStep(0);
    ProfileBlocks(rank, ModelOf({kFast, {.kept_bytes = 1000, .parameters = 1000}}), SettingsOf(),
                  Vectors());
    const StepTimes times = rank.timer.EndStep(0);
    EXPECT_EQ(times.Of(Phase::kForward), 0);
    EXPECT_EQ(times.Of(Phase::kBackward), 0);
    const TraceRecord record = rank.trace.Record();
    for (const TraceEvent& event : record.events) {
      EXPECT_THAT(event.name, Not(HasSubstr("b0")));
    }
    for (const MemoryClass memory_class :
         {MemoryClass::kParameters, MemoryClass::kGradients, MemoryClass::kOptimizerState,
          MemoryClass::kActivations, MemoryClass::kCommunication, MemoryClass::kWorkspace}) {
      EXPECT_EQ(alone.books().live(memory_class), 0) << Name(memory_class);
    }
    EXPECT_EQ(handle.ledger().Mark().All().calls, calls);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

// --- the option
// -----------------------------------------------------------------------------------

// The profiles that the ranks of a mesh {pp = 3} have; only rank 0 measures.
std::vector<std::vector<BlockProfile>> ProfilesOfRanks(const std::vector<Needs>& needs,
                                                       bool needed = true) {
  std::vector<std::vector<BlockProfile>> profiles(3);
  TrainingRun run;
  run.settings = SettingsOf();
  run.settings.mesh.pp = 3;
  run.dataset = std::make_shared<Vectors>();
  run.strategy.needs_profiles = [needed](const Config&, const Settings&) { return needed; };
  run.make_model = [&](const Config&, const Dataset&) { return ModelOf(needs); };
  const absl::Status status = RunRanks(3, {}, [&](RankHandle& handle) {
    Alone alone(handle, run.settings.mesh);
    profiles[handle.rank()] = ProfilesOfRun(run, alone.rank());
    const int64_t parameters = alone.books().peak(MemoryClass::kParameters);
    EXPECT_EQ(parameters > 0, needed && handle.rank() == 0) << handle.rank();
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  return profiles;
}

TEST(ProfilesOfRunTest, AllRanksHaveWhatTheFirstHasMeasured) {
  const auto profiles = ProfilesOfRanks({kFast, {.kept_bytes = 100'000, .parameters = 5'000}});
  ASSERT_EQ(profiles[0].size(), 2u);
  EXPECT_THAT(profiles, Each(profiles[0]));
  EXPECT_GT(profiles[0][0].nanos, 0);
  EXPECT_GT(profiles[0][1].activation_bytes, 100'000);
  EXPECT_GT(profiles[0][1].parameter_bytes, profiles[0][0].parameter_bytes);
}

TEST(ProfilesOfRunTest, NobodyMeasuresWhatNobodyNeeds) {
  EXPECT_THAT(ProfilesOfRanks({kFast}, /*needed=*/false), Each(ElementsAre()));
}

// Three stages.
Numbers Find(const BalanceOption& option, const std::vector<Needs>& needs) {
  std::vector<BlockProfile> profiles;
  if (NeedsProfiles(option)) profiles = Profile(needs);
  Numbers balance;
  const StagePlan plan = MakePlan(ModelOf(needs), profiles, GPipeSchedule(3, 1), option);
  for (const BlockRange& stage : plan.stages) balance.push_back(stage.size());
  return balance;
}

TEST(FindBalanceTest, AsTheOptionSays) {
  EXPECT_EQ(Find({.by = By::kTime}, {kSlowForward, kSlowForward, kFast, kFast, kSlowForward})[0],
            1);
  const std::vector<Needs> sizes = {{.parameters = 5'000}, {.parameters = 5'000}, {}, {}, {}};
  EXPECT_THAT(Find({.by = By::kSize}, sizes), ElementsAre(1, 1, 3));
  EXPECT_THAT(Find({.by = By::kGiven, .given = {2, 1, 2}}, sizes), ElementsAre(2, 1, 2));
  // The model states no costs: blocks count alike.
  EXPECT_THAT(Find({.by = By::kCost}, std::vector<Needs>(6)), ElementsAre(2, 2, 2));
}

TEST(DescribeBalanceTest, SaysHowToHaveItAgain) {
  const Model model = ModelOf({kFast, kFast});
  const std::vector<BlockProfile> profiles = {{.nanos = 1'500'000, .activation_bytes = 2'000'000},
                                              {.nanos = 3'000'000, .parameter_bytes = 4'000'000}};
  const auto note = [&](By by, int micro_batches) {
    return MakePlan(model, profiles, GPipeSchedule(2, micro_batches), {.by = by}).note;
  };
  EXPECT_EQ(note(By::kTime, 1), "balance = [1, 1], by time of blocks in ms: b0 1.5, b1 3");
  EXPECT_EQ(note(By::kSize, 2), "balance = [1, 1], by size of blocks in MB: b0 4, b1 4");
  EXPECT_EQ(note(By::kCost, 1), "");
}

absl::StatusOr<BalanceOption> Read(const std::string& table) {
  const auto config = Config::FromString("[pipeline]\n" + table, "a.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  ConfigReader reader(config->Table("pipeline"));
  const BalanceOption option = ReadBalance(reader);
  if (absl::Status status = reader.Finish(); !status.ok()) return status;
  return option;
}

TEST(ReadBalanceTest, AListOrAWay) {
  EXPECT_EQ(Read("")->by, By::kCost);
  EXPECT_EQ(Read("balance = \"cost\"")->by, By::kCost);
  EXPECT_EQ(Read("balance = \"time\"")->by, By::kTime);
  EXPECT_EQ(Read("balance = \"size\"")->by, By::kSize);
  const auto given = Read("balance = [2, 3]");
  EXPECT_EQ(given->by, By::kGiven);
  EXPECT_THAT(given->given, ElementsAre(2, 3));
}

TEST(ReadBalanceTest, NothingElse) {
  const auto problem = [](const std::string& table) {
    return std::string(Read(table).status().message());
  };
  EXPECT_THAT(problem("balance = \"tim\""),
              AllOf(HasSubstr("pipeline.balance is \"tim\"; did you mean \"time\"?"),
                    HasSubstr("\"cost\", \"time\" or \"size\"")));
  EXPECT_THAT(problem("balance = []"), HasSubstr("without blocks"));
  EXPECT_THAT(problem("balance = 3"),
              HasSubstr("expected a string or a list of whole numbers, such as balance = [2, 4]"));
  EXPECT_THAT(problem("balance = [1.5]"), HasSubstr("expected a string or a list"));
}

}  // namespace
}  // namespace lockstep
