#include "core/run/config_listing.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/config/config.h"
#include "core/config/data_config.h"
#include "core/config/settings.h"
#include "core/data/dataset.h"

namespace lockstep {
namespace {

// What a configuration without files lacks, and a data set for models to be asked about.
constexpr char kRequired[] = R"(
train.steps = 1
batch.size = 4096
optimizer.kind = "sgd"
schedule.learning_rate = 1
data.kind = "shapes"
model.kind = "toy"
lora.layers = ["*"]
)";

// Has everybody read `config`. What is wrong with it is of no interest here.
ConfigRecord Record(Config config, const StrategyDefinition& strategy,
                    const ModelFactory& make_model) {
  ConfigRecord record;
  config.RecordInto(&record);
  const absl::StatusOr<Settings> settings = ReadSettings(config);
  if (settings.ok()) strategy.check(config, *settings).IgnoreError();
  const auto dataset = MakeDataset(config, /*data_directory=*/"");
  const auto built_in =
      MakeDataset(Config::FromString("data.kind = \"shapes\"", "help").value(), "");
  make_model(config, **(dataset.ok() ? dataset : built_in)).IgnoreError();
  return record;
}

// A preset's value, or the default of the key.
std::string Default(const RecordedKey& key) {
  return absl::StartsWith(key.source, "help:") || key.source == "--set" ? key.by_default
                                                                        : key.value;
}

std::string Line(const RecordedKey& key, const std::string& indent) {
  const std::string by_default = Default(key);
  const std::string expected =
      absl::StrCat(key.expected, key.choices.empty() ? "" : " ", absl::StrJoin(key.choices, ", "));
  const bool is_of_preset = !key.source.empty() && by_default == key.value;
  return absl::StrFormat(
      "%-38s # %s%s%s\n",
      absl::StrCat(indent, key.name, by_default.empty() ? "" : " = ", by_default),
      by_default.empty() ? "required, " : "", expected,
      is_of_preset ? absl::StrCat("; ", key.source) : "");
}

bool HasKey(const std::vector<RecordedKey>& keys, const std::string& name) {
  return std::ranges::find(keys, name, &RecordedKey::name) != keys.end();
}

// The keys that a table has with one choice of its key `kind` only.
std::string OfKind(const std::string& choice, const std::vector<RecordedKey>& with,
                   const std::vector<RecordedKey>& common) {
  std::string text = absl::StrCat("  with kind = \"", choice, "\":\n");
  for (const RecordedKey& key : with) {
    if (!HasKey(common, key.name)) text += Line(key, "    ");
  }
  return text;
}

}  // namespace

std::string ConfigHelp(const StrategyDefinition& strategy, const ModelFactory& make_model) {
  Config required = Config::FromString(kRequired, "help").value();
  const Config config = WithPreset(strategy.name, strategy.keys, required).value();
  std::string text = "Keys of the configuration, with their defaults:\n";
  const ConfigRecord record = Record(config, strategy, make_model);
  for (const auto& [table, keys] : record) {
    absl::StrAppend(&text, "\n[", table, "]\n");
    const auto kind = std::ranges::find(keys, "kind", &RecordedKey::name);
    std::vector<std::pair<std::string, std::vector<RecordedKey>>> by_kind;
    std::vector<RecordedKey> common = keys;
    if (kind != keys.end()) {
      for (const std::string& choice : kind->choices) {
        Config chosen = config;
        if (!chosen.Set(absl::StrCat(table, ".kind=", choice)).ok()) continue;
        by_kind.emplace_back(choice, Record(chosen, strategy, make_model).at(table));
        std::erase_if(common, [&with = by_kind.back().second](const RecordedKey& key) {
          return !HasKey(with, key.name);
        });
      }
    }
    for (const RecordedKey& key : common) text += Line(key, "  ");
    for (const auto& [choice, with] : by_kind) {
      if (with.size() > common.size()) text += OfKind(choice, with, common);
    }
  }
  return text;
}

absl::StatusOr<std::string> EffectiveConfig(const CommandLine& command_line,
                                            const StrategyDefinition& strategy,
                                            const ModelFactory& make_model) {
  ConfigRecord record;
  LS_RETURN_IF_ERROR(CheckRun(command_line, strategy, make_model, {}, &record).status());
  std::string text;
  for (const auto& [table, keys] : record) {
    if (!table.empty()) absl::StrAppend(&text, "\n[", table, "]\n");
    for (const RecordedKey& key : keys) {
      absl::StrAppendFormat(&text, "%-40s # %s\n", absl::StrCat(key.name, " = ", key.value),
                            key.source.empty() ? "default" : key.source);
    }
  }
  return text;
}

}  // namespace lockstep
