// Which runs show that a workload has the same bits under all presets: meshes, threads and
// backends.

#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/comm/mesh_shape.h"
#include "core/config/config.h"

namespace lockstep {

// What the ranks of a run are: threads of one process, or processes that mpirun starts.
enum class Backend { kThreads, kMpi };
const char* Name(Backend backend);  // "threads", "mpi"

// One run of a plan.
struct PlannedMesh {
  std::string preset;  // as the workload calls it
  MeshShape mesh;
  int64_t threads = 1;  // of each rank
  Backend backend = Backend::kThreads;
  // Ranks of the largest mesh of a run with legs, whose meshes stay as they are configured; 0: the
  // run has one mesh, which is `mesh`.
  int64_t leg_ranks = 0;

  int64_t ranks() const { return leg_ranks > 0 ? leg_ranks : mesh.ranks(); }
  std::string MeshText() const;  // "pp=1,dp=2,tp=2", or "legs"

  // For a folder: "fsdp.pp=1,dp=2,tp=2.3_threads.mpi".
  std::string ToString() const;
  // "mesh.dp=2", ...: what --set says of it.
  std::vector<std::string> assignments() const;

  friend bool operator==(const PlannedMesh&, const PlannedMesh&) = default;
};

// What a preset says of a workload's mesh and cut.
struct PresetMesh {
  std::string preset;
  MeshShape mesh;                                // its default for the workload
  std::vector<MeshAxis> fixed_axes = {};         // whose size the preset fixes
  std::vector<std::string> cut = {};             // all keys of the table: "cut.shards=2", ...
  int64_t shards = 1, tokens = 1, features = 1;  // of the cut
  int64_t leg_ranks = 0;  // of the largest mesh of its legs; 0: the preset's run has one mesh

  bool Fixes(MeshAxis axis) const;
};

// Reads the text that the preset's program writes for --print_config.
absl::StatusOr<PresetMesh> ReadPresetMesh(const std::string& preset, const std::string& listing);

// What the meshes of a plan divide, and how far it goes.
struct PlanLimits {
  int64_t shards = 1;    // [cut]
  int64_t tokens = 1;    // [cut]
  int64_t features = 1;  // [cut]
  int64_t ranks = 8;     // at most
  std::vector<int64_t> threads = {1, 3};
  std::vector<Backend> backends = {Backend::kThreads, Backend::kMpi};
};

// Meshes that a preset cannot have.
struct LeftOut {
  std::string preset;
  std::optional<MeshShape> mesh = {};  // one of them; none: its default, whichever that is
  int64_t others = 0;                  // that the same reason excludes
  std::string reason;
};

struct Plan {
  std::vector<PlannedMesh> runs;  // by number of ranks
  std::vector<LeftOut> left_out;
};

// The runs of one preset. Sizes of axes are: pp 1, 2 and 4; replicas and dp the divisors of the
// shards; cp and tp what leaves each rank a node of the tree over token leaves, or feature leaves;
// and the preset's default. Not every combination of mesh, threads and backend is run, but every
// two choices (dp = 2 and tp = 2; tp = 2 and MPI) meet in one run, if any run can have both:
// all-pairs testing. The default mesh comes first, then meshes of more ranks. Ranks of a mesh of
// one are never processes.
//
// `check` says whether the preset takes a mesh. It is asked once for each mesh that would be taken;
// what it refuses is left out, with its message, and others take its place.
//
// A preset whose run has legs keeps their meshes: it runs with each number of threads and each
// backend, and is left out if the legs have more ranks than the plan. `check` is not asked.
Plan PlanOf(const PresetMesh& preset, const PlanLimits& limits,
            const std::function<absl::Status(const MeshShape&)>& check);

}  // namespace lockstep
