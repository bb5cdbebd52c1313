#include "core/config/key_meanings.h"

#include <algorithm>
#include <array>

namespace lockstep {
namespace {

constexpr auto kMeanings = std::to_array<KeyMeaning>({
    {"batch.size", "samples of a step, over all ranks"},

    {"checkpoint.best", "keeps the one behind the lowest validation loss, in best/"},
    {"checkpoint.every", "steps between checkpoints; 0: only at the end"},
    {"checkpoint.files", "a file for each rank, or one for all"},
    {"checkpoint.in_memory_every", "steps between copies of the state in memory; 0: none"},
    {"checkpoint.keep", "newest checkpoints that stay; 0: none is written"},
    {"checkpoint.on_damage", "a resumed run goes back to the newest sound one, or stops"},
    {"checkpoint.write", "beside training, or while the step waits"},

    {"comm.nccl_reductions", "NCCL's own order of sums, or the one of every other mesh"},

    {"context_parallel.attention", "how queries meet the keys and values of other ranks"},

    {"cut.features", "leaves of sums over the features that mesh.tp splits"},
    {"cut.micro_batches", "micro-batches of a shard, whose gradients are accumulated"},
    {"cut.shards", "parts of the batch, whose gradients are summed along a tree"},
    {"cut.tokens", "parts of a sequence, over which sums are trees"},

    {"data.augmentation_seed", "seed of random crops and flips"},
    {"data.context", "tokens of a sample"},
    {"data.crop_padding", "pixels that random crops may move an image by"},
    {"data.directory", "folder of CIFAR-10's binary files in the data folder"},
    {"data.distance", "tokens between a passage and its copy"},
    {"data.document_tokens", "mean length of packed documents; 0: a sample is one"},
    {"data.flip", "whether half of the images are mirrored"},
    {"data.invert_colours", "whether images are negatives"},
    {"data.kind", "what is trained on"},
    {"data.noise", "standard deviation of the noise on pixels"},
    {"data.order", "tokens before it that a token depends on"},
    {"data.path", "the file; unless absolute, in the data folder"},
    {"data.repeats", "tokens of a run of equal ones"},
    {"data.seed", "seed of the rendered images"},
    {"data.separator", "what ends a document: a character (text), a token (tokens)"},
    {"data.slots", "runs of a passage"},
    {"data.source", "which random source writes the text"},
    {"data.successors", "tokens that can follow a context"},
    {"data.train_samples", "samples of an epoch"},
    {"data.validation_samples", "samples for validation"},
    {"data.values", "tokens that a run chooses from"},
    {"data.vocabulary", "characters of the training part or of all (text); tokens (markov)"},
    {"data.vocabulary_of", "files whose characters make the vocabulary"},

    {"data_parallel.accumulate", "gradients of a shard: whole until it ends, or summed at once"},
    {"data_parallel.bucket_bytes", "bytes of gradients that are all-reduced together"},
    {"data_parallel.first_bucket_bytes", "the same for the first ones, to start early"},
    {"data_parallel.reshard", "what stays of a block between forward and backward"},
    {"data_parallel.shard", "what ranks divide: ZeRO-1, 2 and 3 are optimizer to parameters"},
    {"data_parallel.unshard", "parameters are gathered for each pass, or once a step"},

    {"guard.every", "steps between repetitions of a step and comparisons of replicas; 0: none"},
    {"guard.loss_jump", "times the mean loss before, above which a run stops; 0: none"},
    {"guard.repeat_on", "who repeats a step: same_rank, or other_rank (memory: one more state)"},
    {"guard.straggler_factor", "times what others take, above which a rank is named slow; 0: none"},
    {"guard.straggler_steps", "steps over which ranks are compared for that"},

    {"hashes.every", "steps between rows of hashes.csv; 0: never"},

    {"lora.alpha", "scale of the adapters, over their rank; by default the rank"},
    {"lora.dropout", "probability that an input of an adapter is zero"},
    {"lora.layers", "patterns of the layers to adapt"},
    {"lora.learning_rate", "in place of the schedule's"},
    {"lora.rank", "columns of an adapter's first factor"},
    {"lora.rank_stabilised", "whether alpha is over the square root of the rank"},
    {"lora.weight_decay", "in place of the optimizer's"},

    {"loss.rows", "tokens whose logits are in memory at once; 0: all"},

    {"memory.limit", "bytes that a rank may hold; 0: any"},

    {"mesh.cp", "ranks that divide the tokens of each sequence"},
    {"mesh.dp", "ranks that divide the batch, and what data_parallel.shard says"},
    {"mesh.ep", "ranks among dp x cp that divide the experts"},
    {"mesh.pp", "ranks that divide the blocks of the model (stages)"},
    {"mesh.replicas", "groups of dp ranks, with other shards of the batch each"},
    {"mesh.tp", "ranks that divide layers"},

    {"metrics.tensorboard", "whether scalars are written for TensorBoard, too"},

    {"model.depth", "ResNet-18, 34 or 50"},
    {"model.dropout", "probability that an activation is zero"},
    {"model.experts.auxiliary_loss", "coefficient of the load-balancing loss"},
    {"model.experts.bias_rate", "what a step adds to the bias of a choice, or takes away"},
    {"model.experts.capacity_factor", "even shares that an expert takes; 0: all"},
    {"model.experts.count", "experts of a layer"},
    {"model.experts.scaling", "factor of the chosen scores"},
    {"model.experts.scores", "softmax over all experts, or sigmoid of each"},
    {"model.experts.shared", "experts that see all tokens"},
    {"model.experts.top_k", "experts of a token"},
    {"model.experts.width", "features inside an expert"},
    {"model.head", "a matrix of its own, or the embedding's"},
    {"model.heads", "attention heads"},
    {"model.hidden", "features between its two layers"},
    {"model.init", "file or folder of weights to start from"},
    {"model.key_heads", "heads of keys and values"},
    {"model.kind", "which model"},
    {"model.layers", "transformer blocks"},
    {"model.levels", "times that the image is halved"},
    {"model.mlp_width", "features inside an MLP"},
    {"model.norm_epsilon", "what a norm adds to the mean square"},
    {"model.rope_scaling.factor", "by how much long waves are stretched"},
    {"model.rope_scaling.high_freq_factor", "waves of more turns in a context stay"},
    {"model.rope_scaling.low_freq_factor", "waves of fewer turns are stretched whole"},
    {"model.rope_scaling.original_context", "tokens of the context before scaling"},
    {"model.rope_scaling.type", "llama3 alone"},
    {"model.rope_theta", "base of the rotary positions"},
    {"model.stem", "first layers for small images or large ones"},
    {"model.width", "features of a token; channels of the first stage"},

    {"optimizer.beta1", "decay of the mean gradient"},
    {"optimizer.beta2", "decay of the mean square (lion: of the mean)"},
    {"optimizer.epsilon", "what is added to the root of the mean square"},
    {"optimizer.kind", "the update rule"},
    {"optimizer.momentum", "decay of the velocity"},
    {"optimizer.nesterov", "whether the velocity looks ahead"},
    {"optimizer.weight_decay", "decoupled for adamw and lion"},

    {"pipeline.actions", "a list in place of a named schedule, as a CSV file has it"},
    {"pipeline.balance", "blocks of each stage, or what is evened out among stages"},
    {"pipeline.schedule", "the order of passes"},
    {"pipeline.schedule_file", "a CSV file in place of a named schedule"},
    {"pipeline.stages_per_rank", "stages that a rank holds"},

    {"precision.compute", "what activations and weights are in"},
    {"precision.cudnn_attention", "whether cuDNN computes 16-bit attention on GPUs, where it can"},
    {"precision.loss_scaling", "factor on the loss, against underflow in fp16"},
    {"precision.reduce", "what gradients are summed in"},
    {"precision.tf32", "whether GPUs round inputs of fp32 products to TF32"},

    {"probe.first_step", "first step that is probed"},
    {"probe.places", "patterns of blocks and layers"},
    {"probe.steps", "steps that are probed; 0: none"},
    {"probe.values", "whether tensors are written, beside their hashes"},

    {"recompute.blocks", "patterns of blocks that keep their inputs only"},
    {"recompute.granularity", "full: all blocks; selective: attention"},
    {"recompute.micro_batches", "the ones of which a stage keeps its inputs only"},
    {"recompute.operations", "attention, mlp, convolution: keep their inputs only"},

    {"run.instructions", "the widest of the processor, or AVX2: the same bits"},
    {"run.threads", "threads of a rank; 0: the cores divided by the ranks"},
    {"run.timeout_seconds", "seconds until communication that does not move is an error"},

    {"schedule.decay_steps", "steps in which it falls, at the end; by default a tenth of all"},
    {"schedule.factor", "what each milestone multiplies the learning rate by"},
    {"schedule.floor", "the learning rate at the end"},
    {"schedule.kind", "how the learning rate goes on behind the warm-up"},
    {"schedule.learning_rate", "the highest one"},
    {"schedule.milestones", "steps at which it falls"},
    {"schedule.total_steps", "steps of the whole schedule; by default the run's"},
    {"schedule.warmup_steps", "steps in which it rises from zero"},

    {"tensor_parallel.sequence_parallel", "tokens are divided between the split layers"},

    {"trace.first_step", "first step of trace.json"},
    {"trace.steps", "steps of trace.json"},

    {"train.clip_norm", "norm that gradients are clipped to; 0: none"},
    {"train.deferred_batch_norm", "batch norm's estimates move once a step, or a micro-batch"},
    {"train.epochs", "how often each sample is drawn, in place of steps; 0: steps says"},
    {"train.legs", "steps and strategy of each part of the run: \"100: ddp dp=4\""},
    {"train.on_nan", "what a loss or gradient that is infinite or NaN does"},
    {"train.seed", "seed of initial values, batches and dropout"},
    {"train.steps", "steps of the run"},

    {"validation.at_start", "whether it is done before the first step too"},
    {"validation.batch_size", "samples of a batch; 0: of the largest micro-batch"},
    {"validation.batches", "batches; 0: all"},
    {"validation.every", "steps between validations; 0: only at the end"},
    {"validation.min_delta", "by how much a loss must be lower than the lowest to count"},
    {"validation.patience",
     "validations in a row without a lower loss that end the run; 0: none do"},
});

}  // namespace

std::span<const KeyMeaning> KeyMeanings() { return kMeanings; }

std::string_view MeaningOf(std::string_view key) {
  const auto found = std::ranges::find(kMeanings, key, &KeyMeaning::key);
  return found == kMeanings.end() ? std::string_view() : found->meaning;
}

}  // namespace lockstep
