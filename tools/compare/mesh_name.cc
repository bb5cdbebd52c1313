#include "tools/compare/mesh_name.h"

#include <vector>

#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"

namespace lockstep {
namespace {

std::vector<std::string> DividedAxes(const std::string& mesh) {
  std::vector<std::string> axes = absl::StrSplit(mesh, ',', absl::SkipEmpty());
  std::erase_if(axes, [](const std::string& axis) { return axis.ends_with("=1"); });
  return axes;
}

}  // namespace

std::string ShortMesh(const std::string& mesh) { return absl::StrJoin(DividedAxes(mesh), " "); }

std::string MeshKind(const std::string& mesh) {
  std::vector<std::string> axes = DividedAxes(mesh);
  for (std::string& axis : axes) axis.resize(axis.find('='));
  return absl::StrJoin(axes, " x ");
}

}  // namespace lockstep
