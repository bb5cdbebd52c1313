#include "core/run/mesh_choice.h"

#include <algorithm>
#include <tuple>

namespace lockstep {
namespace {

std::vector<int> DivisorsOf(int number) {
  std::vector<int> divisors;
  for (int i = number; i >= 1; --i) {
    if (number % i == 0) divisors.push_back(i);
  }
  return divisors;
}

}  // namespace

std::vector<MeshShape> SmallerMeshes(const MeshShape& mesh, int ranks) {
  std::vector<MeshShape> meshes;
  for (const int pp : DivisorsOf(mesh.pp)) {
    for (const int replicas : DivisorsOf(mesh.replicas)) {
      for (const int cp : DivisorsOf(mesh.cp)) {
        for (const int tp : DivisorsOf(mesh.tp)) {
          for (int dp = ranks / (pp * replicas * cp * tp); dp >= 1; --dp) {
            for (const int ep : DivisorsOf(mesh.ep)) {
              if (dp * cp % ep != 0) continue;
              meshes.push_back(
                  {.pp = pp, .replicas = replicas, .dp = dp, .cp = cp, .tp = tp, .ep = ep});
            }
          }
        }
      }
    }
  }
  const auto key = [&mesh](const MeshShape& one) {
    return std::tuple(-one.ranks(), one == mesh ? 0 : 1, -one.pp * one.cp * one.tp, -one.replicas,
                      -one.ep);
  };
  std::stable_sort(meshes.begin(), meshes.end(),
                   [&key](const MeshShape& a, const MeshShape& b) { return key(a) < key(b); });
  return meshes;
}

std::optional<MeshShape> LargestMesh(const MeshShape& mesh, int ranks,
                                     const std::function<bool(const MeshShape&)>& fits) {
  for (const MeshShape& smaller : SmallerMeshes(mesh, ranks)) {
    if (fits(smaller)) return smaller;
  }
  return std::nullopt;
}

}  // namespace lockstep
