#include "core/config/legs.h"

#include <algorithm>
#include <array>
#include <string_view>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/status.h"
#include "core/comm/mesh_shape.h"
#include "core/config/config_reader.h"
#include "core/config/key_ranges.h"

namespace lockstep {
namespace {

// Tables of mechanisms, whose keys move no bit of a run's curve.
constexpr std::array<const char*, 6> kTables = {"mesh",      "pipeline",         "data_parallel",
                                                "recompute", "context_parallel", "tensor_parallel"};

// `ep` is no axis of its own: it divides dp x cp. Legs name it as they name axes.
bool IsAxis(std::string_view key) {
  return key == "ep" || std::any_of(kMeshAxes.begin(), kMeshAxes.end(),
                                    [key](MeshAxis axis) { return key == Name(axis); });
}

bool IsInTable(std::string_view key) {
  return std::any_of(kTables.begin(), kTables.end(), [key](const std::string& table) {
    return key.size() > table.size() + 1 && key.starts_with(table + ".");
  });
}

}  // namespace

absl::StatusOr<Formation> Formation::Parse(const std::string& text) {
  const std::vector<std::string> words =
      absl::StrSplit(text, absl::ByAnyChar(" \t"), absl::SkipEmpty());
  if (words.empty() || words.front().find('=') != std::string::npos) {
    return InvalidArgument("'", text,
                           "' names no strategy; it begins with one, as in \"ddp dp=4\"");
  }
  Formation formation = {.strategy = words.front()};
  for (size_t i = 1; i < words.size(); ++i) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(words[i], absl::MaxSplits('=', 1));
    if (pair.second.empty() || (!IsAxis(pair.first) && !IsInTable(pair.first))) {
      return InvalidArgument("'", words[i],
                             "' is no axis of the mesh with its size, as in dp=4, and no key of ",
                             absl::StrJoin(kTables, ", "), " with its value");
    }
    formation.assignments.push_back(IsAxis(pair.first) ? absl::StrCat("mesh.", words[i])
                                                       : words[i]);
  }
  return formation;
}

std::string Formation::ToString() const {
  return absl::StrCat(strategy, assignments.empty() ? "" : " ", absl::StrJoin(assignments, " "));
}

absl::StatusOr<Leg> Leg::Parse(const std::string& text) {
  const std::pair<std::string, std::string> pair = absl::StrSplit(text, absl::MaxSplits(':', 1));
  Leg leg;
  if (!absl::SimpleAtoi(pair.first, &leg.steps) || leg.steps < 1 || leg.steps > kMostSteps) {
    return InvalidArgument("'", text,
                           "' does not begin with its number of steps, as in \"100: ddp dp=4\"");
  }
  LS_ASSIGN_OR_RETURN(leg.formation, Formation::Parse(pair.second));
  return leg;
}

absl::StatusOr<std::vector<Leg>> ReadLegs(const Config& config) {
  std::vector<std::string> texts;
  ConfigReader reader(config.Table("train"));
  reader.Read("legs", &texts);
  std::vector<Leg> legs;
  for (const std::string& text : texts) {
    absl::StatusOr<Leg> leg = Leg::Parse(text);
    if (!leg.ok()) return Annotate(leg.status(), "train.legs");
    legs.push_back(*std::move(leg));
  }
  return legs;
}

bool IsLaidOutByLegs(std::string_view table) {
  return std::find(kTables.begin(), kTables.end(), table) != kTables.end();
}

absl::StatusOr<std::vector<std::string>> AssignmentsOfLegs(const std::string& text) {
  std::vector<std::string> legs;
  int64_t steps = 0;
  for (const absl::string_view part : absl::StrSplit(text, ';')) {
    const std::string leg(absl::StripAsciiWhitespace(part));
    LS_ASSIGN_OR_RETURN(const Leg parsed, Leg::Parse(leg));
    if (leg.find_first_of("\"\\") != std::string::npos) {
      return InvalidArgument("'", leg, "' has a quote or a backslash; write it in train.legs");
    }
    steps += parsed.steps;
    legs.push_back(absl::StrCat("\"", leg, "\""));
  }
  return std::vector<std::string>{absl::StrCat("train.legs=[", absl::StrJoin(legs, ", "), "]"),
                                  absl::StrCat("train.steps=", steps)};
}

}  // namespace lockstep
