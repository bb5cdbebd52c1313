#include "core/config/data_config.h"

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "core/config/key_ranges.h"
#include "core/data/cifar10.h"
#include "core/data/copies.h"
#include "core/data/markov.h"
#include "core/data/shapes.h"
#include "core/data/shapes_segmentation.h"
#include "core/data/text.h"
#include "core/data/tokens.h"

namespace lockstep {
namespace {

using DatasetOr = absl::StatusOr<std::shared_ptr<const Dataset>>;

// Reads the options of a kind of data from the table, and makes it.
using Maker = DatasetOr (*)(ConfigReader& reader, const std::string& data_directory);

// Real data needs a folder.
absl::Status CheckDirectory(const std::string& data_directory, const char* what) {
  if (data_directory.empty()) {
    return InvalidArgument("data.kind = \"", what,
                           "\" reads real data: say where it is with --data DIR or LOCKSTEP_DATA");
  }
  if (!IsDirectory(data_directory)) {
    return absl::NotFoundError(absl::StrCat("the data folder ", data_directory,
                                            " (--data or LOCKSTEP_DATA) does not exist"));
  }
  return absl::OkStatus();
}

DatasetOr MakeCifar10(ConfigReader& reader, const std::string& data_directory) {
  Cifar10Options options;
  reader.Read("directory", &options.directory);
  reader.Read("crop_padding", &options.crop_padding, {.at_least = 0, .at_most = 16});
  reader.Read("flip", &options.flip);
  reader.Read("augmentation_seed", &options.augmentation_seed);
  LS_RETURN_IF_ERROR(reader.Finish());
  LS_RETURN_IF_ERROR(CheckDirectory(data_directory, "cifar10"));
  return Cifar10::Load(data_directory, options);
}

DatasetOr MakeText(ConfigReader& reader, const std::string& data_directory) {
  TextOptions options;
  reader.Read("path", &options.path);
  reader.Read("context", &options.context, {.at_least = 1, .at_most = kMostTokensOfSample});
  reader.ReadChoice(
      "vocabulary", &options.vocabulary,
      {{"train", TextOptions::Vocabulary::kTrain}, {"all", TextOptions::Vocabulary::kAll}});
  reader.Read("vocabulary_of", &options.vocabulary_of);
  reader.Read("separator", &options.separator);
  if (!options.vocabulary_of.empty() && reader.Has("vocabulary")) {
    reader.AddProblem("vocabulary_of", "is given beside data.vocabulary; one of them is enough");
  }
  LS_RETURN_IF_ERROR(reader.Finish());
  LS_RETURN_IF_ERROR(CheckDirectory(data_directory, "text"));
  return Text::Load(data_directory, options);
}

DatasetOr MakeTokens(ConfigReader& reader, const std::string& data_directory) {
  TokensOptions options;
  reader.Require("path", &options.path);
  reader.Read("context", &options.context, {.at_least = 1, .at_most = kMostTokensOfSample});
  reader.Read("separator", &options.separator, {.at_least = -1, .at_most = kMostClasses});
  LS_RETURN_IF_ERROR(reader.Finish());
  // It may have been made anywhere.
  if (!options.path.starts_with("/")) LS_RETURN_IF_ERROR(CheckDirectory(data_directory, "tokens"));
  return Tokens::Load(data_directory, options);
}

// Makes either data set of shapes.
template <typename ShapesDataset>
DatasetOr MakeShapes(ConfigReader& reader, const std::string& /*data_directory*/) {
  ShapesOptions options;
  reader.Read("train_samples", &options.train_samples, {.at_least = 1, .at_most = kMostSteps});
  reader.Read("validation_samples", &options.validation_samples,
              {.at_least = 1, .at_most = kMostSteps});
  reader.Read("seed", &options.seed);
  reader.Read("invert_colours", &options.invert_colours);
  reader.Read("noise", &options.noise, {.at_least = 0, .at_most = 1});
  LS_RETURN_IF_ERROR(reader.Finish());
  return ShapesDataset::Create(options);
}

DatasetOr MakeMarkov(ConfigReader& reader, const std::string& /*data_directory*/) {
  MarkovOptions options;
  reader.Read("vocabulary", &options.source.vocabulary, {.at_least = 2, .at_most = kMostClasses});
  reader.Read("order", &options.source.order, {.at_least = 0, .at_most = kMostTokensOfSample});
  reader.Read("successors", &options.source.successors, {.at_least = 1, .at_most = kMostClasses});
  reader.Read("source", &options.source.source);
  reader.Read("context", &options.context, {.at_least = 1, .at_most = kMostTokensOfSample});
  reader.Read("document_tokens", &options.document_tokens,
              {.at_least = 0, .at_most = kMostTokensOfSample});
  reader.Read("train_samples", &options.train_samples, {.at_least = 1, .at_most = kMostSteps});
  reader.Read("validation_samples", &options.validation_samples,
              {.at_least = 1, .at_most = kMostSteps});
  LS_RETURN_IF_ERROR(reader.Finish());
  return Markov::Create(options);
}

DatasetOr MakeCopies(ConfigReader& reader, const std::string& /*data_directory*/) {
  CopiesOptions options;
  reader.Read("slots", &options.slots, {.at_least = 1, .at_most = kMostTokensOfSample});
  reader.Read("values", &options.values, {.at_least = 2, .at_most = kMostClasses / options.slots});
  reader.Read("repeats", &options.repeats, {.at_least = 1, .at_most = kMostTokensOfSample});
  reader.Read("distance", &options.distance, {.at_least = 2, .at_most = kMostTokensOfSample});
  reader.Read("context", &options.context, {.at_least = 1, .at_most = kMostTokensOfSample});
  reader.Read("train_samples", &options.train_samples, {.at_least = 1, .at_most = kMostSteps});
  reader.Read("validation_samples", &options.validation_samples,
              {.at_least = 1, .at_most = kMostSteps});
  LS_RETURN_IF_ERROR(reader.Finish());
  return Copies::Create(options);
}

}  // namespace

DatasetOr MakeDataset(const Config& config, const std::string& data_directory) {
  ConfigReader reader(config.Table("data"));
  Maker make = MakeShapes<Shapes>;
  reader.RequireChoice("kind", &make,
                       {{"cifar10", MakeCifar10},
                        {"text", MakeText},
                        {"tokens", MakeTokens},
                        {"shapes", MakeShapes<Shapes>},
                        {"shapes_segmentation", MakeShapes<ShapesSegmentation>},
                        {"markov", MakeMarkov},
                        {"copies", MakeCopies}});
  return make(reader, data_directory);
}

}  // namespace lockstep
