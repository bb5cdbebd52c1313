#include "core/report/straggler.h"

#include <algorithm>
#include <map>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

constexpr char kStraggler[] = "straggler";

// What a row says of a straggler; nothing where it is another row.
std::optional<Straggler> StragglerOf(const Json& row) {
  const auto has = [](const Json& object, const char* key, bool (Json::*is)() const noexcept) {
    return object.is_object() && object.contains(key) && (object[key].*is)();
  };
  if (!has(row, "step", &Json::is_number_integer) || !has(row, kStraggler, &Json::is_object)) {
    return std::nullopt;
  }
  const Json& found = row[kStraggler];
  if (!has(found, "rank", &Json::is_number_integer) || !has(found, "part", &Json::is_string) ||
      !has(found, "factor", &Json::is_number) || !has(found, "seconds", &Json::is_number)) {
    return std::nullopt;
  }
  Straggler straggler = {.step = row["step"].get<int64_t>(),
                         .rank = found["rank"].get<int32_t>(),
                         .factor = found["factor"].get<double>(),
                         .seconds = found["seconds"].get<double>()};
  for (int phase = 0; phase < kPhases; ++phase) {
    const auto part = static_cast<Phase>(phase);
    if (found["part"].get<std::string>() == Name(part)) straggler.part = part;
  }
  return straggler;
}

}  // namespace

std::string Straggler::ToRow() const {
  const Json row = {
      {"step", step},
      {kStraggler,
       {{"rank", rank}, {"part", Name(part)}, {"factor", factor}, {"seconds", seconds}}}};
  return row.dump();
}

absl::StatusOr<std::vector<SlowRank>> ReadSlowRanks(const std::string& metrics_path) {
  LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(metrics_path));
  std::map<int32_t, SlowRank> by_rank;
  const std::string mark = absl::StrCat("\"", kStraggler, "\"");
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    if (!absl::StrContains(line, mark)) continue;  // most rows: parsing takes longer
    const std::optional<Straggler> straggler =
        StragglerOf(Json::parse(line.begin(), line.end(), nullptr, /*allow_exceptions=*/false));
    if (!straggler) continue;
    SlowRank& slow = by_rank[straggler->rank];
    slow.windows += 1;
    if (straggler->factor > slow.worst.factor) slow.worst = *straggler;
  }
  std::vector<SlowRank> ranks;
  for (const auto& [rank, slow] : by_rank) ranks.push_back(slow);
  return ranks;
}

}  // namespace lockstep
