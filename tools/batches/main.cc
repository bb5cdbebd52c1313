// Writes the micro-batches of a run's first steps, so that another program trains on the same
// samples in the same order:
//
//   ./bazelw run //tools/batches -- --run runs/gpt_markov/single --steps 3 --output batches
//
// Each step is a safetensors file, step-000000.safetensors, with tensors inputs.<i> and targets.<i>
// for micro-batch i as core/data/dataset.h has them. The metadata has what probes of the other
// program say of the workload (tools/divergence/torch_probe.py).

#include <cstddef>
#include <cstdio>
#include <cstdlib>  // std::getenv
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/file.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/checkpoint/safetensors.h"
#include "core/config/config.h"
#include "core/config/config_reader.h"
#include "core/config/data_config.h"
#include "core/config/settings.h"
#include "core/data/dataset.h"
#include "core/data/sampler.h"
#include "core/run/directory/model_fingerprint.h"
#include "core/tensor/allocator.h"
#include "models/models.h"
#include "nlohmann/json.hpp"
#include "tools/experiment/outputs.h"

ABSL_FLAG(std::string, run, "", "run directory of the workload");
ABSL_FLAG(std::string, data, "", "folder of data sets; LOCKSTEP_DATA if empty");
ABSL_FLAG(int64_t, steps, 3, "how many steps");
ABSL_FLAG(std::string, output, "", "folder to make");

namespace lockstep {
namespace {

constexpr char kMetadata[] = "lockstep.batches";
constexpr size_t kLongestHeader = size_t{1} << 16;  // in which the metadata's key stands early

std::string StepPath(const std::string& output, int64_t step) {
  return absl::StrFormat("%s/step-%06d.safetensors", output, step);
}

absl::Status WriteStep(const Dataset& dataset, const Sampler& sampler, int64_t step,
                       const std::string& metadata, const std::string& output) {
  CpuAllocator allocator;
  std::vector<Batch> batches;
  std::vector<SafetensorsTensor> tensors;
  for (int64_t i = 0; i < sampler.micro_batches_per_step(); ++i) {
    batches.push_back(
        EmptyBatch(dataset, sampler.samples_of(i), allocator, MemoryClass::kWorkspace));
    LS_RETURN_IF_ERROR(dataset.Fill(Split::kTrain, sampler.TrainKeys(step, i), batches.back()));
    const auto add = [&](const char* name, const Tensor& tensor) {
      const absl::Span<const int64_t> dims = tensor.shape().dims();
      tensors.push_back({.name = absl::StrCat(name, i),
                         .dtype = IsFloating(tensor.dtype()) ? "F32" : "I32",
                         .shape = {dims.begin(), dims.end()}});
    };
    add("inputs.", batches.back().inputs);
    add("targets.", batches.back().targets);
  }
  LS_ASSIGN_OR_RETURN(
      SafetensorsWriter writer,
      SafetensorsWriter::Open(StepPath(output, step), tensors, {{kMetadata, metadata}},
                              WithChecksums::kInMetadata));  // which other programs pass over
  for (size_t i = 0; i < batches.size(); ++i) {
    const auto append = [&writer, i](const char* name, const Tensor& tensor) {
      const auto* bytes = static_cast<const std::byte*>(tensor.raw());
      return writer.Append(absl::StrCat(name, i), {bytes, static_cast<size_t>(tensor.bytes())});
    };
    LS_RETURN_IF_ERROR(append("inputs.", batches[i].inputs));
    LS_RETURN_IF_ERROR(append("targets.", batches[i].targets));
  }
  return writer.Commit();
}

absl::StatusOr<int> Run() {
  if (absl::GetFlag(FLAGS_run).empty() || absl::GetFlag(FLAGS_output).empty()) {
    return InvalidArgument("--run and --output are both needed; --help says what there is");
  }
  LS_RETURN_IF_ERROR(CheckRange("steps", absl::GetFlag(FLAGS_steps), 1, 1'000'000));
  const std::string run = UserPath(absl::GetFlag(FLAGS_run));
  const std::string output = UserPath(absl::GetFlag(FLAGS_output));
  LS_ASSIGN_OR_RETURN(Config config, Config::FromFile(run + "/config.toml"));
  ConfigRecord record;
  config.RecordInto(&record);
  LS_ASSIGN_OR_RETURN(const Settings settings, ReadSettings(config));
  const char* data = std::getenv("LOCKSTEP_DATA");
  const std::string named = absl::GetFlag(FLAGS_data);
  LS_ASSIGN_OR_RETURN(
      const auto dataset,
      MakeDataset(config, named.empty() ? (data == nullptr ? "" : data) : UserPath(named)));
  if (dataset->packs_documents()) {
    return absl::UnimplementedError(
        absl::StrCat(run, ": its samples are packed from documents, whose masks these files lack"));
  }
  LS_ASSIGN_OR_RETURN(const Model model, MakeModel(config, *dataset));
  LS_ASSIGN_OR_RETURN(const Sampler sampler,
                      Sampler::Create(*dataset, {.seed = settings.seed,
                                                 .global_batch = settings.batch.size,
                                                 .shards = settings.cut.shards,
                                                 .micro_batches = settings.cut.micro_batches,
                                                 .order = UsualOrder(dataset->task())}));
  std::string workload;
  ConfigReader top(config.Table(""));
  top.Read("name", &workload);
  nlohmann::ordered_json header = {{"workload", workload},
                                   {"model", ModelFingerprint(config, record)},
                                   {"batch", settings.batch.size},
                                   {"shards", settings.cut.shards},
                                   {"micro_batches", settings.cut.micro_batches},
                                   {"tokens", settings.cut.tokens},
                                   {"blocks", nlohmann::ordered_json::array()}};
  for (const auto& block : model.blocks) header["blocks"].push_back(block->name());
  std::vector<OutputFile> outputs;
  for (int64_t step = 0; step < absl::GetFlag(FLAGS_steps); ++step) {
    outputs.push_back({.path = StepPath(output, step),
                       .kind = "a step's micro-batches",
                       .is_of_kind = [](std::string_view contents) {
                         return contents.substr(0, kLongestHeader).find(kMetadata) != contents.npos;
                       }});
  }
  LS_RETURN_IF_ERROR(CheckOutputs(outputs));
  LS_RETURN_IF_ERROR(MakeDirectories(output));
  for (int64_t step = 0; step < absl::GetFlag(FLAGS_steps); ++step) {
    LS_RETURN_IF_ERROR(WriteStep(*dataset, sampler, step, header.dump(), output));
  }
  std::printf("%s: %lld steps of %lld micro-batches\n", output.c_str(),
              static_cast<long long>(absl::GetFlag(FLAGS_steps)),
              static_cast<long long>(sampler.micro_batches_per_step()));
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(argc, argv,
                              {.usage = "Writes a workload's micro-batches: --run DIR --output DIR",
                               .files = {__FILE__, lockstep::kOverwriteFlagFile}},
                              [](const auto&) { return lockstep::Run(); });
}
