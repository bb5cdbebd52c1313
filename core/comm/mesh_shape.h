#pragma once

#include <array>
#include <cstddef>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// The directions in which a model's training is divided.
enum class MeshAxis {
  kPp,        // pipeline, or layer-wise: the blocks
  kReplicas,  // data: the batch, among groups that hold the same
  kDp,        // data: the batch, within such a group
  kCp,        // context: the tokens of each sequence
  kTp,        // tensor: within a layer
};
inline constexpr std::array<MeshAxis, 5> kMeshAxes = {MeshAxis::kPp, MeshAxis::kReplicas,
                                                      MeshAxis::kDp, MeshAxis::kCp, MeshAxis::kTp};

// "pp", "replicas", "dp", "cp", "tp"
constexpr const char* Name(MeshAxis axis) {
  constexpr const char* kNames[] = {"pp", "replicas", "dp", "cp", "tp"};
  return kNames[static_cast<size_t>(axis)];
}

// A number for each axis: a rank's place in a mesh, from 0.
struct MeshCoordinate {
  int pp = 0;
  int replicas = 0;
  int dp = 0;
  int cp = 0;
  int tp = 0;

  int& operator[](MeshAxis axis) {
    int* const all[] = {&pp, &replicas, &dp, &cp, &tp};
    return *all[static_cast<size_t>(axis)];
  }
  int operator[](MeshAxis axis) const { return MeshCoordinate(*this)[axis]; }
  friend bool operator==(const MeshCoordinate&, const MeshCoordinate&) = default;
};

// How many ranks lie along each axis. Ranks are laid out with pp as the slowest index, then
// replicas, dp and cp, and tp as the fastest, rank = (((pp * sizes.replicas + replica) * sizes.dp +
// dp) * sizes.cp + cp) * sizes.tp + tp: tensor parallelism, which talks most, has neighbours, and
// stages, which talk least, are farthest apart.
struct MeshShape {
  int pp = 1;
  int replicas = 1;
  int dp = 1;
  int cp = 1;
  int tp = 1;
  // Ranks that divide the experts of a mixture among them. These are no axis of their own: of the
  // ranks along dp and cp of one replica, with cp as the faster index, each run of `ep` is a group.
  int ep = 1;

  // "dp=2,tp=4": axes in any order, each at most once, and ep; what is not named is 1.
  // InvalidArgument with
  // what is wrong otherwise.
  static absl::StatusOr<MeshShape> Parse(absl::string_view text);

  // InvalidArgument unless all sizes are at least 1 and their product is `ranks`; the message says
  // how many ranks the mesh takes.
  absl::Status Check(int ranks) const;

  int ranks() const { return pp * replicas * dp * cp * tp; }
  // How many axes have more than one rank.
  int divided_axes() const { return (pp > 1) + (replicas > 1) + (dp > 1) + (cp > 1) + (tp > 1); }
  // Number of ranks among which the samples of a batch are divided.
  int data_ranks() const { return replicas * dp; }
  // How many groups of a replica hold all experts, each once. Requires that ep divides dp x cp.
  int expert_groups() const { return dp * cp / ep; }
  // Which of these groups a rank is in, and which of its members it is.
  int ExpertGroupOf(const MeshCoordinate& at) const { return (at.dp * cp + at.cp) / ep; }
  int ExpertPlaceOf(const MeshCoordinate& at) const { return (at.dp * cp + at.cp) % ep; }
  int& operator[](MeshAxis axis) {
    int* const all[] = {&pp, &replicas, &dp, &cp, &tp};
    return *all[static_cast<size_t>(axis)];
  }
  int operator[](MeshAxis axis) const { return MeshShape(*this)[axis]; }
  MeshCoordinate CoordinateOf(int rank) const {
    return {.pp = rank / tp / cp / dp / replicas,
            .replicas = rank / tp / cp / dp % replicas,
            .dp = rank / tp / cp % dp,
            .cp = rank / tp % cp,
            .tp = rank % tp};
  }
  int RankAt(const MeshCoordinate& at) const {
    return (((at.pp * replicas + at.replicas) * dp + at.dp) * cp + at.cp) * tp + at.tp;
  }

  // "pp=1,dp=2,tp=4"; with replicas, cp and ep, "pp=1,replicas=2,dp=2,cp=2,tp=4,ep=2", where there
  // are several.
  std::string ToString() const;

  // The ranks as a grid: a column for each tp, a row for each (pp, dp), or where there are several
  // replicas or ranks along cp for each (pp, replica, dp, cp).
  //
  //   mesh pp=2,dp=2,tp=2, 8 ranks
  //                  tp 0  tp 1
  //     pp 0  dp 0      0     1
  //           dp 1      2     3
  //     pp 1  dp 0      4     5
  //           dp 1      6     7
  std::string Grid() const;

  friend bool operator==(const MeshShape&, const MeshShape&) = default;
};

}  // namespace lockstep
