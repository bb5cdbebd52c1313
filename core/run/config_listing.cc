#include "core/run/config_listing.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/config/config.h"
#include "core/config/config_toml.h"
#include "core/config/data_config.h"
#include "core/config/key_meanings.h"
#include "core/config/legs.h"
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
model.experts.count = 4
model.rope_scaling.factor = 8
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

// The keys by whose choice a table has other keys.
constexpr const char* kSelectors[] = {"kind", "shard"};

// The key of a table that chooses among kinds of it, unless the preset fixes it; null: none.
const RecordedKey* Selector(const std::vector<RecordedKey>& keys) {
  for (const char* name : kSelectors) {
    const auto found = std::ranges::find(keys, name, &RecordedKey::name);
    if (found != keys.end() && !absl::StartsWith(found->source, "fixed by")) return &*found;
  }
  return nullptr;
}

// Adds the keys of one kind to a table's.
void AddKind(const std::string& kind, const std::vector<RecordedKey>& keys, ListedTable& table) {
  for (const RecordedKey& key : keys) {
    const auto listed = std::ranges::find_if(table.keys, [&](const ListedKey& other) {
      return other.key.name == key.name && other.key.by_default == key.by_default &&
             other.key.expected == key.expected;
    });
    if (listed == table.keys.end()) {
      table.keys.push_back({.key = key, .kinds = {kind}});
    } else {
      listed->kinds.push_back(kind);
    }
  }
}

std::string Line(const RecordedKey& key, const std::string& table, const std::string& indent) {
  const std::string by_default = DefaultOf(key);
  const std::string expected =
      absl::StrCat(key.expected, key.choices.empty() ? "" : " ", absl::StrJoin(key.choices, ", "));
  const bool is_of_preset = !key.source.empty() && by_default == key.value;
  return absl::StrFormat(
      "%-38s # %s%s%s: %s\n",
      absl::StrCat(indent, key.name, by_default.empty() ? "" : " = ", by_default),
      by_default.empty() ? "required, " : "", expected,
      is_of_preset ? absl::StrCat("; ", key.source) : "",
      std::string(MeaningOf(absl::StrCat(table, ".", key.name))));
}

std::string ListedLine(const std::string& key, const std::string& value,
                       const std::string& source) {
  return absl::StrFormat("%-40s # %s\n", absl::StrCat(key, " = ", value),
                         source.empty() ? "default" : source);
}

// The keys in effect of a run without legs.
std::string Listing(const ConfigRecord& record) {
  std::string text;
  for (const auto& [table, keys] : record) {
    if (!table.empty()) absl::StrAppend(&text, "\n[", table, "]\n");
    for (const RecordedKey& key : keys) text += ListedLine(key.name, key.value, key.source);
  }
  return text;
}

// Appends the keys of a table, and then its tables.
void AppendTable(const std::string& path, const ConfigValue::Table& table, std::string& text) {
  if (!path.empty()) absl::StrAppend(&text, "\n[", path, "]\n");
  for (const auto& [key, value] : table) {
    if (value.As<ConfigValue::Table>() != nullptr) continue;
    text += ListedLine(FormatTomlKey(key), FormatTomlValue(value), value.origin);
  }
  for (const auto& [key, value] : table) {
    const auto* inner = value.As<ConfigValue::Table>();
    if (inner == nullptr) continue;
    AppendTable(absl::StrCat(path, path.empty() ? "" : ".", FormatTomlKey(key)), *inner, text);
  }
}

// The keys of one leg that others may have with other values, as comments.
std::string ListingOfLeg(const TrainingRun& run, const Leg& leg) {
  std::set<std::string> own;  // keys that the leg itself names
  for (const std::string& assignment : leg.formation.assignments) {
    own.insert(assignment.substr(0, assignment.find('=')));
  }
  std::string text;
  for (const auto& [table, value] : *run.config.Table("").value->As<ConfigValue::Table>()) {
    const auto* keys = value.As<ConfigValue::Table>();
    if (keys == nullptr || !IsLaidOutByLegs(table)) continue;
    for (const auto& [key, member] : *keys) {
      const std::string name = absl::StrCat(table, ".", key);
      absl::StrAppend(&text, "#   ",
                      ListedLine(name, FormatTomlValue(member),
                                 own.contains(name) ? "train.legs" : member.origin));
    }
  }
  return text;
}

std::string ListingOfLegs(const TrainingRun& run) {
  std::string text = absl::StrCat("# legs with up to ", WorldSize(run), " ranks\n\n");
  AppendTable("", *run.written_config().Table("").value->As<ConfigValue::Table>(), text);
  int64_t first_step = 1;
  size_t number = 0;
  for (const TrainingRun* leg = &run; leg != nullptr; leg = leg->next.get()) {
    absl::StrAppend(&text, "\n# leg ", number + 1, ", steps ", first_step, " to ", leg->end_step,
                    ": ", leg->strategy_name, "\n", ListingOfLeg(*leg, run.settings.legs[number]));
    first_step = leg->end_step + 1;
    ++number;
  }
  return text;
}

}  // namespace

std::string DefaultOf(const RecordedKey& key) {
  return absl::StartsWith(key.source, "help:") || key.source == "--set" ? key.by_default
                                                                        : key.value;
}

std::map<std::string, ListedTable> ListKeys(const StrategyDefinition& strategy,
                                            const ModelFactory& make_model) {
  const Config required = Config::FromString(kRequired, "help").value();
  const Config config = WithPreset(strategy.name, strategy.keys, required).value();
  const ConfigRecord record = Record(config, strategy, make_model);
  std::map<std::string, ListedTable> tables;
  for (const auto& [name, keys] : record) {
    ListedTable& table = tables[name];
    const RecordedKey* selector = Selector(keys);
    if (selector == nullptr) {
      for (const RecordedKey& key : keys) table.keys.push_back({.key = key});
      continue;
    }
    table.selector = selector->name;
    table.kinds = selector->choices;
    for (const std::string& kind : table.kinds) {
      const std::string choice = absl::StrCat(name, ".", table.selector, "=", kind);
      Config chosen = config;
      if (!chosen.Set(choice).ok()) continue;
      const ConfigRecord with = Record(chosen, strategy, make_model);
      AddKind(kind, with.at(name), table);
      for (const auto& [other, members] : with) {
        if (record.contains(other) || tables.contains(other)) continue;
        tables[other].only_with = absl::StrCat(name, ".", table.selector, " = \"", kind, "\"");
        for (const RecordedKey& key : members) tables[other].keys.push_back({.key = key});
      }
    }
    for (ListedKey& key : table.keys) {
      if (key.kinds == table.kinds) key.kinds.clear();
    }
  }
  return tables;
}

std::string ConfigHelp(const StrategyDefinition& strategy, const ModelFactory& make_model) {
  std::string text = "Keys of the configuration, with their defaults:\n";
  for (const auto& [name, table] : ListKeys(strategy, make_model)) {
    absl::StrAppend(&text, "\n[", name, "]", table.only_with.empty() ? "" : " with ",
                    table.only_with, "\n");
    for (const ListedKey& key : table.keys) {
      if (key.kinds.empty()) text += Line(key.key, name, "  ");
    }
    for (const std::string& kind : table.kinds) {
      std::string lines;
      for (const ListedKey& key : table.keys) {
        if (std::ranges::find(key.kinds, kind) != key.kinds.end()) {
          lines += Line(key.key, name, "    ");
        }
      }
      if (lines.empty()) continue;
      absl::StrAppend(&text, "  with ", table.selector, " = \"", kind, "\":\n", lines);
    }
  }
  return text;
}

absl::StatusOr<std::string> EffectiveConfig(const CommandLine& command_line,
                                            const StrategyDefinition& strategy,
                                            const ModelFactory& make_model,
                                            const std::vector<StrategyDefinition>& strategies) {
  ConfigRecord record;
  if (strategies.empty()) {
    LS_RETURN_IF_ERROR(CheckRun(command_line, strategy, make_model, {}, &record).status());
    return Listing(record);
  }
  LS_ASSIGN_OR_RETURN(const TrainingRun run,
                      CheckWholeRun(command_line, strategy, make_model, {}, strategies, &record));
  return run.settings.legs.empty() ? Listing(record) : ListingOfLegs(run);
}

}  // namespace lockstep
