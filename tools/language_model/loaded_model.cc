#include "tools/language_model/loaded_model.h"

#include <cstdlib>  // std::getenv
#include <filesystem>
#include <optional>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/published_weights.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/weights.h"
#include "core/config/config.h"
#include "core/config/config_reader.h"
#include "core/config/data_config.h"
#include "core/config/settings.h"
#include "core/nn/lora.h"
#include "core/run/directory/model_fingerprint.h"
#include "core/run/strategy/model_weights.h"
#include "core/run/strategy/parameter_hash.h"
#include "models/models.h"
#include "models/transformer/llama.h"
#include "models/transformer/llama_config.h"
#include "models/transformer/transformer.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kConfigFile[] = "config.json";

// Gives a model memory, and its weights from a file.
absl::Status Fill(Model& model, const std::string& path, Kernels& kernels) {
  // Drawing a hundred million numbers takes longer than reading them.
  for (Parameter* parameter : model.Parameters()) parameter->init = Init::Constant(0);
  Materialize(model.Parameters(), /*seed=*/0, kernels);
  Materialize(model.Statistics(), kernels);
  return LoadWeights(path, model.published, WeightsOf(model, kernels.allocator()), kernels);
}

// The hash of what is frozen as the run knows it, which rounds it to what it computes with; so does
// this.
std::string RoundAndHash(const std::vector<StateTensor>& frozen, DType compute, Kernels& kernels) {
  std::vector<StateTensor> rounded = frozen;
  for (StateTensor& tensor : rounded) {
    const bool is_statistic = tensor.name.find(".running_") != std::string::npos;
    if (compute == DType::kF32 || is_statistic) continue;
    const Tensor wide = tensor.tensor;
    tensor.tensor = kernels.Empty(wide.shape(), compute);
    kernels.Cast(wide, tensor.tensor);
    kernels.Cast(tensor.tensor, wide);
  }
  return HashParameters(kernels, rounded);
}

// Gives a model memory and the weights that a run starts from: those of model.init, or of the seed.
absl::Status FillInitial(Model& model, const Config& config, Kernels& kernels) {
  uint64_t seed = Settings().seed;
  ConfigReader train(config.Table("train"));
  train.Read("seed", &seed);
  Materialize(model.Parameters(), seed, kernels);
  Materialize(model.Statistics(), kernels);
  if (model.initial_weights.empty()) return absl::OkStatus();
  return Annotate(LoadInitialWeights(model.initial_weights, model.published,
                                     WeightsOf(model, kernels.allocator()), kernels),
                  "model.init");
}

// Gives a model with adapters memory, its base from where the run had it, and the adapters of a
// checkpoint.
absl::Status FillAdapted(Model& model, const Config& config, const std::string& checkpoint,
                         Kernels& kernels) {
  LS_RETURN_IF_ERROR(FillInitial(model, config, kernels));
  const std::vector<StateTensor> weights = WeightsOf(model, kernels.allocator());
  LS_ASSIGN_OR_RETURN(const Precision precision, ReadPrecision(config));
  const std::string base = RoundAndHash(FrozenState(weights), precision.compute, kernels);
  LS_ASSIGN_OR_RETURN(const CheckpointInfo info, ReadCheckpointInfo(checkpoint));
  if (info.base != base) {
    return absl::FailedPreconditionError(
        absl::StrCat(checkpoint, ": its adapters were trained on another base (hash ", info.base,
                     ") than what model.init and train.seed make now (", base, ")"));
  }
  return LoadWeights(checkpoint, model.published, TrainedState(weights), kernels);
}

absl::StatusOr<std::string> FindCheckpoint(const RunSource& source) {
  if (!source.checkpoint.empty()) return source.checkpoint;
  LS_ASSIGN_OR_RETURN(const std::optional<std::string> newest,
                      NewestCheckpoint(source.run + "/checkpoints"));
  if (newest) return *newest;
  return absl::NotFoundError(absl::StrCat(
      source.run,
      "/checkpoints: holds no checkpoint; a run leaves one where checkpoint.keep is not 0"));
}

// Whether a checkpoint is of the model that a run's configuration describes. Shapes do not show all
// of a model: the number of heads, for example, is in none.
absl::Status CheckIsOfModel(const std::string& checkpoint, const PublishedNames& names,
                            const std::string& config_path, const std::string& fingerprint) {
  LS_ASSIGN_OR_RETURN(const std::optional<CheckpointInfo> info,
                      ReadInfoOfWeights(checkpoint, names));
  if (!info || info->model == fingerprint) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      checkpoint, ": was written by a model of another configuration (fingerprint ", info->model,
      ") than \"", config_path, "\" describes (", fingerprint,
      "). Put the tables [model] and [lora] of that file back as they were, or name the directory "
      "of the run that wrote the checkpoint"));
}

std::string ConfigBeside(const std::string& path) {
  const std::filesystem::path named(path);
  const bool is_folder = IsDirectory(named);
  return ((is_folder ? named : named.parent_path()) / kConfigFile).string();
}

// The number of heads of a GPT-2.
absl::StatusOr<int64_t> ReadHeads(const std::string& path, const std::string& config) {
  const Json json = ParseJson<Json>(config);
  if (json.is_object() && json.contains("n_head") && json["n_head"].is_number_unsigned()) {
    return json["n_head"].get<int64_t>();
  }
  return InvalidArgument("\"", ConfigBeside(path),
                         "\" is no JSON object with a whole number as \"n_head\"");
}

// The tensor of that name, with or without the prefix.
const SafetensorsTensor* Find(const SafetensorsReader& reader, const std::string& name) {
  const SafetensorsTensor* tensor = reader.Find(name);
  return tensor != nullptr ? tensor : reader.Find("transformer." + name);
}

absl::StatusOr<TransformerOptions> ReadSizes(const std::string& named, const std::string& config) {
  const std::string path = IsDirectory(named) ? named + "/model.safetensors" : named;
  LS_ASSIGN_OR_RETURN(const SafetensorsReader reader, SafetensorsReader::Open(path));
  const SafetensorsTensor* token = Find(reader, "wte.weight");
  const SafetensorsTensor* position = Find(reader, "wpe.weight");
  if (token == nullptr || position == nullptr || token->shape.size() != 2 ||
      position->shape.size() != 2) {
    return absl::FailedPreconditionError(absl::StrCat(
        "\"", path, "\" holds no GPT-2: it lacks the matrices 'wte.weight' and 'wpe.weight'"));
  }
  TransformerOptions options = {.layers = 0,
                                .width = token->shape[1],
                                .context = position->shape[0],
                                .vocabulary = token->shape[0]};
  while (Find(reader, absl::StrCat("h.", options.layers, ".ln_1.weight")) != nullptr) {
    ++options.layers;
  }
  LS_ASSIGN_OR_RETURN(options.heads, ReadHeads(path, config));
  if (options.heads < 1 || options.width < 1 || options.context < 1 || options.vocabulary < 1 ||
      options.width % options.heads != 0) {
    return absl::FailedPreconditionError(absl::StrCat("\"", path, "\": a width of ", options.width,
                                                      " does not divide into ", options.heads,
                                                      " heads, or there is nothing in it"));
  }
  return options;
}

}  // namespace

RunSource FromUser(const RunSource& named) {
  const auto from_user = [](const std::string& path) {
    return path.empty() ? path : UserPath(path);
  };
  const char* data = std::getenv("LOCKSTEP_DATA");
  return {.run = from_user(named.run),
          .checkpoint =
              named.checkpoint == kInitialWeights ? named.checkpoint : from_user(named.checkpoint),
          .data = from_user(named.data.empty() && data != nullptr ? data : named.data)};
}

absl::StatusOr<LoadedModel> LoadRun(const RunSource& source, Kernels& kernels) {
  const std::string config_path = source.run + "/config.toml";
  LS_ASSIGN_OR_RETURN(Config config, Config::FromFile(config_path));
  ConfigRecord record;
  config.RecordInto(&record);
  LoadedModel loaded;
  LS_ASSIGN_OR_RETURN(loaded.dataset, MakeDataset(config, source.data));
  LS_ASSIGN_OR_RETURN(loaded.model, MakeModel(config, *loaded.dataset));
  if (loaded.dataset->task() != Task::kLanguageModel) {
    return absl::FailedPreconditionError(absl::StrCat(
        source.run, ": has trained no language model; its data: ", loaded.dataset->Describe()));
  }
  loaded.context = loaded.dataset->input_shape()[0];
  loaded.vocabulary = loaded.dataset->classes();
  Settings settings;
  LS_RETURN_IF_ERROR(ReadLora(config, settings));
  if (source.checkpoint == kInitialWeights) {
    LS_RETURN_IF_ERROR(FillInitial(loaded.model, config, kernels));
    return loaded;
  }
  LS_ASSIGN_OR_RETURN(const std::string checkpoint, FindCheckpoint(source));
  LS_RETURN_IF_ERROR(CheckIsOfModel(checkpoint, loaded.model.published, config_path,
                                    ModelFingerprint(config, record)));
  if (!settings.lora) {
    LS_RETURN_IF_ERROR(Fill(loaded.model, checkpoint, kernels));
    return loaded;
  }
  LS_RETURN_IF_ERROR(Annotate(AddAdapters(loaded.model, *settings.lora), "lora.layers"));
  LS_RETURN_IF_ERROR(FillAdapted(loaded.model, config, checkpoint, kernels));
  return loaded;
}

absl::StatusOr<LoadedModel> LoadPublished(const std::string& path, Kernels& kernels) {
  const std::string beside = ConfigBeside(path);
  absl::StatusOr<std::string> config = ReadFile(beside);
  if (!config.ok()) {
    return absl::Status(config.status().code(),
                        absl::StrCat(config.status().message(), "; it tells the kind of model of ",
                                     path, ", and the number of heads of a GPT-2, \"n_head\""));
  }
  const Json json = ParseJson<Json>(*config);
  LoadedModel loaded;
  const Json type = json.is_object() ? json.value("model_type", Json()) : Json();
  if (type == "llama" || type == "mixtral") {
    const absl::StatusOr<LlamaOptions> options = ReadLlamaConfig(*config);
    if (!options.ok()) {
      return absl::Status(options.status().code(),
                          absl::StrCat("\"", beside, "\" ", options.status().message()));
    }
    loaded = {.model = MakeLlama(*options),
              .context = options->context,
              .vocabulary = options->vocabulary,
              .dataset = nullptr};
  } else {
    LS_ASSIGN_OR_RETURN(const TransformerOptions options, ReadSizes(path, *config));
    loaded = {.model = MakeTransformer(options),
              .context = options.context,
              .vocabulary = options.vocabulary,
              .dataset = nullptr};
  }
  LS_RETURN_IF_ERROR(Fill(loaded.model, path, kernels));
  return loaded;
}

absl::Status ExportModel(const LoadedModel& loaded, const std::string& folder, int64_t file_bytes,
                         Kernels& kernels) {
  return WritePublishedModel(folder, loaded.model.published,
                             WeightsOf(loaded.model, kernels.allocator()), file_bytes, kernels);
}

}  // namespace lockstep
