#include "models/models.h"

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/config/config_reader.h"
#include "models/resnet/resnet.h"
#include "models/toy/toy.h"
#include "models/transformer/transformer.h"
#include "models/unet/unet.h"

namespace lockstep {
namespace {

enum class Kind { kToy, kResNet, kUNet, kTransformer };

constexpr char kImages[] = "images of one class each, such as shapes";

absl::Status CheckTask(const Dataset& dataset, Task wanted, const char* model,
                       const char* fitting) {
  if (dataset.task() == wanted) return absl::OkStatus();
  return InvalidArgument("model.kind = \"", model, "\" does not fit the data (", dataset.Describe(),
                         "); use ", fitting);
}

absl::StatusOr<Model> ReadToy(ConfigReader& reader, const Dataset& dataset) {
  ToyOptions options = {.inputs = dataset.input_shape().elements(), .outputs = dataset.classes()};
  reader.Read("hidden", &options.hidden, {.at_least = 1});
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
  reader.Read("width", &options.width, {.at_least = 1});
  LS_RETURN_IF_ERROR(reader.Finish());
  LS_RETURN_IF_ERROR(CheckTask(dataset, Task::kClassification, "resnet", kImages));
  options.classes = dataset.classes();
  options.image = dataset.input_shape()[0];
  return MakeResNet(options);
}

absl::StatusOr<Model> ReadUNet(ConfigReader& reader, const Dataset& dataset) {
  UNetOptions options;
  reader.Read("levels", &options.levels, {.at_least = 1, .at_most = 16});
  reader.Read("width", &options.width, {.at_least = 1});
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
  reader.Read("layers", &options.layers, {.at_least = 1});
  reader.Read("heads", &options.heads, {.at_least = 1});
  reader.Read("width", &options.width, {.at_least = 1});
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
                        {"transformer", Kind::kTransformer}});
  std::string init;
  reader.Read("init", &init);
  LS_ASSIGN_OR_RETURN(Model model, ReadKind(kind, reader, dataset));
  if (!init.empty()) model.initial_weights = UserPath(init);
  return model;
}

}  // namespace lockstep
