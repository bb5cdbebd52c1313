#include "tools/plan/questions.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status.h"
#include "foresight/quantity.h"

namespace lockstep {
namespace {

void SetPeak(Cluster& cluster, double value) {
  double largest = 0;
  for (const auto& [dtype, peak] : cluster.device.peak) largest = std::max(largest, peak);
  for (auto& [dtype, peak] : cluster.device.peak) peak *= value / largest;
}

struct Variable {
  const char* name;
  Dimension dimension;
  void (*set)(Cluster& cluster, double value);
};
constexpr Variable kVariables[] = {
    {"network", Dimension::kBytesPerSecond,
     [](Cluster& c, double value) { c.network.bandwidth = value; }},
    {"latency", Dimension::kSeconds, [](Cluster& c, double value) { c.network.latency = value; }},
    {"link", Dimension::kBytesPerSecond,
     [](Cluster& c, double value) { c.node.link_bandwidth = value; }},
    {"memory", Dimension::kBytes, [](Cluster& c, double value) { c.device.memory = value; }},
    {"bandwidth", Dimension::kBytesPerSecond,
     [](Cluster& c, double value) { c.device.bandwidth = value; }},
    {"peak", Dimension::kFlopsPerSecond, SetPeak},
};

}  // namespace

absl::StatusOr<std::vector<int64_t>> ParseRanks(absl::string_view text) {
  const auto wrong = [&] {
    return InvalidArgument("--ranks ", text,
                           " is no list of numbers; write it as 1024, 8,16,32 or 8,16,...,16384");
  };
  std::vector<int64_t> ranks;
  const std::vector<std::string> words = absl::StrSplit(text, ',');
  for (size_t i = 0; i < words.size(); ++i) {
    if (words[i] == "...") {
      int64_t last = 0;
      if (i < 2 || i + 2 != words.size() || !absl::SimpleAtoi(words[i + 1], &last)) return wrong();
      const int64_t a = ranks[i - 2], b = ranks[i - 1];
      if (b <= a || last <= b) return wrong();
      int64_t power = b;
      while (b % a == 0 && power < last) power *= b / a;
      const bool by_factor = b % a == 0 && power == last;
      if (!by_factor && (last - b) % (b - a) != 0) return wrong();
      while (ranks.back() < last) {
        ranks.push_back(by_factor ? ranks.back() * (b / a) : ranks.back() + (b - a));
      }
      return ranks;
    }
    int64_t number = 0;
    if (!absl::SimpleAtoi(words[i], &number) || number < 1) return wrong();
    if (!ranks.empty() && number <= ranks.back()) return wrong();
    ranks.push_back(number);
  }
  return ranks;
}

absl::StatusOr<std::vector<NamedCluster>> Vary(const NamedCluster& base, absl::string_view text) {
  const std::pair<std::string, std::string> parts = absl::StrSplit(text, absl::MaxSplits('=', 1));
  const auto variable = std::ranges::find(kVariables, parts.first, &Variable::name);
  if (variable == std::end(kVariables)) {
    return InvalidArgument("--vary ", text, ": there is no '", parts.first, "' to vary; there are ",
                           absl::StrJoin(kVariables, ", ", [](std::string* out, const Variable& v) {
                             absl::StrAppend(out, v.name);
                           }));
  }
  std::vector<NamedCluster> varied;
  for (const absl::string_view word : absl::StrSplit(parts.second, ',')) {
    const absl::StatusOr<double> value = ParseQuantity(word, variable->dimension);
    if (!value.ok()) return Annotate(value.status(), absl::StrCat("in --vary ", text));
    if (*value <= 0) return InvalidArgument("--vary ", text, ": '", word, "' must be above 0");
    varied.push_back(base);
    variable->set(varied.back().cluster, *value);
    absl::StrAppend(&varied.back().name, ", ", parts.first, " ", word);
  }
  return varied;
}

}  // namespace lockstep
