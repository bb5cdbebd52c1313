#include "strategies/context_parallel/context_parallel.h"

#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "core/nn/layers.h"
#include "strategies/context_parallel/gathered_attention.h"
#include "strategies/context_parallel/ring_attention.h"
#include "strategies/context_parallel/ulysses_attention.h"
#include "strategies/recompute/forwards_again.h"

namespace lockstep {
namespace {

absl::StatusOr<ContextAttention> ReadAttention(const Config& config) {
  ContextAttention attention = ContextAttention::kGather;
  ConfigReader reader(config.Table(kContextParallelTable));
  reader.ReadChoice("attention", &attention,
                    {{"gather", ContextAttention::kGather},
                     {"ring", ContextAttention::kRing},
                     {"ulysses", ContextAttention::kUlysses}});
  LS_RETURN_IF_ERROR(reader.Finish());
  return attention;
}

std::unique_ptr<ContextGroup> MakeGroup(ContextAttention attention, Communicator& ranks) {
  if (attention == ContextAttention::kRing) return std::make_unique<RingAttention>(ranks);
  if (attention == ContextAttention::kUlysses) return std::make_unique<UlyssesAttention>(ranks);
  return std::make_unique<GatheredAttention>(ranks);
}

// The layers of some blocks that make queries, keys and values.
std::vector<const QkvLayer*> QkvLayersOf(Block& block) {
  std::vector<const QkvLayer*> layers;
  for (Module* module : block.Modules()) {
    if (const auto* layer = dynamic_cast<QkvLayer*>(module)) layers.push_back(layer);
  }
  return layers;
}

// Widths of a rank's part of a layer: of all queries, and of all keys and values.
struct Widths {
  explicit Widths(const QkvLayer& layer)
      : queries(layer.Attend({}).heads * layer.Attend({}).head_width),
        keys_and_values(layer.weight().slice_shape()[0] - queries) {}
  int64_t queries, keys_and_values;
};

// Elements that the attention of a local model makes for each token of a rank, in forward,
// recomputed ones each time, and in backward.
struct TokenElements {
  int64_t queries = 0, keys_and_values = 0;
};
struct AttentionElements {
  TokenElements forward, backward;
};
// `forwards`: how often the local model runs a micro-batch forward.
AttentionElements ElementsPerToken(const LocalModel& local_model, int forwards) {
  const Model& model = local_model.model();
  AttentionElements sum;
  const auto add = [](const Widths& widths, int64_t times, TokenElements& to) {
    to.queries += times * widths.queries;
    to.keys_and_values += times * widths.keys_and_values;
  };
  for (const BlockRange& blocks : local_model.ranges()) {
    for (int64_t i = blocks.begin; i < blocks.end; ++i) {
      Block& block = *model.blocks[i];
      for (const QkvLayer* layer : QkvLayersOf(block)) {
        const Widths widths(*layer);
        const int again =
            ForwardsAgain(model, block, {.kind = "attention", .module = layer->name()});
        add(widths, forwards + again, sum.forward);
        if (NeedsOf(model, layer->name()).of_output) add(widths, 1, sum.backward);
      }
    }
  }
  return sum;
}

// Whether the heads of each rank along tp divide among those along cp.
absl::Status CheckHeads(const QkvLayer& layer, const MeshShape& mesh) {
  const Widths widths(layer);
  const int64_t head = layer.Attend({}).head_width;
  for (const auto& [heads, what] :
       {std::pair(widths.queries / head, "attention heads"),
        std::pair(widths.keys_and_values / 2 / head, "heads of keys")}) {
    if (heads % (static_cast<int64_t>(mesh.tp) * mesh.cp) == 0) continue;
    return InvalidArgument("context_parallel.attention is \"ulysses\", but layer '", layer.name(),
                           "' has ", heads, " ", what, ", which do not divide among ", mesh.cp,
                           " ranks along cp", mesh.tp > 1 ? " of each rank along tp" : "",
                           "; change mesh.cp, or use \"gather\" or \"ring\"");
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status CheckContextParallelOptions(const Config& config) {
  return ReadAttention(config).status();
}

absl::Status CheckContextParallelModel(const Config& config, const Settings& settings,
                                       const Model& model) {
  if (settings.mesh.cp == 1) return absl::OkStatus();
  if (!model.splits_sequence) {
    return InvalidArgument("mesh.cp is ", settings.mesh.cp,
                           ", but this model has no sequence of tokens to divide; leave it out");
  }
  LS_ASSIGN_OR_RETURN(const ContextAttention attention, ReadAttention(config));
  if (attention != ContextAttention::kUlysses) return absl::OkStatus();
  for (const auto& block : model.blocks) {
    for (const QkvLayer* layer : QkvLayersOf(*block)) {
      LS_RETURN_IF_ERROR(CheckHeads(*layer, settings.mesh));
    }
  }
  return absl::OkStatus();
}

ContextParallel::ContextParallel(const StrategyInputs& inputs)
    : ranks_(inputs.rank.mesh.cp()),
      settings_(inputs.settings),
      attention_(ReadAttention(inputs.config).value()),
      time_(inputs.targets_per_sample),
      group_(ranks_.size() == 1 ? nullptr : MakeGroup(attention_, ranks_)) {}

Model ContextParallel::Divide(Model model, Sums sums) {
  if (group_ == nullptr) return model;
  model.context = group_.get();
  if (sums == Sums::kWithShards) return model;
  for (Parameter* parameter : model.Parameters()) parameter->context_over = group_.get();
  return model;
}

// Theory: a rank sends its own keys and values to each other rank, in forward and in backward, or
// in a ring all but the next rank's to the next; and to each other rank what its queries add to the
// gradients of that rank's keys and values. Where ranks divide heads, it sends all but its own
// heads of its tokens: queries, keys, values and outputs in forward, and their gradients.
void ContextParallel::AddTraffic(const LocalModel& local_model, int micro_batches,
                                 Checkpointing checkpointing, CostPrediction& prediction) const {
  if (group_ == nullptr) return;
  struct Elements {
    double queries = 0, keys_and_values = 0;
  } forward, backward;
  int64_t choices = 0;  // numbers that routers gather
  for (int i = 0; i < micro_batches; ++i) {
    const int forwards = Forwards(i, micro_batches, checkpointing);
    const AttentionElements token = ElementsPerToken(local_model, forwards);
    if (local_model.model().counts_choices) choices += RoutedExperts(local_model, forwards);
    const auto tokens = static_cast<double>(settings_.samples_of(i) * time_);
    const auto add = [tokens](const TokenElements& of_token, Elements& to) {
      to.queries += tokens * static_cast<double>(of_token.queries);
      to.keys_and_values += tokens * static_cast<double>(of_token.keys_and_values);
    };
    add(token.forward, forward);
    add(token.backward, backward);
  }
  const double runs = static_cast<double>(settings_.micro_batches_of_rank()) / micro_batches;
  const double bytes = runs * static_cast<double>(SizeOf(settings_.precision.compute));
  const auto add = [&](Operation operation, const char* label, double elements) {
    if (elements > 0) {
      prediction.AddTraffic(operation, label, RingFraction(ranks_.size()) * bytes * elements);
    }
  };
  if (attention_ == ContextAttention::kUlysses) {
    const auto of_heads = [this](const Elements& elements) {  // of this rank's tokens
      return (2 * elements.queries + elements.keys_and_values) / ranks_.size();
    };
    add(Operation::kAllToAll, kHeads, of_heads(forward));
    add(Operation::kAllToAll, kHeadGradients, of_heads(backward));
  } else {
    add(attention_ == ContextAttention::kRing ? Operation::kSend : Operation::kAllGather,
        kKeysAndValues, forward.keys_and_values + backward.keys_and_values);
    add(Operation::kReduceScatter, kKeyAndValueGradients, backward.keys_and_values);
  }
  if (choices > 0) {
    prediction.AddCollective(Operation::kAllGather, kExpertChoices, ranks_.size(),
                             runs * ranks_.size() * static_cast<double>(choices) * sizeof(int64_t));
  }
  int64_t gradients = 0;
  for (const Parameter* use : local_model.uses()) {
    if (use->context_over == group_.get()) gradients += use->held_shape().elements();
  }
  if (gradients == 0) return;
  prediction.AddCollective(Operation::kAllReduce, kTokenGradients, ranks_.size(),
                           static_cast<double>(gradients * settings_.shards_of_rank() *
                                               SizeOf(settings_.precision.reduce)));
}

}  // namespace lockstep
