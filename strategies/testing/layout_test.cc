// The layout of every strategy, held to what its ranks have in memory.

#include <cstring>
#include <functional>
#include <iterator>  // std::ssize
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/layout/model_layout.h"
#include "core/run/leg/batches.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/cp/cp.h"
#include "strategies/ddp/ddp.h"
#include "strategies/ep/ep.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/fsdp_pipe/fsdp_pipe.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/layerwise/layerwise.h"
#include "strategies/naive_ddp/naive_ddp.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/tp/tp.h"
#include "strategies/zero1/zero1.h"
#include "strategies/zero2/zero2.h"

namespace lockstep {
namespace {

// By tensor, the bits of its elements.
using Values = std::map<std::string, std::vector<uint64_t>>;

std::vector<uint64_t> ElementsOf(const Tensor& tensor) {
  std::vector<uint64_t> elements(tensor.elements());
  const auto* bytes = reinterpret_cast<const char*>(tensor.raw());
  const int64_t size = SizeOf(tensor.dtype());
  for (int64_t i = 0; i < tensor.elements(); ++i) {
    std::memcpy(&elements[i], bytes + i * size, size);
  }
  return elements;
}

// What the ranks hold of each tensor of `state`, and how often. All ranks together.
class Whole {
 public:
  void Add(const std::vector<StateTensor>& state) {
    for (const StateTensor& tensor : state) {
      std::vector<Element>& whole = elements_[tensor.name];
      whole.resize(tensor.full_shape.elements());
      const std::vector<uint64_t> values = ElementsOf(tensor.tensor);
      for (const ElementRange& run : tensor.held().ElementRanges()) {
        for (int64_t i = 0; i < run.elements; ++i) {
          Element& element = whole[run.in_whole + i];
          element.holders += 1;
          element.writers += tensor.is_writer;
          element.agrees &= element.holders == 1 || element.value == values[run.in_slice + i];
          element.value = values[run.in_slice + i];
        }
      }
    }
  }

  // Each element is held by as many ranks as its tensor has copies, with one value, and written
  // once.
  void ExpectCovered(const std::function<int(const std::string&)>& copies) const {
    for (const auto& [name, whole] : elements_) {
      for (size_t i = 0; i < whole.size(); ++i) {
        ASSERT_EQ(whole[i].holders, copies(name)) << name << " " << i;
        ASSERT_EQ(whole[i].writers, 1) << name << " " << i;
        ASSERT_TRUE(whole[i].agrees) << name << " " << i;
      }
    }
  }

  Values values() const {
    Values values;
    for (const auto& [name, whole] : elements_) {
      for (const Element& element : whole) values[name].push_back(element.value);
    }
    return values;
  }

 private:
  struct Element {
    int holders = 0, writers = 0;
    bool agrees = true;
    uint64_t value = 0;
  };
  std::map<std::string, std::vector<Element>> elements_;
};

std::string Describe(const std::string& name, const TensorSlice& part, DType dtype, bool is_writer,
                     bool is_frozen) {
  return absl::StrCat(name, " ", Name(dtype), " ", part.elements, " of ", part.ToText(),
                      is_writer ? " written" : "", is_frozen ? " frozen" : "");
}

// What a rank has as its state.
std::vector<std::string> Describe(const std::vector<StateTensor>& state) {
  std::vector<std::string> lines;
  for (const StateTensor& tensor : state) {
    lines.push_back(Describe(tensor.name, tensor.held(), tensor.tensor.dtype(), tensor.is_writer,
                             tensor.is_frozen));
  }
  return lines;
}

// What a layout says of it, the optimizer's state included.
std::vector<std::string> Describe(const std::vector<TensorPlacement>& placements,
                                  const std::vector<std::string>& optimizer_states) {
  std::vector<std::string> lines;
  for (const TensorPlacement& p : placements) {
    lines.push_back(Describe(p.name, p.held, p.dtype, p.is_writer, p.is_frozen));
  }
  for (const std::string& state : optimizer_states) {
    for (const TensorPlacement& p : placements) {
      if (p.is_frozen || p.name.find(".running_") != std::string::npos) continue;
      lines.push_back(Describe(absl::StrCat(kOptimizerPrefix, state, ".", p.name), p.held,
                               DType::kF32, p.is_writer, false));
    }
  }
  return lines;
}

// The ranks of a run: their states at the start and after a step.
struct Ranks {
  Whole start, after;
  std::optional<ModelLayout> layout;  // as rank 0 computes it
  std::map<int, std::vector<std::string>> states;
  std::map<int, MemoryBooks> books;
  std::vector<std::string> optimizer_states;
};

Ranks Look(const StrategyDefinition& strategy, const std::string& config,
           const Assignments& assignments) {
  Ranks ranks;
  std::mutex mutex;
  OnStrategies(strategy, MakeModel, config, assignments,
               [&](const TrainingRun& run, Rank& rank, Strategy& made) {
                 {
                   const std::lock_guard lock(mutex);
                   ranks.books[rank.rank] = rank.allocator().books();
                   ranks.states[rank.rank] = Describe(made.State());
                   ranks.start.Add(made.State());
                   if (rank.rank == 0) ranks.layout = made.layout();
                   ranks.optimizer_states = StateNames(run.settings.optimizer.rule);
                 }
                 PrefetchedBatches batches(run, rank, 0, run.settings.steps, made.micro_batches());
                 made.TrainStep(0, batches);
                 const std::lock_guard lock(mutex);
                 ranks.after.Add(made.State());
               });
  return ranks;
}

// The bytes that the layout predicts are those of the books.
void ExpectBytes(const Ranks& ranks, int rank) {
  const auto states = static_cast<int64_t>(ranks.optimizer_states.size());
  const ModelLayout::KeptBytes kept = ranks.layout->Kept(rank, states);
  const MemoryBooks& books = ranks.books.at(rank);
  EXPECT_EQ(books.live(MemoryClass::kParameters), kept.parameters);
  EXPECT_EQ(books.live(MemoryClass::kOptimizerState), kept.optimizer_state);
}

struct Case {
  StrategyDefinition strategy;
  Assignments assignments;
  int shards = 1, tp = 1;
};

void ExpectLayout(const Case& c, SmallModel model, const Assignments& more = {}) {
  const Assignments common = With(more, {"cut.micro_batches=2", "run.threads=1"});
  const Assignments assignments = With(common, c.assignments);
  SCOPED_TRACE(absl::StrCat(c.strategy.name, " ", absl::StrJoin(assignments, " ")));
  const Ranks single = Look(SingleStrategy(), SmallConfig(model),
                            With(common, {absl::StrCat("cut.shards=", c.shards)}));
  const Ranks ranks = Look(c.strategy, SmallConfig(model), assignments);
  ASSERT_TRUE(ranks.layout.has_value());
  const MeshShape& mesh = ranks.layout->mesh();
  for (const auto& [rank, state] : ranks.states) {
    EXPECT_EQ(Describe(ranks.layout->Of(rank), ranks.optimizer_states), state) << rank;
    ExpectBytes(ranks, rank);
  }
  // By name, from the strategy's mesh alone.
  std::map<std::string, int> copies;
  const bool is_sharded = !ranks.layout->UnitsOf(0).empty();
  for (const ModelTensor& tensor : ranks.layout->tensors()) {
    const int of_experts = tensor.is_of_experts ? mesh.ep : 1;
    const int of_shards = is_sharded && !tensor.statistic ? 1 : mesh.dp * mesh.cp / of_experts;
    const bool is_split = mesh.tp > 1 && tensor.splits[0].slice != tensor.splits[1].slice;
    copies[tensor.name] = mesh.replicas * of_shards * (is_split ? 1 : mesh.tp);
  }
  const auto copies_of = [&](const std::string& name) {
    const size_t prefix = name.starts_with(kOptimizerPrefix) ? name.find('.', 10) + 1 : 0;
    return copies.at(name.substr(prefix));
  };
  ranks.start.ExpectCovered(copies_of);
  ranks.after.ExpectCovered(copies_of);
  EXPECT_EQ(ranks.start.values(), single.start.values());
  if (c.tp == 1) {
    EXPECT_EQ(ranks.after.values(), single.after.values());
  }
}

class LayoutTest : public ::testing::TestWithParam<SmallModel> {};

TEST_P(LayoutTest, IsWhatRanksHold) {
  for (const Case& c : {
           Case{NaiveDdpStrategy(), {"mesh.dp=2"}, 2},
           Case{DdpStrategy(), {"mesh.replicas=2", "mesh.dp=2"}, 4},
           Case{TpStrategy(), {"mesh.dp=2", "mesh.tp=2"}, 2, 2},
           Case{Zero1Strategy(), {"mesh.dp=3"}, 3},
           Case{Zero1Strategy(), {"mesh.dp=2", "mesh.tp=2"}, 2, 2},
           Case{Zero2Strategy(), {"mesh.replicas=2", "mesh.dp=2"}, 4},
           Case{FsdpStrategy(), {"mesh.dp=3"}, 3},
           Case{FsdpStrategy(), {"mesh.replicas=2", "mesh.dp=2", "mesh.tp=2"}, 4, 2},
           Case{Zero1Strategy(), {"mesh.pp=2", "mesh.dp=2"}, 2},
           Case{Zero2Strategy(), {"mesh.pp=2", "mesh.dp=2", "mesh.tp=2"}, 2, 2},
           Case{LayerwiseStrategy(), {"mesh.pp=3"}, 1},
           Case{GPipeStrategy(), {"mesh.pp=2", "mesh.dp=2", "pipeline.schedule=zb_v"}, 2},
           Case{GPipeStrategy(), {"mesh.pp=2", "mesh.dp=2", "mesh.tp=2"}, 2, 2},
           Case{FsdpPipeStrategy(), {"mesh.pp=2", "mesh.dp=3"}, 3},
           Case{FsdpPipeStrategy(), {"mesh.pp=2", "mesh.replicas=2", "mesh.dp=2"}, 4},
       }) {
    ExpectLayout(c, GetParam());
  }
}

INSTANTIATE_TEST_SUITE_P(Models, LayoutTest,
                         ::testing::Values(SmallModel::kGpt, SmallModel::kLlama,
                                           SmallModel::kResNet, SmallModel::kUNet),
                         [](const auto& parameter) { return Name(parameter.param); });

// Ranks that divide sequences hold the same.
TEST(LayoutOfTransformersTest, WithDividedSequences) {
  for (const Case& c : {Case{CpStrategy(), {"mesh.dp=2", "mesh.cp=2"}, 2},
                        Case{FsdpStrategy(), {"mesh.dp=2", "mesh.cp=2", "mesh.tp=2"}, 2, 2}}) {
    ExpectLayout(c, SmallModel::kGpt, {"cut.tokens=2"});
  }
}

// Experts that are divided too: weights in slices, units of their own.
TEST(LayoutOfTransformersTest, WithDividedExperts) {
  for (const Case& c :
       {Case{EpStrategy(), {"mesh.dp=4", "mesh.ep=2"}, 4},
        Case{Zero1Strategy(), {"mesh.dp=4", "mesh.ep=2"}, 4},
        Case{FsdpStrategy(), {"mesh.dp=2", "mesh.cp=2", "mesh.tp=2", "mesh.ep=2"}, 2, 2},
        Case{FsdpPipeStrategy(), {"mesh.pp=2", "mesh.dp=2", "mesh.ep=2"}, 2}}) {
    const Assignments experts = {"cut.tokens=2", "model.experts.count=4"};
    ExpectLayout(c, SmallModel::kLlama, experts);
    // One factor of an adapter is divided among experts alone: ranks along tp hold the same.
    ExpectLayout(c, SmallModel::kLlama,
                 With(experts, {"lora.rank=2", "lora.layers=['*.experts']"}));
  }
}

// A vocabulary that does not divide, and adapters on a frozen base.
TEST(LayoutOfTransformersTest, WithPaddingAndAdapters) {
  const Assignments heads = {"model.heads=3", "model.width=48"};
  const Assignments adapters = {"lora.rank=2", "lora.layers=[\"*attention*\"]"};
  for (const Case& c : {Case{TpStrategy(), {"mesh.tp=3"}, 1, 3},
                        Case{FsdpStrategy(), {"mesh.dp=2", "mesh.tp=3"}, 2, 3},
                        Case{FsdpPipeStrategy(), {"mesh.pp=2", "mesh.dp=2", "mesh.tp=3"}, 2, 3}}) {
    ExpectLayout(c, SmallModel::kGpt, heads);
    ExpectLayout(c, SmallModel::kGpt, With(heads, adapters));
  }
}

}  // namespace
}  // namespace lockstep
