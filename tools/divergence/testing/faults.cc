#include "tools/divergence/testing/faults.h"

#include <algorithm>  // std::find_if, std::swap_ranges
#include <map>
#include <memory>
#include <utility>

#include "core/checkpoint/checkpoint.h"
#include "core/nn/model.h"
#include "glog/logging.h"
#include "strategies/engine/preset.h"
#include "tools/divergence/testing/injection.h"

namespace lockstep {
namespace {

constexpr char kGpt[] = "gpt_markov", kLora[] = "gpt_lora", kMixture[] = "moe_markov",
               kResNet[] = "resnet_shapes";

Parameter& ParameterNamed(const Model& model, const std::string& name) {
  const std::vector<Parameter*> parameters = model.Parameters();
  const auto found =
      std::find_if(parameters.begin(), parameters.end(),
                   [&name](const Parameter* parameter) { return parameter->name == name; });
  CHECK(found != parameters.end()) << name;
  return **found;
}

Block& BlockNamed(const Model& model, const std::string& name) {
  const auto found = std::find_if(model.blocks.begin(), model.blocks.end(),
                                  [&name](const auto& block) { return block->name() == name; });
  CHECK(found != model.blocks.end()) << name;
  return **found;
}

void Scale(const Tensor& tensor, float factor) {
  for (float& x : tensor.span<float>()) x *= factor;
}

// Each micro-batch counts as much as any other one, however many samples it has.
void AverageMeans(const StrategyInputs& inputs, Injection& injection) {
  const Settings& settings = inputs.settings;
  const auto micro_batches = static_cast<double>(settings.cut.shards * settings.cut.micro_batches);
  const auto targets = static_cast<double>(settings.batch.size * inputs.targets_per_sample);
  const int ranks = settings.mesh.cp;  // that divide the rows
  injection.kernels.loss_factor = [=](float factor, int64_t rows) {
    return static_cast<float>(factor * targets /
                              (micro_batches * static_cast<double>(rows * ranks)));
  };
}

void LoseFactorSums(const StrategyInputs&, Injection& injection) {
  injection.lost = {"replicated gradients"};
}

void LoseTiedGradients(const StrategyInputs&, Injection& injection) {
  injection.lost = {"tied gradients"};
}

// The loss is divided by the number of micro-batches, and the schedule divides by it once more.
void ScaleLossTwice(const StrategyInputs& inputs, Injection& injection) {
  const auto micro_batches = static_cast<float>(inputs.settings.cut.shards);
  injection.kernels.loss_factor = [=](float factor, int64_t) { return factor / micro_batches; };
}

// The first third of the rows makes keys, and the second queries.
void SwapQueriesAndKeys(const StrategyInputs& inputs, Injection&) {
  const auto swap = [&weight =
                         ParameterNamed(inputs.model, "blocks.1.attention.qkv.weight")](Pass&) {
    float* rows = weight.value.data<float>();
    const int64_t third = weight.value.elements() / 3;
    std::swap_ranges(rows, rows + third, rows + third);
  };
  BlockNamed(inputs.model, "blocks.1").AddHooks({.before_forward = swap, .after_forward = swap});
}

// The last rank's queries are taken for those one leaf before.
void ShiftRuns(const StrategyInputs& inputs, Injection& injection) {
  if (inputs.rank.mesh.coordinate().cp + 1 < inputs.settings.mesh.cp) return;
  injection.kernels.first_query_leaf = [](int64_t leaf) { return leaf - 1; };
}

void CountDropoutLocally(const StrategyInputs&, Injection& injection) {
  injection.kernels.dropout_element = [](int64_t) { return 0; };
}

// A bucket leaves rank 1 before the gradient of a bias has been added.
void ReduceTooEarly(const StrategyInputs& inputs, Injection&) {
  if (inputs.rank.rank != 1) return;
  Parameter& bias = ParameterNamed(inputs.model, "blocks.0.attention.projection.bias");
  BlockNamed(inputs.model, "blocks.0").AddHooks({.after_backward = [&bias] {
    Scale(bias.gradient, 0);
  }});
}

// A block computes with the parameter that its ranks unsharded in the step before.
void KeepUnshardedParameter(const StrategyInputs& inputs, Injection& injection) {
  Parameter& weight = ParameterNamed(inputs.model, "blocks.1.network.down.weight");
  Block& block = BlockNamed(inputs.model, "blocks.1");
  injection.made = [&weight, &block] {
    // Values by the step whose forward pass saw them first.
    auto values = std::make_shared<std::map<int64_t, std::vector<float>>>();
    block.AddHooks({.before_forward = [&weight, values](Pass& pass) {
      float* value = weight.value.data<float>();
      values->try_emplace(pass.step, value, value + weight.value.elements());
      const auto before = values->find(pass.step - 1);
      if (before != values->end()) std::copy(before->second.begin(), before->second.end(), value);
      values->erase(pass.step - 2);
    }});
  };
}

void LoseNormSums(const StrategyInputs&, Injection& injection) { injection.lost = {"norm"}; }

void AddBiasOnEachRank(const StrategyInputs& inputs, Injection&) {
  Parameter& bias = ParameterNamed(inputs.model, "blocks.0.attention.projection.bias");
  const auto ranks = static_cast<float>(inputs.settings.mesh.tp);
  BlockNamed(inputs.model, "blocks.0")
      .AddHooks({.before_forward = [&bias, ranks](Pass&) { Scale(bias.value, ranks); },
                 .after_forward = [&bias, ranks](Pass&) { Scale(bias.value, 1 / ranks); }});
}

void NormaliseByTheBatchBefore(const StrategyInputs&, Injection& injection) {
  injection.kernels.statistics_of_the_batch_before = true;
}

// The first two experts of each rank get each other's gradients.
void SwapExperts(const StrategyInputs& inputs, Injection&) {
  Parameter& down = ParameterNamed(inputs.model, "blocks.0.network.experts.down.weight");
  const int64_t experts = inputs.model.experts / inputs.settings.mesh.ep;
  BlockNamed(inputs.model, "blocks.0").AddHooks({.after_backward = [&down, experts] {
    for (int64_t leaf = 0; leaf < down.accumulators(); ++leaf) {
      const Tensor gradient = down.AccumulatorOf(leaf);
      float* first = gradient.data<float>();
      const int64_t elements = gradient.elements() / experts;
      std::swap_ranges(first, first + elements, first + elements);
    }
  }});
}

void DecayAll(const StrategyInputs&, Injection& injection) { injection.kernels.all_decay = true; }

void ForgetOptimizerState(const std::vector<StateTensor>& state) {
  for (const StateTensor& tensor : state) {
    if (IsOptimizerState(tensor.name)) Scale(tensor.tensor, 0);
  }
}

// A run that went on after its first step from a checkpoint; and one that does so indeed.
void RestoreWithoutOptimizer(const StrategyInputs&, Injection& injection) {
  injection.before_step = [](int64_t step, const std::vector<StateTensor>& state) {
    if (step == 1) ForgetOptimizerState(state);
  };
  injection.restored = ForgetOptimizerState;
}

void CountStepsFromTwo(const StrategyInputs&, Injection& injection) {
  injection.kernels.optimizer_step = [](OptimizerStep& step) { ++step.number; };
}

}  // namespace

std::vector<InjectedFault> AllFaults() {
  const StrategyDefinition engine = EnginePreset("engine", {});
  const auto fault = [&engine](const std::string& name, const std::string& workload, Inject inject,
                               std::vector<std::string> assignments,
                               std::vector<std::string> needs = {}) {
    return InjectedFault{.name = name,
                         .workload = workload,
                         .strategy = WithFault(engine, std::move(inject)),
                         .assignments = std::move(assignments),
                         .needs = std::move(needs)};
  };
  InjectedFault checkpoint =
      fault("checkpoint without optimizer state", kGpt, RestoreWithoutOptimizer, {});
  checkpoint.acts_on_resume = true;
  return {
      fault("mean of means over uneven micro-batches", kGpt, AverageMeans,
            {"mesh.dp=2", "cut.micro_batches=3"}),
      fault("missing sum of a replicated LoRA factor's gradient", kLora, LoseFactorSums,
            {"mesh.tp=2"}),
      fault("tied embedding's gradient not summed across stages", kGpt, LoseTiedGradients,
            {"mesh.pp=2"}),
      fault("loss scaled twice in a pipeline", kGpt, ScaleLossTwice, {"mesh.pp=2"}),
      fault("wrong slice of a packed qkv", kGpt, SwapQueriesAndKeys, {"mesh.tp=2"}),
      fault("off-by-one in the runs of context parallelism", kGpt, ShiftRuns, {"mesh.cp=2"}),
      fault("dropout mask by local index", kGpt, CountDropoutLocally, {"mesh.cp=2"},
            {"model.dropout=0.1"}),
      fault("bucket reduced before its last gradient", kGpt, ReduceTooEarly, {"mesh.dp=2"}),
      fault("stale unsharded parameter", kGpt, KeepUnshardedParameter,
            {"mesh.dp=2", "data_parallel.shard=parameters"}),
      // Gradients must be clipped for the norm to act on losses.
      fault("norm over local shards only", kGpt, LoseNormSums,
            {"mesh.dp=2", "data_parallel.shard=optimizer"}, {"train.clip_norm=0.1"}),
      fault("bias added on each tensor-parallel rank", kGpt, AddBiasOnEachRank, {"mesh.tp=2"}),
      fault("batch statistics of the wrong micro-batch", kResNet, NormaliseByTheBatchBefore,
            {"train.on_nan=continue"}),
      fault("wrong expert's gradient", kMixture, SwapExperts, {"mesh.dp=2", "mesh.ep=2"}),
      fault("weight decay on the norms' parameters", kGpt, DecayAll, {}),
      checkpoint,
      fault("Adam's step count off by one", kGpt, CountStepsFromTwo, {}),
  };
}

InjectedFault FaultNamed(const std::string& name) {
  std::vector<InjectedFault> all = AllFaults();
  const auto found = std::find_if(
      all.begin(), all.end(), [&name](const InjectedFault& fault) { return fault.name == name; });
  CHECK(found != all.end()) << name;
  return *found;
}

}  // namespace lockstep
