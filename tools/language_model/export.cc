// Writes the model of a run as Hugging Face's transformers read GPT-2 or Llama:
//
//   ./bazelw run //tools/language_model:export -- --run runs/gpt_markov/single --output gpt2
//
//   AutoModelForCausalLM.from_pretrained("gpt2")   # in Python
//
// Adapters are merged into the weights, or with --adapters_only written by themselves, as PEFT
// reads them.

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/lora.h"
#include "tools/experiment/outputs.h"
#include "tools/language_model/loaded_model.h"
#include "tools/language_model/peft.h"

ABSL_FLAG(std::string, run, "", "run directory");
ABSL_FLAG(std::string, checkpoint, "",
          "one of its checkpoints; the newest if empty; initial: the weights that it started from");
ABSL_FLAG(std::string, data, "", "folder of data sets; LOCKSTEP_DATA if empty");
ABSL_FLAG(bool, adapters_only, false,
          "write the adapters alone: adapter_model.safetensors and adapter_config.json");
ABSL_FLAG(std::string, output, "", "folder to make, with model.safetensors and config.json");
ABSL_FLAG(int64_t, file_bytes, lockstep::kFileBytes,
          "size beyond which weights are divided among several files with an index");

namespace lockstep {
namespace {

absl::StatusOr<int> RunMain() {
  if (absl::GetFlag(FLAGS_run).empty() || absl::GetFlag(FLAGS_output).empty()) {
    return absl::InvalidArgumentError(
        "--run and --output are both needed; --help says what there is");
  }
  if (absl::GetFlag(FLAGS_file_bytes) < 1) {
    return InvalidArgument("--file_bytes is ", absl::GetFlag(FLAGS_file_bytes),
                           ", but must be 1 or more");
  }
  const std::string output = UserPath(absl::GetFlag(FLAGS_output));
  // What is there already may be somebody's model: it is replaced only on request.
  std::vector<OutputFile> outputs;
  const std::vector<std::string> names =
      absl::GetFlag(FLAGS_adapters_only)
          ? std::vector<std::string>{"adapter_model.safetensors", "adapter_config.json"}
          : std::vector<std::string>{"model.safetensors", "model.safetensors.index.json",
                                     "config.json"};
  for (const std::string& name : names) {
    outputs.push_back({.path = absl::StrCat(output, "/", name), .kind = name});
  }
  LS_RETURN_IF_ERROR(CheckOutputs(outputs));
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  LS_ASSIGN_OR_RETURN(LoadedModel loaded,
                      LoadRun(FromUser({.run = absl::GetFlag(FLAGS_run),
                                        .checkpoint = absl::GetFlag(FLAGS_checkpoint),
                                        .data = absl::GetFlag(FLAGS_data)}),
                              kernels));
  if (absl::GetFlag(FLAGS_adapters_only)) {
    LS_RETURN_IF_ERROR(ExportPeft(loaded.model, output, kernels));
    std::printf("%s: adapters for PEFT\n", output.c_str());
    return 0;
  }
  const MergedAdapters merged(loaded.model, kernels);
  LS_RETURN_IF_ERROR(ExportModel(loaded, output, absl::GetFlag(FLAGS_file_bytes), kernels));
  std::printf("%s: %lld parameters\n", output.c_str(),
              static_cast<long long>(loaded.model.ParameterCount()));
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Writes a run's model as Hugging Face's weights: --run DIR --output DIR",
       .files = {__FILE__, lockstep::kOverwriteFlagFile}},
      [](const auto&) { return lockstep::RunMain(); });
}
