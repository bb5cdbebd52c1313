// Continues a text with a trained language model: of a run,
//
//   ./bazelw run //tools/generate -- --run runs/gpt_shakespeare/single --data DATA --prompt
//   'ROMEO:'
//
// or GPT-2 as Hugging Face publishes it, with its config.json beside it:
//
//   ./bazelw run //tools/generate -- --weights gpt2/model.safetensors --bpe gpt2-bpe --prompt 'It
//   was'
//
// Adapters are those of a run that has trained such, or for weights in a file --adapter names a
// folder of PEFT's; they are computed beside the weights, or with --merge become a part of them.
//
// A model of packed documents (data.separator) continues the last document of the prompt, to its
// end.
//
// The same seed gives the same text.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <limits>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "core/base/flags.h"
#include "core/base/parallel.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/config/key_ranges.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/lora.h"
#include "core/text/byte_pairs.h"
#include "tools/generate/continuation.h"
#include "tools/generate/text_codec.h"
#include "tools/language_model/loaded_model.h"
#include "tools/language_model/peft.h"

ABSL_FLAG(std::string, run, "", "run directory, whose model is to write");
ABSL_FLAG(std::string, checkpoint, "", "one of its checkpoints; the newest if empty");
ABSL_FLAG(std::string, data, "", "folder of data sets; LOCKSTEP_DATA if empty");
ABSL_FLAG(std::string, weights, "", "GPT-2 weights in place of a run");
ABSL_FLAG(std::string, adapter, "", "folder of adapters in PEFT's files, to add to --weights");
ABSL_FLAG(bool, merge, false, "make the adapters a part of the weights first");
ABSL_FLAG(std::string, bpe, "", "folder with encoder.json and vocab.bpe, for models of byte pairs");
ABSL_FLAG(std::string, prompt, "", "the text to continue; a new document if empty");
ABSL_FLAG(int64_t, tokens, 200, "how many tokens to add");
ABSL_FLAG(double, temperature, 1, "logits are divided by it; 0: always the likeliest token");
ABSL_FLAG(int64_t, top_k, 0, "draw from so many of the likeliest tokens only; 0: from all");
ABSL_FLAG(uint64_t, seed, 1, "of the random numbers");
ABSL_FLAG(int64_t, threads, 0, "to compute on; 0: all cores");

namespace lockstep {
namespace {

absl::Status CheckFlags() {
  if (absl::GetFlag(FLAGS_run).empty() == absl::GetFlag(FLAGS_weights).empty()) {
    return absl::InvalidArgumentError("either --run or --weights says which model is to write");
  }
  if (!absl::GetFlag(FLAGS_adapter).empty() && absl::GetFlag(FLAGS_weights).empty()) {
    return absl::InvalidArgumentError("--adapter goes with --weights; a run has its own");
  }
  const double temperature = absl::GetFlag(FLAGS_temperature);
  if (!std::isfinite(temperature) || temperature < 0) {
    return InvalidArgument("--temperature is ", temperature, ", but must be 0 or more");
  }
  LS_RETURN_IF_ERROR(CheckRange("tokens", absl::GetFlag(FLAGS_tokens), 0, kMostTokensOfSample));
  LS_RETURN_IF_ERROR(
      CheckRange("top_k", absl::GetFlag(FLAGS_top_k), 0, std::numeric_limits<int64_t>::max()));
  return CheckRange("threads", absl::GetFlag(FLAGS_threads), 0, kMostThreads);
}

absl::StatusOr<LoadedModel> Load(Kernels& kernels) {
  const std::string weights = absl::GetFlag(FLAGS_weights);
  if (!weights.empty()) {
    LS_ASSIGN_OR_RETURN(LoadedModel loaded, LoadPublished(UserPath(weights), kernels));
    const std::string adapter = absl::GetFlag(FLAGS_adapter);
    if (!adapter.empty()) {
      LS_RETURN_IF_ERROR(AddPeftAdapters(loaded.model, UserPath(adapter), kernels));
    }
    return loaded;
  }
  return LoadRun(FromUser({.run = absl::GetFlag(FLAGS_run),
                           .checkpoint = absl::GetFlag(FLAGS_checkpoint),
                           .data = absl::GetFlag(FLAGS_data)}),
                 kernels);
}

absl::StatusOr<TextCodec> MakeCodec(const LoadedModel& loaded) {
  const std::string bpe = absl::GetFlag(FLAGS_bpe);
  if (bpe.empty()) {
    if (loaded.dataset != nullptr) return MakeCodecOf(*loaded.dataset);
    return absl::InvalidArgumentError(
        "what the tokens mean is not known: name the folder of the byte-pair vocabulary with "
        "--bpe");
  }
  LS_ASSIGN_OR_RETURN(BytePairs pairs, BytePairs::Load(UserPath(bpe)));
  if (pairs.vocabulary() != loaded.vocabulary) {
    return InvalidArgument("--bpe ", bpe, " has ", pairs.vocabulary(), " tokens, but the model ",
                           loaded.vocabulary);
  }
  return MakeBytePairCodec(std::move(pairs));
}

// The tokens to continue: at least one. `separator`: see LastDocument; none: all is one document.
absl::StatusOr<std::vector<int32_t>> EncodePrompt(const TextCodec& codec,
                                                  std::optional<int32_t> separator) {
  const std::string prompt = absl::GetFlag(FLAGS_prompt);
  absl::StatusOr<std::vector<int32_t>> tokens = codec.encode(prompt);
  if (!tokens.ok()) return Annotate(tokens.status(), "--prompt");
  if (separator) {
    absl::StatusOr<std::vector<int32_t>> last = LastDocument(*tokens, *separator);
    return last.ok() ? last : Annotate(last.status(), "--prompt");
  }
  if (!tokens->empty()) return tokens;
  if (codec.document_border) return std::vector<int32_t>{*codec.document_border};
  return absl::InvalidArgumentError(
      "--prompt is empty, but this vocabulary has no token that begins a document; give at least "
      "one character");
}

void Print(const std::string& text) {
  std::fwrite(text.data(), 1, text.size(), stdout);
  std::fflush(stdout);
}

absl::StatusOr<int> RunMain() {
  LS_RETURN_IF_ERROR(CheckFlags());
  const int64_t threads = absl::GetFlag(FLAGS_threads);
  SetThreads(threads > 0 ? static_cast<int>(threads)
                         : static_cast<int>(std::max(1u, std::thread::hardware_concurrency())));
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  LS_ASSIGN_OR_RETURN(LoadedModel loaded, Load(kernels));
  std::optional<MergedAdapters> merged;
  if (absl::GetFlag(FLAGS_merge)) merged.emplace(loaded.model, kernels);
  LS_ASSIGN_OR_RETURN(const TextCodec codec, MakeCodec(loaded));
  const std::optional<int32_t> separator =
      loaded.dataset == nullptr ? std::nullopt : SeparatorOf(*loaded.dataset);
  LS_ASSIGN_OR_RETURN(const std::vector<int32_t> prompt, EncodePrompt(codec, separator));
  Print(absl::GetFlag(FLAGS_prompt));
  Continue(loaded.model, kernels, prompt,
           {.context = loaded.context,
            .tokens = absl::GetFlag(FLAGS_tokens),
            .sampling = {.temperature = absl::GetFlag(FLAGS_temperature),
                         .top_k = absl::GetFlag(FLAGS_top_k)},
            .seed = absl::GetFlag(FLAGS_seed),
            .stop = separator ? separator : codec.document_border},
           [&codec](int32_t token) { Print(codec.decode(absl::MakeConstSpan(&token, 1))); });
  Print("\n");
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage =
           "Continues a text with a language model: --run DIR or --weights FILE, --prompt TEXT",
       .files = {__FILE__}},
      [](const auto&) { return lockstep::RunMain(); });
}
