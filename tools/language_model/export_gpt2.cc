// Writes the model of a run as Hugging Face's transformers read GPT-2:
//
//   ./bazelw run //tools/language_model:export_gpt2 -- --run runs/gpt_markov/single --output gpt2
//
//   GPT2LMHeadModel.from_pretrained("gpt2")   # in Python
//
// Adapters are merged into the weights, or with --adapters_only written by themselves, as PEFT
// reads them.

#include <cstdio>
#include <string>

#include "absl/flags/flag.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/lora.h"
#include "tools/language_model/loaded_model.h"
#include "tools/language_model/peft.h"

ABSL_FLAG(std::string, run, "", "run directory");
ABSL_FLAG(std::string, checkpoint, "", "one of its checkpoints; the newest if empty");
ABSL_FLAG(std::string, data, "", "folder of data sets; LOCKSTEP_DATA if empty");
ABSL_FLAG(bool, adapters_only, false,
          "write the adapters alone: adapter_model.safetensors and adapter_config.json");
ABSL_FLAG(std::string, output, "", "folder to make, with model.safetensors and config.json");

namespace lockstep {
namespace {

absl::StatusOr<int> RunMain() {
  if (absl::GetFlag(FLAGS_run).empty() || absl::GetFlag(FLAGS_output).empty()) {
    return absl::InvalidArgumentError(
        "--run and --output are both needed; --help says what there is");
  }
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  LS_ASSIGN_OR_RETURN(LoadedModel loaded,
                      LoadRun(FromUser({.run = absl::GetFlag(FLAGS_run),
                                        .checkpoint = absl::GetFlag(FLAGS_checkpoint),
                                        .data = absl::GetFlag(FLAGS_data)}),
                              kernels));
  const std::string output = UserPath(absl::GetFlag(FLAGS_output));
  if (absl::GetFlag(FLAGS_adapters_only)) {
    LS_RETURN_IF_ERROR(ExportPeft(loaded.model, output, kernels));
    std::printf("%s: adapters for PEFT\n", output.c_str());
    return 0;
  }
  const MergedAdapters merged(loaded.model, kernels);
  LS_RETURN_IF_ERROR(ExportGpt2(loaded, output, kernels));
  std::printf("%s: GPT-2 of %lld parameters\n", output.c_str(),
              static_cast<long long>(loaded.model.ParameterCount()));
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Writes a run's model as GPT-2 weights: --run DIR --output DIR",
       .files = {__FILE__}},
      [](const auto&) { return lockstep::RunMain(); });
}
