#include "core/run/strategy/updater.h"

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using Kind = LossScaleOptions::Kind;

constexpr int64_t kElements = 20;
constexpr float kInfinity = std::numeric_limits<float>::infinity();

// What a rank holds: an fp32 master, the fp16 copy that is computed with, and an fp16 gradient.
struct Held {
  std::vector<float> masters = {}, first_moment = {};
  std::vector<uint16_t> copies = {};
  double loss_scale = 0;

  bool operator==(const Held&) const = default;
};

// One rank's end of steps, without a model.
class RankUnderTest {
 public:
  RankUnderTest(RankHandle& handle, const Settings& settings)
      : mesh_(Mesh::Create(settings.mesh, handle.comm()).value()),
        timer_({}),
        trace_(handle.rank(), TraceWindow{}),
        rank_(kernels_, mesh_, timer_, trace_),
        master_(kernels_.Empty({kElements})),
        copy_(kernels_.Empty({kElements}, DType::kF16)),
        gradient_(kernels_.Empty({kElements}, DType::kF16)),
        updater_(rank_, settings, Trained()) {
    kernels_.Fill(master_, 1);
    kernels_.Cast(master_, copy_);
  }

  Updater& updater() { return updater_; }

  // A step whose gradients, scaled, are all `gradient`.
  StepResult Step(int64_t step, float gradient, double loss = 1) {
    kernels_.Fill(gradient_, gradient);
    return updater_.Step(step, loss, Trained());
  }

  Held Look() {
    Held held = {.loss_scale = updater_.loss_scale()};
    held.masters.resize(kElements);
    held.first_moment.resize(kElements);
    held.copies.resize(kElements);
    kernels_.CopyToHost(master_, held.masters.data());
    kernels_.CopyToHost(copy_, held.copies.data());
    kernels_.CopyToHost(updater_.State(Parameters())[0].tensor, held.first_moment.data());
    return held;
  }

  std::vector<StateTensor> Parameters() { return {{"w", master_, {kElements}}}; }
  Kernels& kernels() { return kernels_; }

 private:
  std::vector<TrainedTensor> Trained() {
    return {{.name = "w", .value = master_, .gradient = gradient_, .copy = copy_}};
  }

  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  Mesh mesh_;
  StepTimer timer_;
  Trace trace_;
  Rank rank_;
  Tensor master_, copy_, gradient_;
  Updater updater_;
};

Settings Fp16(const MeshShape& mesh) {
  Settings settings;
  settings.mesh = mesh;
  settings.precision = {.compute = DType::kF16,
                        .reduce = DType::kF16,
                        .loss_scale = {.kind = Kind::kDynamic, .initial = 1024, .interval = 3}};
  settings.schedule.peak = 0.01;
  return settings;
}

void ForRanks(const Settings& settings, const std::function<void(RankUnderTest&, int)>& run) {
  const absl::Status status = RunRanks(settings.mesh.ranks(), {}, [&](RankHandle& handle) {
    RankUnderTest rank(handle, settings);
    run(rank, handle.rank());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(UpdaterTest, AnOverflowOnOneRankOfAnyAxisSkipsTheStepOnAll) {
  for (const MeshShape& mesh : {MeshShape{.dp = 3}, MeshShape{.tp = 2}, MeshShape{.pp = 2},
                                MeshShape{.pp = 2, .dp = 2, .tp = 2}}) {
    for (const float bad : {kInfinity, -kInfinity, std::nanf("")}) {
      ForRanks(Fp16(mesh), [&](RankUnderTest& rank, int index) {
        EXPECT_FALSE(rank.Step(0, 512).skipped);
        const Held before = rank.Look();
        const StepResult result = rank.Step(1, index == mesh.ranks() - 1 ? bad : 512);
        EXPECT_TRUE(result.skipped) << "rank " << index;
        EXPECT_EQ(result.loss_scale, 1024);
        Held after = rank.Look();
        EXPECT_EQ(after.loss_scale, 512);
        after.loss_scale = before.loss_scale;
        EXPECT_EQ(after, before) << "rank " << index << " of a skipped step";
      });
    }
  }
}

// Without a loss scale the run stops behind such a step, with what it had before it, or goes on
// with what the update makes of it.
TEST(UpdaterTest, GradientsThatAreNotFiniteUpdateNothingInARunThatStops) {
  Settings settings = Fp16({});
  settings.precision.loss_scale = {};
  for (const OnNan on_nan : {OnNan::kStop, OnNan::kContinue}) {
    settings.on_nan = on_nan;
    ForRanks(settings, [&](RankUnderTest& rank, int) {
      rank.Step(0, 1);
      const Held before = rank.Look();
      EXPECT_FALSE(rank.Step(1, kInfinity).skipped);
      EXPECT_EQ(rank.Look() == before, on_nan == OnNan::kStop);
    });
  }
}

// Neither a scale that falls below 1 nor a gradient that is finite lets the step change anything.
TEST(UpdaterTest, ALossThatIsNotFiniteLeavesTheScaleToARunThatStops) {
  Settings settings = Fp16({.dp = 2});
  settings.precision.loss_scale.initial = 1.5;
  for (const float gradient : {kInfinity, 1.0f}) {
    for (const double loss : {std::nan(""), static_cast<double>(kInfinity)}) {
      ForRanks(settings, [&](RankUnderTest& rank, int) {
        rank.Step(0, 1);
        const Held before = rank.Look();
        for (int i = 0; i < 2; ++i) EXPECT_EQ(rank.Step(1, gradient, loss).loss_scale, 1.5);
        EXPECT_EQ(rank.Look(), before);
      });
    }
  }
  settings.on_nan = OnNan::kContinue;
  ForRanks(settings, [](RankUnderTest& rank, int) {
    EXPECT_THROW(rank.Step(0, kInfinity, std::nan("")), StatusException);
  });
}

// A run with a skipped step in the middle ends as one that never had it: no count of steps moved.
TEST(UpdaterTest, ASkippedStepIsAsIfItHadNotBeen) {
  Held with, without;
  ForRanks(Fp16({}), [&](RankUnderTest& rank, int) {
    rank.Step(0, 1024);
    rank.Step(1, kInfinity);
    rank.Step(2, 512);  // of half the scale
    with = rank.Look();
  });
  ForRanks(Fp16({}), [&](RankUnderTest& rank, int) {
    rank.Step(0, 1024);
    rank.Step(1, 1024);
    without = rank.Look();
  });
  EXPECT_EQ(with.masters, without.masters);
  EXPECT_EQ(with.first_moment, without.first_moment);
  EXPECT_EQ(with.copies, without.copies);
}

// Against a plain fp32 optimizer on unscaled gradients.
TEST(UpdaterTest, GradientsAreUnscaledOnceAndBeforeClipping) {
  Settings settings = Fp16({});
  settings.clip_norm = 1;
  settings.optimizer = {.rule = Sgd()};
  ForRanks(settings, [&](RankUnderTest& rank, int) {
    const double norm = 0.5 * std::sqrt(static_cast<double>(kElements));  // above 1: clipped
    const StepResult result = rank.Step(0, 512);
    EXPECT_NEAR(result.gradient_norm, norm, 1e-6);
    EXPECT_NEAR(rank.Look().masters[0], 1 - 0.01 * 0.5 / norm, 1e-6);
  });
}

TEST(UpdaterTest, TheScaleGoesIntoCheckpointsAndComesBack) {
  std::vector<double> kept(3);
  ForRanks(Fp16({}), [&](RankUnderTest& rank, int) {
    for (const float gradient : {1.0f, kInfinity, 1.0f, 1.0f}) rank.Step(0, gradient);
    const std::vector<StateTensor> state = rank.updater().State(rank.Parameters());
    EXPECT_EQ(state.back().name, "optimizer.loss_scale");
    rank.kernels().CopyToHost(state.back().tensor, kept.data());
  });
  EXPECT_EQ(kept, (std::vector<double>{512, 2, 1}));
  ForRanks(Fp16({}), [&](RankUnderTest& rank, int) {
    const std::vector<StateTensor> state = rank.updater().State(rank.Parameters());
    rank.kernels().CopyFromHost(kept.data(), state.back().tensor);
    rank.updater().Restored();
    EXPECT_EQ(rank.updater().loss_scale(), 512);
    rank.Step(4, 1);  // the third good step in a row
    EXPECT_EQ(rank.updater().loss_scale(), 1024);
  });
}

TEST(UpdaterTest, AScaleBelowOneEndsTheRun) {
  Settings settings = Fp16({.dp = 2});
  settings.precision.loss_scale.initial = 1;
  ForRanks(settings, [&](RankUnderTest& rank, int index) {
    try {
      rank.Step(0, index == 0 ? kInfinity : 1);
      ADD_FAILURE() << "rank " << index << " went on";
    } catch (const StatusException& error) {
      EXPECT_THAT(std::string(error.status().message()), HasSubstr("below 1"));
    }
  });
}

TEST(UpdaterTest, CountsTheBytesOfEachParameter) {
  ForRanks(Fp16({}), [&](RankUnderTest& rank, int) {
    CostPrediction prediction;
    rank.updater().AddTo(prediction);
    std::vector<std::pair<std::string, double>> parts;
    for (const auto& part : prediction.per_parameter) parts.emplace_back(part.what, part.bytes);
    EXPECT_EQ(parts, (std::vector<std::pair<std::string, double>>{{"parameter", 2},
                                                                  {"gradient", 2},
                                                                  {"master weight", 4},
                                                                  {"first moment", 4},
                                                                  {"second moment", 4}}));
  });
}

}  // namespace
}  // namespace lockstep
