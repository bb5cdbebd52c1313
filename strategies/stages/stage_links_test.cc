// What passes between stages, and along which edge: the line from one to the next, skips straight.

#include "strategies/stages/stage_links.h"

#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/run/testing/tested_local_model.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

class Skipper : public Block {
 public:
  using Names = std::vector<std::string>;

  Skipper(const std::string& name, int64_t outputs, const Names& stashes, const Names& pops)
      : Block(name) {
    AddParameter("weight", {1}, Init::Constant(1));  // what gradients are sent for
    cost.output_elements = outputs;
    for (const std::string& skip : stashes) DeclareStash(skip, 2 * outputs);
    for (const std::string& skip : pops) DeclarePop(skip);
  }

 protected:
  Variables Forward(Pass&, Variables inputs) override { return inputs; }
};

// Four stages of a block each, in the shape of a V: the first and the last on rank 0. There are
// four skips: "far" stays on rank 0, "near" on rank 1, and two go from one rank to the other.
Model MakeSkippers() {
  Model model;
  const auto add = [&](const std::string& name, int64_t outputs, const Skipper::Names& stashes,
                       const Skipper::Names& pops) {
    model.blocks.push_back(std::make_unique<Skipper>(name, outputs, stashes, pops));
  };
  add("b0", 3, {"far", "across", "beside"}, {});
  add("b1", 5, {"near"}, {});
  add("b2", 7, {}, {"beside", "near", "across"});
  add("b3", 9, {}, {"far"});
  return model;
}

const StagePlan kVShape = {.stages = {{0, 1}, {1, 2}, {2, 3}, {3, 4}},
                           .rank_of_stage = {0, 1, 1, 0}};
constexpr BatchKind kTwo = {.samples = 2};

// A rank of the V, with its stages.
class RankOfV {
 public:
  explicit RankOfV(RankHandle& handle)
      : mesh_(Mesh::Create({.pp = 2}, handle.comm()).value()),
        rank_(kernels_, mesh_, timer_, trace_),
        local_model_(rank_, MakeSkippers(), kVShape.RangesByRank()[handle.rank()], settings_, 1),
        links_(local_model_, kVShape, mesh_.pp()) {}

  StageLinks& links() { return links_; }

  // A tensor [2, features] of one number, and a variable of it.
  Tensor Filled(int64_t features, float number) {
    const Tensor tensor = kernels_.Empty({2, features});
    kernels_.Fill(tensor, number);
    return tensor;
  }
  Variable Result(int64_t features, float number) {
    return Variable(Filled(features, number), std::make_shared<GradientSlot>());
  }

  const Settings& settings() const { return settings_; }

 private:
  static Settings SettingsOfV() {
    Settings settings;
    settings.batch.size = 2;
    return settings;
  }

  const Settings settings_ = SettingsOfV();
  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  Mesh mesh_;
  StepTimer timer_{{}};
  Trace trace_{0, TraceWindow{}};
  Rank rank_;
  LocalModel local_model_;
  StageLinks links_;
};

std::vector<float> Numbers(const Variables& variables) {
  std::vector<float> numbers;
  for (const Variable& variable : variables) numbers.push_back(variable.value.data<float>()[0]);
  return numbers;
}

std::vector<float> Numbers(const std::vector<Tensor>& tensors) {
  std::vector<float> numbers;
  for (const Tensor& tensor : tensors) {
    numbers.push_back(tensor.defined() ? tensor.data<float>()[0] : -1);
  }
  return numbers;
}

// One forward of all stages and one backward, of which the numbers say where they come from.
void GoThrough(RankOfV& rank, int index) {
  StageLinks& links = rank.links();
  if (index == 0) {
    // In the order in which they are popped: "beside" and "across" by stage 2, "far" by stage 3.
    links.SendOutputs(0, kTwo,
                      {.line = {rank.Result(3, 1), rank.Result(3, 2)},
                       .skips = {rank.Result(6, 8), rank.Result(6, 3), rank.Result(6, 4)}});
    const StageVariables last = links.TakeInputs(3, kTwo);
    EXPECT_THAT(Numbers(last.line), ElementsAre(7));
    EXPECT_THAT(Numbers(last.skips), ElementsAre(4));
    links.SendGradients(3, kTwo, {.line = {rank.Filled(7, 70)}, .skips = {rank.Filled(6, 40)}});
    const StageGradients first = links.TakeGradients(0, kTwo);
    EXPECT_THAT(Numbers(first.line), ElementsAre(10, -1));
    EXPECT_THAT(Numbers(first.skips), ElementsAre(80, 30, 40));
  } else {
    const StageVariables second = links.TakeInputs(1, kTwo);
    EXPECT_THAT(Numbers(second.line), ElementsAre(1, 2));
    EXPECT_THAT(Numbers(second.skips), IsEmpty());
    links.SendOutputs(1, kTwo, {.line = {rank.Result(5, 5)}, .skips = {rank.Result(10, 6)}});
    const StageVariables third = links.TakeInputs(2, kTwo);
    EXPECT_THAT(Numbers(third.line), ElementsAre(5));
    EXPECT_THAT(Numbers(third.skips), ElementsAre(8, 6, 3));
    EXPECT_TRUE(third.skips[1].needs_gradient());
    links.SendOutputs(2, kTwo, {.line = {rank.Result(7, 7)}, .skips = {}});
    EXPECT_THAT(Numbers(links.TakeGradients(2, kTwo).line), ElementsAre(70));
    links.SendGradients(2, kTwo,
                        {.line = {rank.Filled(5, 50)},
                         .skips = {rank.Filled(6, 80), rank.Filled(10, 60), rank.Filled(6, 30)}});
    const StageGradients of_second = links.TakeGradients(1, kTwo);
    EXPECT_THAT(Numbers(of_second.line), ElementsAre(50));
    EXPECT_THAT(Numbers(of_second.skips), ElementsAre(60));
    // One of the variables has no gradient.
    links.SendGradients(1, kTwo, {.line = {rank.Filled(3, 10), Tensor()}, .skips = {}});
  }
  links.AwaitSent();
}

void OnBothRanks(const std::function<void(RankHandle&, RankOfV&)>& run) {
  const absl::Status status = RunRanks(2, {}, [&](RankHandle& handle) {
    RankOfV rank(handle);
    run(handle, rank);
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

TEST(StageLinksTest, TheLineGoesFromStageToStageAndSkipsStraight) {
  OnBothRanks([](RankHandle& handle, RankOfV& rank) { GoThrough(rank, handle.rank()); });
}

TEST(StageLinksTest, NothingOfARanksOwnIsSent) {
  OnBothRanks([](RankHandle& handle, RankOfV& rank) {
    GoThrough(rank, handle.rank());
    const CommTotals traffic = handle.ledger().Mark();
    const auto sent = [&](const char* label) {
      return traffic.Of(Operation::kSend, label).wire_bytes;
    };
    constexpr int64_t kSamples = 2, kFloat = 4;
    const bool first = handle.rank() == 0;
    EXPECT_EQ(sent("activations"), (first ? 2 * 3 : 7) * kSamples * kFloat);
    EXPECT_EQ(sent("activation gradients"), (first ? 7 : 3) * kSamples * kFloat);
    EXPECT_EQ(sent("skips"), (first ? 2 * 6 : 0) * kSamples * kFloat);
    EXPECT_EQ(sent("skip gradients"), (first ? 0 : 2 * 6) * kSamples * kFloat);
    // A line each way, and a skip, whose ends announce what goes from them.
    EXPECT_EQ(sent(kAnnouncementLabel), 3 * kAnnouncementBytes);
  });
}

TEST(StageLinksTest, PredictsWhatItSends) {
  OnBothRanks([](RankHandle& handle, RankOfV& rank) {
    CostPrediction prediction;
    rank.links().AddTraffic(rank.settings(), /*token_fraction=*/0.5, prediction);
    std::vector<std::pair<std::string, double>> predicted;
    for (const CostPrediction::Traffic& traffic : prediction.traffic) {
      predicted.emplace_back(traffic.label, traffic.wire_bytes);
    }
    using Kind = std::pair<std::string, double>;
    const bool first = handle.rank() == 0;
    // Half of the tokens of two samples, at four bytes an element.
    EXPECT_THAT(predicted,
                UnorderedElementsAre(Kind(kAnnouncementLabel, 3 * kAnnouncementBytes),
                                     Kind("activations", (first ? 3 : 7) * 4),
                                     Kind("activation gradients", (first ? 7 : 3) * 4),
                                     Kind(first ? "skips" : "skip gradients", 2 * 6 * 4)));
  });
}

// Announced by the first pass of a kind, expected from then on.
TEST(StageLinksTest, WhatIsExpectedTravelsMeanwhile) {
  OnBothRanks([](RankHandle& handle, RankOfV& rank) {
    GoThrough(rank, handle.rank());
    const auto in_flight = [&] {
      int count = 0;
      for (const LedgerEntry& entry : handle.ledger().Recent()) {
        const bool is_recv = entry.signature.operation == Operation::kRecv;
        if (is_recv && entry.state == LedgerEntry::State::kInFlight) ++count;
      }
      return count;
    };
    if (handle.rank() == 1) {
      rank.links().ExpectInputs(1, kTwo);
      EXPECT_EQ(in_flight(), 2);  // two tensors of the line
      rank.links().ExpectInputs(2, kTwo);
      EXPECT_EQ(in_flight(), 4);  // and two skips; the line comes from here
      rank.links().ExpectGradients(2, kTwo);
      EXPECT_EQ(in_flight(), 5);
    } else {
      rank.links().ExpectInputs(3, kTwo);
      EXPECT_EQ(in_flight(), 1);
      rank.links().ExpectGradients(0, kTwo);
      EXPECT_EQ(in_flight(), 4);  // of one of the line's no gradient comes
    }
    GoThrough(rank, handle.rank());
  });
}

}  // namespace
}  // namespace lockstep
