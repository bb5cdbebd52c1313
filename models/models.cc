#include "models/models.h"

#include <algorithm>  // std::max
#include <string>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/config/config_reader.h"
#include "core/config/key_ranges.h"
#include "models/resnet/resnet.h"
#include "models/toy/toy.h"
#include "models/transformer/llama.h"
#include "models/transformer/transformer.h"
#include "models/unet/unet.h"

namespace lockstep {
namespace {

enum class Kind { kToy, kResNet, kUNet, kTransformer, kLlama };

constexpr char kImages[] = "images of one class each, such as shapes";

absl::Status CheckTask(const Dataset& dataset, Task wanted, const char* model,
                       const char* fitting) {
  if (dataset.task() == wanted) return absl::OkStatus();
  return InvalidArgument("model.kind = \"", model, "\" does not fit the data (", dataset.Describe(),
                         "); use ", fitting);
}

absl::StatusOr<Model> ReadToy(ConfigReader& reader, const Dataset& dataset) {
  ToyOptions options = {.inputs = dataset.input_shape().elements(), .outputs = dataset.classes()};
  reader.Read("hidden", &options.hidden, {.at_least = 1, .at_most = kMostFeatures});
  LS_RETURN_IF_ERROR(reader.Finish());
  LS_RETURN_IF_ERROR(CheckTask(dataset, Task::kClassification, "toy", kImages));
  return MakeToy(options);
}

absl::StatusOr<Model> ReadResNet(ConfigReader& reader, const Dataset& dataset) {
  ResNetOptions options;
  reader.Read("depth", &options.depth);
  if (options.depth != 18 && options.depth != 34 && options.depth != 50) {
    reader.AddProblem("depth", absl::StrCat("is ", options.depth, "; there are 18, 34 and 50"));
  }
  reader.ReadChoice(
      "stem", &options.stem,
      {{"cifar", ResNetOptions::Stem::kCifar}, {"imagenet", ResNetOptions::Stem::kImageNet}});
  reader.Read("width", &options.width, {.at_least = 1, .at_most = kMostFeatures});
  LS_RETURN_IF_ERROR(reader.Finish());
  LS_RETURN_IF_ERROR(CheckTask(dataset, Task::kClassification, "resnet", kImages));
  options.classes = dataset.classes();
  options.image = dataset.input_shape()[0];
  return MakeResNet(options);
}

absl::StatusOr<Model> ReadUNet(ConfigReader& reader, const Dataset& dataset) {
  UNetOptions options;
  reader.Read("levels", &options.levels, {.at_least = 1, .at_most = 16});
  reader.Read("width", &options.width, {.at_least = 1, .at_most = kMostFeatures});
  LS_RETURN_IF_ERROR(reader.Finish());
  LS_RETURN_IF_ERROR(CheckTask(dataset, Task::kSegmentation, "unet",
                               "images of which every pixel has a class: shapes_segmentation"));
  options.classes = dataset.classes();
  options.image = dataset.input_shape()[0];
  int64_t most = 0;
  while ((options.image >> most) % 2 == 0) ++most;
  if (options.levels > most) {
    return InvalidArgument("model.levels is ", options.levels, ", but images of ", options.image,
                           " x ", options.image, " pixels (", dataset.Describe(),
                           ") can be halved only ", most, " times");
  }
  return MakeUNet(options);
}

absl::StatusOr<Model> ReadTransformer(ConfigReader& reader, const Dataset& dataset) {
  TransformerOptions options;
  reader.Read("layers", &options.layers, {.at_least = 1, .at_most = kMostLayers});
  reader.Read("heads", &options.heads, {.at_least = 1, .at_most = kMostFeatures});
  reader.Read("width", &options.width, {.at_least = 1, .at_most = kMostFeatures});
  reader.Read("dropout", &options.dropout, {.at_least = 0, .less_than = 1});
  if (options.width % options.heads != 0) {
    reader.AddProblem("width", absl::StrCat("is ", options.width, ", which does not divide into ",
                                            options.heads, " heads"));
  }
  LS_RETURN_IF_ERROR(reader.Finish());
  LS_RETURN_IF_ERROR(CheckTask(dataset, Task::kLanguageModel, "transformer", "text"));
  options.context = dataset.input_shape()[0];
  options.vocabulary = dataset.classes();
  return MakeTransformer(options);
}

// Keys have the names that published models of the family have for them.
absl::Status ReadRotary(ConfigReader& reader, RotaryOptions& rotary) {
  reader.Read("rope_theta", &rotary.theta, {.greater_than = 0});
  if (!reader.Has("rope_scaling")) return absl::OkStatus();
  ConfigReader table(reader.Table("rope_scaling"));
  RotaryOptions::Scaling scaling;
  std::string type = "llama3";
  table.Read("type", &type);
  if (type != "llama3") {
    table.AddProblem("type", absl::StrCat("is \"", type, "\"; there is \"llama3\" alone"));
  }
  table.Read("factor", &scaling.factor, {.greater_than = 0});
  table.Read("low_freq_factor", &scaling.low_frequency_turns, {.greater_than = 0});
  table.Read("high_freq_factor", &scaling.high_frequency_turns, {.greater_than = 0});
  table.Read("original_context", &scaling.original_context,
             {.at_least = 1, .at_most = kMostTokensOfSample});
  if (scaling.high_frequency_turns <= scaling.low_frequency_turns) {
    table.AddProblem("high_freq_factor", "must be above low_freq_factor");
  }
  rotary.scaling = scaling;
  return table.Finish();
}

absl::Status ReadExperts(ConfigReader& reader, LlamaOptions& options) {
  if (!reader.Has("experts")) return absl::OkStatus();
  ConfigReader table(reader.Table("experts"));
  ExpertsOptions experts = {.hidden = options.mlp_width};
  Routing& routing = experts.routing;
  table.Require("count", &routing.experts, {.at_least = 1, .at_most = kMostExperts});
  table.Read("top_k", &routing.chosen, {.at_least = 1, .at_most = kMostExperts});
  table.Read("width", &experts.hidden, {.at_least = 1, .at_most = kMostFeatures});
  int64_t shared = 0;
  table.Read("shared", &shared, {.at_least = 0, .at_most = kMostExperts});
  table.ReadChoice(
      "scores", &routing.scores,
      {{"softmax", Routing::Scores::kSoftmax}, {"sigmoid", Routing::Scores::kSigmoid}});
  table.Read("scaling", &routing.scaling, {.greater_than = 0});
  table.Read("capacity_factor", &experts.capacity_factor, {.at_least = 0});
  table.Read("auxiliary_loss", &experts.auxiliary_loss, {.at_least = 0});
  table.Read("bias_rate", &experts.bias_rate, {.at_least = 0});
  if (routing.chosen > routing.experts) {
    table.AddProblem("top_k", absl::StrCat("is ", routing.chosen, ", but there are ",
                                           routing.experts, " experts to choose from"));
  }
  if (std::max(routing.experts, shared) * experts.hidden > kMostFeaturesOfExperts) {
    table.AddProblem("width", absl::StrCat("is ", experts.hidden, ": all experts together can be ",
                                           kMostFeaturesOfExperts, " wide"));
  }
  options.shared_width = shared * experts.hidden;
  options.experts = experts;
  return table.Finish();
}

absl::StatusOr<Model> ReadLlama(ConfigReader& reader, const Dataset& dataset) {
  LlamaOptions options;
  reader.Read("layers", &options.layers, {.at_least = 1, .at_most = kMostLayers});
  reader.Read("heads", &options.heads, {.at_least = 1, .at_most = kMostFeatures});
  options.key_heads = options.heads;
  reader.Read("key_heads", &options.key_heads, {.at_least = 1, .at_most = kMostFeatures});
  reader.Read("width", &options.width, {.at_least = 1, .at_most = kMostFeatures});
  // SwiGLU's three matrices then have the elements of GPT's two (Shazeer, 2020).
  options.mlp_width = (8 * options.width / 3 + 63) / 64 * 64;
  reader.Read("mlp_width", &options.mlp_width, {.at_least = 1, .at_most = kMostFeatures});
  reader.Read("norm_epsilon", &options.norm_epsilon, {.at_least = 0, .at_most = kLargestFloat});
  const absl::Status rotary = ReadRotary(reader, options.rotary);
  const absl::Status experts = ReadExperts(reader, options);
  reader.ReadChoice("head", &options.head,
                    {{"own", LlamaOptions::Head::kOwn}, {"tied", LlamaOptions::Head::kTied}});
  if (options.width % (2 * options.heads) != 0) {
    reader.AddProblem("width", absl::StrCat("is ", options.width, ", which does not divide into ",
                                            options.heads, " heads of even width"));
  }
  if (options.heads % options.key_heads != 0) {
    reader.AddProblem("key_heads",
                      absl::StrCat("is ", options.key_heads, ", which does not divide ",
                                   options.heads, " heads"));
  }
  LS_RETURN_IF_ERROR(reader.Finish());
  LS_RETURN_IF_ERROR(rotary);
  LS_RETURN_IF_ERROR(experts);
  LS_RETURN_IF_ERROR(CheckTask(dataset, Task::kLanguageModel, "llama", "text"));
  options.context = dataset.input_shape()[0];
  options.vocabulary = dataset.classes();
  return MakeLlama(options);
}

absl::StatusOr<Model> ReadKind(Kind kind, ConfigReader& reader, const Dataset& dataset) {
  switch (kind) {
    case Kind::kToy:
      return ReadToy(reader, dataset);
    case Kind::kResNet:
      return ReadResNet(reader, dataset);
    case Kind::kUNet:
      return ReadUNet(reader, dataset);
    case Kind::kTransformer:
      return ReadTransformer(reader, dataset);
    case Kind::kLlama:
      return ReadLlama(reader, dataset);
  }
  return absl::InternalError("no such kind of model");
}

}  // namespace

absl::StatusOr<Model> MakeModel(const Config& config, const Dataset& dataset) {
  ConfigReader reader(config.Table("model"));
  Kind kind = Kind::kToy;
  reader.RequireChoice("kind", &kind,
                       {{"toy", Kind::kToy},
                        {"resnet", Kind::kResNet},
                        {"unet", Kind::kUNet},
                        {"transformer", Kind::kTransformer},
                        {"llama", Kind::kLlama}});
  std::string init;
  reader.Read("init", &init);
  LS_ASSIGN_OR_RETURN(Model model, ReadKind(kind, reader, dataset));
  if (!init.empty()) model.initial_weights = UserPath(init);
  return model;
}

}  // namespace lockstep
