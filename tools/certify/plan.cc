#include "tools/certify/plan.h"

#include <algorithm>
#include <array>
#include <bit>  // std::has_single_bit
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "core/config/config_toml.h"

namespace lockstep {
namespace {

std::vector<int64_t> SizesOf(MeshAxis axis, const PresetMesh& preset, const PlanLimits& limits) {
  std::set<int64_t> sizes = {preset.mesh[axis]};
  if (preset.Fixes(axis)) return {sizes.begin(), sizes.end()};
  for (int64_t size = 1; size <= limits.ranks; ++size) {
    // Whether ranks hold nodes of the tree over leaves.
    const auto hold_nodes = [size](int64_t leaves) {
      return leaves % size == 0 && std::has_single_bit(static_cast<uint64_t>(leaves / size));
    };
    const bool fits = axis == MeshAxis::kPp   ? size == 2 || size == 4
                      : axis == MeshAxis::kTp ? hold_nodes(limits.features)
                      : axis == MeshAxis::kCp ? hold_nodes(limits.tokens)
                                              : limits.shards % size == 0;
    if (size == 1 || fits) sizes.insert(size);
  }
  return {sizes.begin(), sizes.end()};
}

std::vector<MeshShape> MeshesOf(const PresetMesh& preset, const PlanLimits& limits) {
  std::vector<MeshShape> meshes = {MeshShape{}};
  for (const MeshAxis axis : kMeshAxes) {
    std::vector<MeshShape> longer;
    for (MeshShape mesh : meshes) {
      for (const int64_t size : SizesOf(axis, preset, limits)) {
        mesh[axis] = static_cast<int>(size);
        longer.push_back(mesh);
      }
    }
    meshes = std::move(longer);
  }
  // Ranks along dp and cp divide experts where the preset's do.
  const size_t undivided = meshes.size();
  for (size_t i = 0; i < undivided; ++i) {
    for (int ep = 2; ep <= preset.mesh.ep; ep *= 2) {
      if (meshes[i].dp * meshes[i].cp % ep != 0) continue;
      meshes.push_back(meshes[i]);
      meshes.back().ep = ep;
    }
  }
  std::erase_if(meshes, [&](const MeshShape& mesh) {
    return mesh.ranks() > limits.ranks ||
           (limits.shards % mesh.data_ranks() != 0 && mesh != preset.mesh);
  });
  std::stable_sort(meshes.begin(), meshes.end(), [&](const MeshShape& a, const MeshShape& b) {
    return std::pair(a != preset.mesh, -a.ranks()) < std::pair(b != preset.mesh, -b.ranks());
  });
  return meshes;
}

const std::vector<Backend> kThreadsAlone = {Backend::kThreads};

// A choice is the number of a factor and its level there.
using Choice = std::pair<size_t, int64_t>;

std::vector<std::pair<Choice, Choice>> PairsOf(const PlannedMesh& run) {
  const std::array<int64_t, 8> levels = {run.mesh.pp, run.mesh.replicas,   run.mesh.dp,
                                         run.mesh.cp, run.mesh.tp,         run.mesh.ep,
                                         run.threads, int64_t(run.backend)};
  std::vector<std::pair<Choice, Choice>> pairs;
  for (size_t i = 0; i < levels.size(); ++i) {
    for (size_t j = 0; j < i; ++j) pairs.push_back({{i, levels[i]}, {j, levels[j]}});
  }
  return pairs;
}

void LeaveOut(const std::string& preset, const MeshShape& mesh, const std::string& reason,
              std::vector<LeftOut>& left_out) {
  for (LeftOut& entry : left_out) {
    if (entry.reason != reason) continue;
    ++entry.others;
    return;
  }
  left_out.push_back({.preset = preset, .mesh = mesh, .reason = reason});
}

Plan PlanOfLegs(const PresetMesh& preset, const PlanLimits& limits) {
  Plan plan;
  if (preset.leg_ranks > limits.ranks) {
    plan.left_out.push_back({.preset = preset.preset,
                             .reason = absl::StrCat("its legs have up to ", preset.leg_ranks,
                                                    " ranks, and --ranks is ", limits.ranks)});
    return plan;
  }
  for (const int64_t threads : limits.threads) {
    for (const Backend backend : preset.leg_ranks == 1 ? kThreadsAlone : limits.backends) {
      plan.runs.push_back({.preset = preset.preset,
                           .mesh = {},
                           .threads = threads,
                           .backend = backend,
                           .leg_ranks = preset.leg_ranks});
    }
  }
  return plan;
}

}  // namespace

const char* Name(Backend backend) { return backend == Backend::kThreads ? "threads" : "mpi"; }

std::string PlannedMesh::ToString() const {
  return absl::StrCat(preset, ".", MeshText(), ".", threads, "_threads.", Name(backend));
}

std::string PlannedMesh::MeshText() const { return leg_ranks > 0 ? "legs" : mesh.ToString(); }

std::vector<std::string> PlannedMesh::assignments() const {
  std::vector<std::string> all = {absl::StrCat("run.threads=", threads)};
  if (leg_ranks > 0) return all;
  for (const MeshAxis axis : kMeshAxes) {
    all.push_back(absl::StrCat("mesh.", Name(axis), "=", mesh[axis]));
  }
  all.push_back(absl::StrCat("mesh.ep=", mesh.ep));
  return all;
}

bool PresetMesh::Fixes(MeshAxis axis) const {
  return std::find(fixed_axes.begin(), fixed_axes.end(), axis) != fixed_axes.end();
}

absl::StatusOr<PresetMesh> ReadPresetMesh(const std::string& preset, const std::string& listing) {
  LS_ASSIGN_OR_RETURN(const Config config, Config::FromString(listing, "--print_config"));
  PresetMesh result = {.preset = preset, .mesh = {}};
  ConfigReader mesh(config.Table("mesh")), cut(config.Table("cut"));
  for (const MeshAxis axis : kMeshAxes) mesh.Read(Name(axis), &result.mesh[axis]);
  mesh.Read("ep", &result.mesh.ep);
  LS_RETURN_IF_ERROR(mesh.Finish());
  cut.Read("shards", &result.shards);
  cut.Read("tokens", &result.tokens);
  cut.Read("features", &result.features);
  if (const ConfigValue* table = config.Table("cut").value; table != nullptr) {
    for (const auto& [key, value] : *table->As<ConfigValue::Table>()) {
      result.cut.push_back(absl::StrCat("cut.", key, "=", FormatTomlValue(value)));
    }
  }
  // The source of a value stands behind it, in a comment.
  bool is_mesh = false;
  absl::string_view first_line = absl::string_view(listing).substr(0, listing.find('\n'));
  if (absl::ConsumePrefix(&first_line, "# legs with up to ") &&
      (!absl::ConsumeSuffix(&first_line, " ranks") ||
       !absl::SimpleAtoi(first_line, &result.leg_ranks))) {
    return InvalidArgument("--print_config: its first line names no number of ranks: ", listing);
  }
  for (const absl::string_view line : absl::StrSplit(listing, '\n')) {
    if (absl::StartsWith(line, "[")) is_mesh = line == "[mesh]";
    if (!is_mesh || !absl::StrContains(line, "# fixed by ")) continue;
    for (const MeshAxis axis : kMeshAxes) {
      if (absl::StartsWith(line, absl::StrCat(Name(axis), " ="))) result.fixed_axes.push_back(axis);
    }
  }
  return result;
}

Plan PlanOf(const PresetMesh& preset, const PlanLimits& limits,
            const std::function<absl::Status(const MeshShape&)>& check) {
  if (preset.leg_ranks > 0) return PlanOfLegs(preset, limits);
  std::vector<PlannedMesh> candidates;
  for (const MeshShape& mesh : MeshesOf(preset, limits)) {
    for (const int64_t threads : limits.threads) {
      for (const Backend backend : mesh.ranks() == 1 ? kThreadsAlone : limits.backends) {
        candidates.push_back(
            {.preset = preset.preset, .mesh = mesh, .threads = threads, .backend = backend});
      }
    }
  }
  Plan plan;
  std::set<std::pair<Choice, Choice>> met;
  std::vector<MeshShape> accepted;
  while (!candidates.empty()) {
    const auto new_pairs = [&met](const PlannedMesh& run) {
      const auto pairs = PairsOf(run);
      return std::count_if(pairs.begin(), pairs.end(),
                           [&met](const auto& pair) { return !met.contains(pair); });
    };
    const auto best = std::max_element(
        candidates.begin(), candidates.end(),
        [&](const PlannedMesh& a, const PlannedMesh& b) { return new_pairs(a) < new_pairs(b); });
    if (new_pairs(*best) == 0) break;
    const PlannedMesh run = *best;
    if (std::find(accepted.begin(), accepted.end(), run.mesh) == accepted.end()) {
      if (const absl::Status status = check(run.mesh); !status.ok()) {
        LeaveOut(preset.preset, run.mesh, std::string(status.message()), plan.left_out);
        std::erase_if(candidates, [&](const PlannedMesh& other) { return other.mesh == run.mesh; });
        continue;
      }
      accepted.push_back(run.mesh);
    }
    for (const auto& pair : PairsOf(run)) met.insert(pair);
    plan.runs.push_back(run);
  }
  std::stable_sort(plan.runs.begin(), plan.runs.end(),
                   [](const PlannedMesh& a, const PlannedMesh& b) {
                     return std::tuple(a.mesh.ranks(), a.mesh.ToString(), a.threads, a.backend) <
                            std::tuple(b.mesh.ranks(), b.mesh.ToString(), b.threads, b.backend);
                   });
  return plan;
}

}  // namespace lockstep
