#include "core/report/straggler.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "core/base/status.h"
#include "core/report/metrics.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

constexpr char kStraggler[] = "straggler";

// What a row with a straggler says of it; nothing where it says something else.
std::optional<Straggler> StragglerOf(const nlohmann::json& row) {
  using Json = nlohmann::json;
  const Json& found = row[kStraggler];
  const auto has = [](const Json& object, const char* key, bool (Json::*is)() const noexcept) {
    return object.is_object() && object.contains(key) && (object[key].*is)();
  };
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
  const nlohmann::ordered_json row = {
      {"step", step},
      {kStraggler,
       {{"rank", rank}, {"part", Name(part)}, {"factor", factor}, {"seconds", seconds}}}};
  return row.dump();
}

absl::StatusOr<std::vector<SlowRank>> ReadSlowRanks(const std::string& metrics_path) {
  std::map<int32_t, SlowRank> by_rank;
  const auto take = [&by_rank](const nlohmann::json& row) {
    const std::optional<Straggler> straggler = StragglerOf(row);
    if (!straggler) return;
    SlowRank& slow = by_rank[straggler->rank];
    slow.windows += 1;
    if (straggler->factor > slow.worst.factor) slow.worst = *straggler;
  };
  LS_RETURN_IF_ERROR(
      ForEachMetric(metrics_path, kStraggler, std::numeric_limits<int64_t>::max(), take));
  std::vector<SlowRank> ranks;
  for (const auto& [rank, slow] : by_rank) ranks.push_back(slow);
  return ranks;
}

}  // namespace lockstep
