#include "core/run/leg/resolved_config.h"

#include <algorithm>  // std::ranges::find
#include <string>
#include <string_view>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/config/legs.h"

namespace lockstep {
namespace {

// A key that is refused beside another one, unless that one has a certain value: there the default
// of the key stays unsaid.
struct Exclusion {
  std::string_view key, beside, unless;
};
constexpr Exclusion kExclusions[] = {
    {"train.epochs", "train.steps", ""},
    {"data.vocabulary", "data.vocabulary_of", "\"\""},
    {"data_parallel.reshard", "data_parallel.unshard", "\"micro_batch\""},
    {"pipeline.schedule", "pipeline.schedule_file", "\"\""},
    {"pipeline.stages_per_rank", "pipeline.schedule_file", "\"\""},
    {"pipeline.schedule", "pipeline.actions", "\"\""},
    {"pipeline.stages_per_rank", "pipeline.actions", "\"\""},
};

// The value in effect of a key, as TOML; empty: nobody has asked for it.
std::string ValueOf(const ConfigRecord& record, std::string_view key) {
  const size_t dot = key.rfind('.');
  const auto table = record.find(std::string(key.substr(0, dot)));
  if (table == record.end()) return "";
  for (const RecordedKey& each : table->second) {
    if (each.name == key.substr(dot + 1)) return each.value;
  }
  return "";
}

bool StaysUnsaid(const ConfigRecord& record, std::string_view key) {
  for (const Exclusion& exclusion : kExclusions) {
    if (exclusion.key != key) continue;
    const std::string value = ValueOf(record, exclusion.beside);
    if (!value.empty() && value != exclusion.unless) return true;
  }
  return false;
}

// The defaults in effect, as TOML.
std::string Defaults(const ConfigRecord& record, const std::vector<std::string>& tables) {
  std::string text;
  for (const auto& [table, keys] : record) {
    // Others ask for keys of mechanisms that the strategy has not: their defaults.
    const std::string top = table.substr(0, table.find('.'));
    if (!table.empty() && std::ranges::find(tables, top) == tables.end()) continue;
    if (!table.empty()) absl::StrAppend(&text, "[", table, "]\n");
    for (const RecordedKey& key : keys) {
      const bool is_default = key.source.empty() && !key.value.empty();
      if (!is_default || StaysUnsaid(record, absl::StrCat(table, ".", key.name))) continue;
      absl::StrAppend(&text, key.name, " = ", key.value, "\n");
    }
  }
  return text;
}

// `decisions`: TOML of what this kind of run decides besides.
absl::StatusOr<Config> Resolve(const Config& given, const ConfigRecord& record,
                               const std::vector<std::string>& tables, const Settings& settings,
                               const std::string& decisions) {
  LS_ASSIGN_OR_RETURN(Config resolved, Config::FromString(Defaults(record, tables), "default"));
  resolved.MarkAsDefaults("default");
  resolved.Merge(given);
  const CutSettings& cut = settings.cut;
  LS_ASSIGN_OR_RETURN(
      Config decided,
      Config::FromString(
          absl::StrCat(decisions, "cut.shards = ", cut.shards,
                       "\ncut.micro_batches = ", cut.micro_batches, "\ncut.tokens = ", cut.tokens,
                       "\ncut.features = ", cut.features,
                       "\nvalidation.batch_size = ", settings.validation.batch_size, "\n"),
          "decided by the run"));
  decided.MarkAsDefaults("decided by the run");
  resolved.Merge(decided);
  return resolved;
}

}  // namespace

absl::StatusOr<Config> ResolvedConfig(const Config& given, const ConfigRecord& record,
                                      const std::vector<std::string>& tables,
                                      const Settings& settings) {
  return Resolve(given, record, tables, settings,
                 absl::StrCat("run.threads = ", settings.threads, "\n"));
}

absl::StatusOr<Config> ResolvedConfigOfLegs(const Config& given, const ConfigRecord& record,
                                            const std::vector<std::string>& tables,
                                            const Settings& settings) {
  std::vector<std::string> common = tables;
  std::erase_if(common, IsLaidOutByLegs);
  return Resolve(given, record, common, settings, /*decisions=*/"");
}

}  // namespace lockstep
