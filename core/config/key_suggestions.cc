#include "core/config/key_suggestions.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/nearest.h"
#include "core/config/key_meanings.h"

namespace lockstep {
namespace {

struct ForeignName {
  const char* theirs;  // a key without its table
  const char* ours;    // dotted
};

// Names that PyTorch, Megatron-LM, Hugging Face's transformers and PEFT, torchtitan, nanoGPT and
// Lightning have for our keys.
constexpr auto kForeignKeys = std::to_array<ForeignName>({
    {"accumulate_grad_batches", "cut.micro_batches"},
    {"activation_checkpoint", "recompute.granularity"},
    {"activation_checkpointing", "recompute.granularity"},
    {"adam_beta1", "optimizer.beta1"},
    {"adam_beta2", "optimizer.beta2"},
    {"adam_eps", "optimizer.epsilon"},
    {"batch_size", "batch.size"},
    {"block_size", "data.context"},
    {"chunks", "cut.micro_batches"},
    {"clip_grad", "train.clip_norm"},
    {"context_length", "data.context"},
    {"context_parallel_degree", "mesh.cp"},
    {"context_parallel_size", "mesh.cp"},
    {"cp_comm_type", "context_parallel.attention"},
    {"d_ff", "model.mlp_width"},
    {"d_model", "model.width"},
    {"data_parallel_replicate_degree", "mesh.replicas"},
    {"data_parallel_shard_degree", "mesh.dp"},
    {"data_parallel_size", "mesh.dp"},
    {"dim", "model.width"},
    {"dtype", "precision.compute"},
    {"embed_dim", "model.width"},
    {"eps", "optimizer.epsilon"},
    {"eval_interval", "validation.every"},
    {"eval_iters", "validation.batches"},
    {"eval_steps", "validation.every"},
    {"expert_model_parallel_size", "mesh.ep"},
    {"expert_parallel_degree", "mesh.ep"},
    {"ffn_hidden_size", "model.mlp_width"},
    {"global_batch_size", "batch.size"},
    {"grad_accum", "cut.micro_batches"},
    {"grad_clip", "train.clip_norm"},
    {"gradient_accumulation_steps", "cut.micro_batches"},
    {"gradient_checkpointing", "recompute.granularity"},
    {"gradient_clip_val", "train.clip_norm"},
    {"hidden_dim", "model.width"},
    {"hidden_size", "model.width"},
    {"intermediate_size", "model.mlp_width"},
    {"learning_rate", "schedule.learning_rate"},
    {"lora_alpha", "lora.alpha"},
    {"lora_dropout", "lora.dropout"},
    {"loss_scale", "precision.loss_scaling"},
    {"lr", "schedule.learning_rate"},
    {"lr_decay_iters", "schedule.total_steps"},
    {"lr_decay_style", "schedule.kind"},
    {"lr_scheduler_type", "schedule.kind"},
    {"lr_warmup_iters", "schedule.warmup_steps"},
    {"max_epochs", "train.epochs"},
    {"max_grad_norm", "train.clip_norm"},
    {"max_iters", "train.steps"},
    {"max_norm", "train.clip_norm"},
    {"max_position_embeddings", "data.context"},
    {"max_steps", "train.steps"},
    {"micro_batch_size", "cut.micro_batches"},
    {"min_lr", "schedule.floor"},
    {"lr_wsd_decay_iters", "schedule.decay_steps"},
    {"mixed_precision", "precision.compute"},
    {"moe_router_topk", "model.experts.top_k"},
    {"n_ctx", "data.context"},
    {"n_embd", "model.width"},
    {"n_head", "model.heads"},
    {"n_heads", "model.heads"},
    {"n_kv_heads", "model.key_heads"},
    {"n_layer", "model.layers"},
    {"n_layers", "model.layers"},
    {"n_positions", "data.context"},
    {"num_attention_heads", "model.heads"},
    {"num_experts", "model.experts.count"},
    {"num_experts_per_tok", "model.experts.top_k"},
    {"num_heads", "model.heads"},
    {"num_hidden_layers", "model.layers"},
    {"num_key_value_heads", "model.key_heads"},
    {"num_layers", "model.layers"},
    {"num_local_experts", "model.experts.count"},
    {"num_microbatches", "cut.micro_batches"},
    {"num_query_groups", "model.key_heads"},
    {"num_train_epochs", "train.epochs"},
    {"num_warmup_steps", "schedule.warmup_steps"},
    {"params_dtype", "precision.compute"},
    {"per_device_train_batch_size", "batch.size"},
    {"pipeline_model_parallel_size", "mesh.pp"},
    {"pipeline_parallel_degree", "mesh.pp"},
    {"pipeline_parallel_schedule", "pipeline.schedule"},
    {"r", "lora.rank"},
    {"recompute_granularity", "recompute.granularity"},
    {"reduce_dtype", "precision.reduce"},
    {"reshard_after_forward", "data_parallel.reshard"},
    {"rms_norm_eps", "model.norm_epsilon"},
    {"rotary_base", "model.rope_theta"},
    {"save_interval", "checkpoint.every"},
    {"save_steps", "checkpoint.every"},
    {"save_total_limit", "checkpoint.keep"},
    {"seq_len", "data.context"},
    {"seq_length", "data.context"},
    {"sharding_strategy", "data_parallel.shard"},
    {"target_modules", "lora.layers"},
    {"tensor_model_parallel_size", "mesh.tp"},
    {"tensor_parallel_degree", "mesh.tp"},
    {"tie_word_embeddings", "model.head"},
    {"train_iters", "train.steps"},
    {"use_rslora", "lora.rank_stabilised"},
    {"vocab_size", "data.vocabulary"},
    {"warmup_iters", "schedule.warmup_steps"},
    {"zero_stage", "data_parallel.shard"},
});

constexpr auto kForeignTables = std::to_array<ForeignName>({
    {"activation_checkpoint", "recompute"},
    {"amp", "precision"},
    {"dataset", "data"},
    {"fsdp", "data_parallel"},
    {"lr_scheduler", "schedule"},
    {"optim", "optimizer"},
    {"parallelism", "mesh"},
    {"peft", "lora"},
    {"scheduler", "schedule"},
    {"trainer", "train"},
    {"training", "train"},
    {"zero_optimization", "data_parallel"},
});

struct ForeignChoice {
  const char* key;
  const char* theirs;
  const char* ours;          // a choice
  const char* besides = "";  // what it takes, too
};

constexpr auto kForeignChoices = std::to_array<ForeignChoice>({
    {"data_parallel.shard", "ddp", "none"},
    {"data_parallel.shard", "fsdp", "parameters"},
    {"data_parallel.shard", "full_shard", "parameters"},
    {"data_parallel.shard", "zero1", "optimizer"},
    {"data_parallel.shard", "zero2", "gradients"},
    {"data_parallel.shard", "zero3", "parameters"},
    {"model.kind", "gpt", "transformer"},
    {"model.kind", "gpt2", "transformer"},
    {"model.kind", "mistral", "llama"},
    {"model.kind", "mixtral", "llama", "a table model.experts"},
    {"model.kind", "moe", "llama", "a table model.experts"},
    {"model.kind", "resnet18", "resnet", "model.depth = 18"},
    {"model.kind", "resnet34", "resnet", "model.depth = 34"},
    {"model.kind", "resnet50", "resnet", "model.depth = 50"},
    {"optimizer.kind", "adam", "adamw", "optimizer.weight_decay = 0"},
    {"precision.compute", "bfloat16", "bf16"},
    {"precision.compute", "float16", "fp16"},
    {"precision.compute", "float32", "fp32"},
    {"precision.compute", "half", "fp16"},
    {"precision.reduce", "bfloat16", "bf16"},
    {"precision.reduce", "float16", "fp16"},
    {"precision.reduce", "float32", "fp32"},
    {"schedule.kind", "cosine_with_min_lr", "cosine"},
    {"schedule.kind", "multistep", "step"},
    {"schedule.kind", "trapezoidal", "wsd"},
    {"schedule.kind", "warmup_stable_decay", "wsd"},
});

std::string Join(const std::string& table, const std::string& key) {
  return absl::StrCat(table, table.empty() ? "" : ".", key);
}

std::string_view LastPart(std::string_view key) { return key.substr(key.rfind('.') + 1); }

// Beyond this distance two names have nothing to do with each other.
int64_t FarthestOf(std::string_view name) {
  return std::max<int64_t>(1, static_cast<int64_t>(name.size()) / 3);
}

// The nearest of `names` to `name`, or one that begins with it; empty where none is near.
std::string Near(const std::string& name, std::span<const std::string> names) {
  const std::string nearest = NearestName(name, names);
  if (EditDistance(name, nearest) <= FarthestOf(name)) return nearest;
  const auto longer = std::ranges::find_if(
      names, [&name](const std::string& known) { return known.starts_with(name); });
  return longer == names.end() ? "" : *longer;
}

std::string ForeignKey(const std::string& key, std::span<const ForeignName> names) {
  const auto found = std::ranges::find(names, key, &ForeignName::theirs);
  return found == names.end() ? "" : found->ours;
}

// The nearest key of any table; empty where none is near.
std::string NearElsewhere(const std::string& table, const std::string& key) {
  std::string nearest;
  int64_t shortest = FarthestOf(key) + 1;
  for (const KeyMeaning& candidate : KeyMeanings()) {
    // A key of this very name that is unknown here belongs to another kind of the table.
    if (candidate.key == Join(table, key)) return "";
    const int64_t distance = EditDistance(key, LastPart(candidate.key));
    if (distance < shortest) {
      shortest = distance;
      nearest = candidate.key;
    }
  }
  return nearest;
}

std::string DidYouMean(const std::string& key) { return absl::StrCat("; did you mean ", key, "?"); }

// No program's table has a longer name, and messages about all of its keys would repeat it.
constexpr size_t kLongestTable = 60;

// The table that somebody meant by a name that no table has; empty where none is near.
std::string MeantTable(const std::string& name, std::span<const std::string> tables) {
  const std::string near = Near(name, tables);
  return near.empty() ? ForeignKey(name, kForeignTables) : near;
}

}  // namespace

std::string SuggestKey(const std::string& table, const std::string& key,
                       std::span<const std::string> known) {
  std::string meant = table.empty() ? MeantTable(key, known) : Near(key, known);
  if (!meant.empty()) meant = Join(table, meant);
  if (meant.empty()) meant = ForeignKey(key, kForeignKeys);
  if (meant.empty() || meant == Join(table, key)) meant = NearElsewhere(table, key);
  if (!meant.empty()) return DidYouMean(meant);
  if (known.empty()) return "";
  return absl::StrCat("; ", table.empty() ? "there are " : absl::StrCat("[", table, "] has "),
                      absl::StrJoin(known, ", "));
}

std::string SuggestKeyOfUnknownTable(const std::string& table, const std::string& key,
                                     std::span<const std::string> tables) {
  if (table.size() > kLongestTable) return "";
  const auto has = [&key](const std::string& some) {
    return !some.empty() && !MeaningOf(Join(some, key)).empty();
  };
  // The key has its right name, in a table that the strategy does not have or that is mistyped:
  // whoever asks says so of the table.
  if (has(table) || has(Near(table, tables))) return "";
  const std::string meant_table = MeantTable(table, tables);
  if (has(meant_table)) return DidYouMean(Join(meant_table, key));
  std::string meant = ForeignKey(key, kForeignKeys);
  if (meant.empty()) meant = NearElsewhere(table, key);
  return meant.empty() ? "" : DidYouMean(meant);
}

std::string SuggestChoice(const std::string& key, const std::string& name,
                          std::span<const std::string> choices) {
  const auto found = std::ranges::find_if(kForeignChoices, [&](const ForeignChoice& choice) {
    return choice.key == key && choice.theirs == name;
  });
  if (found != kForeignChoices.end()) {
    return absl::StrCat("did you mean \"", found->ours, "\"",
                        *found->besides == '\0' ? "" : " with ", found->besides, "? ");
  }
  const std::string nearest = Near(name, choices);
  return nearest.empty() ? "" : absl::StrCat("did you mean \"", nearest, "\"? ");
}

}  // namespace lockstep
