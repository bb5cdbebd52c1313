#include "core/comm/mesh_shape.h"

#include <algorithm>  // std::find_if
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

absl::Status Malformed(absl::string_view text, absl::string_view what) {
  return InvalidArgument("mesh \"", text, "\": ", what,
                         "; write pp, replicas, dp, cp, tp and ep as in \"dp=2,tp=4\"");
}

// The axes to speak of: groups that hold the same, and divided sequences, are rare.
std::vector<MeshAxis> Shown(const MeshShape& shape) {
  std::vector<MeshAxis> axes(kMeshAxes.begin(), kMeshAxes.end());
  if (shape.replicas == 1) std::erase(axes, MeshAxis::kReplicas);
  if (shape.cp == 1) std::erase(axes, MeshAxis::kCp);
  return axes;
}

}  // namespace

absl::StatusOr<MeshShape> MeshShape::Parse(absl::string_view text) {
  MeshShape shape;
  std::vector<std::string> seen;
  const auto size_of = [&shape](const std::string& name) -> int* {
    if (name == "ep") return &shape.ep;
    const auto axis = std::find_if(kMeshAxes.begin(), kMeshAxes.end(),
                                   [&name](MeshAxis other) { return Name(other) == name; });
    return axis == kMeshAxes.end() ? nullptr : &shape[*axis];
  };
  for (const absl::string_view item : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(item, '=');
    const std::string name(absl::StripAsciiWhitespace(parts.first));
    int* const size = size_of(name);
    if (size == nullptr) {
      return Malformed(text, absl::StrCat("there is no axis \"", name, "\""));
    }
    for (const std::string& other : seen) {
      if (other == name) return Malformed(text, absl::StrCat("axis ", name, " is given twice"));
    }
    seen.push_back(name);
    if (!absl::SimpleAtoi(parts.second, size) || *size < 1) {
      return Malformed(text, absl::StrCat("axis ", name, " needs a size of 1 or more"));
    }
  }
  return shape;
}

absl::Status MeshShape::Check(int ranks) const {
  for (const MeshAxis axis : kMeshAxes) {
    if ((*this)[axis] < 1) {
      return InvalidArgument("mesh ", ToString(), ": axis ", Name(axis), " has size ",
                             (*this)[axis], "; it must be 1 or more");
    }
  }
  if (ep < 1 || dp * cp % ep != 0) {
    return InvalidArgument("mesh ", ToString(), ": ep is ", ep,
                           ", but must divide dp x cp, which is ", dp * cp);
  }
  int64_t needed = 1;
  for (const MeshAxis axis : kMeshAxes) needed *= (*this)[axis];
  if (needed != ranks) {
    const std::string factors = absl::StrJoin(
        Shown(*this), " x ",
        [this](std::string* out, MeshAxis axis) { absl::StrAppend(out, (*this)[axis]); });
    return InvalidArgument("mesh ", ToString(), " takes ", needed, needed == 1 ? " rank" : " ranks",
                           " (", factors, "), but there ", ranks == 1 ? "is " : "are ", ranks,
                           "; start ", needed, " or change the mesh so that its sizes multiply to ",
                           ranks);
  }
  return absl::OkStatus();
}

std::string MeshShape::ToString() const {
  std::string text = absl::StrJoin(Shown(*this), ",", [this](std::string* out, MeshAxis axis) {
    absl::StrAppend(out, Name(axis), "=", (*this)[axis]);
  });
  if (ep > 1) absl::StrAppend(&text, ",ep=", ep);
  return text;
}

std::string MeshShape::Grid() const {
  std::string text =
      absl::StrCat("mesh ", ToString(), ", ", ranks(), ranks() == 1 ? " rank\n" : " ranks\n");
  absl::StrAppendFormat(&text, "%*s", 16 + (replicas > 1 ? 12 : 0) + (cp > 1 ? 8 : 0), "");
  for (int t = 0; t < tp; ++t) absl::StrAppendFormat(&text, "%6s", absl::StrCat("tp ", t));
  for (int rank = 0; rank < ranks(); rank += tp) {
    // What a row shares with the one above it is not said again.
    const MeshCoordinate at = CoordinateOf(rank);
    const bool new_dp = at.cp == 0, new_replica = new_dp && at.dp == 0,
               new_stage = new_replica && at.replicas == 0;
    absl::StrAppendFormat(&text, "\n  %-6s", new_stage ? absl::StrCat("pp ", at.pp) : "");
    if (replicas > 1) {
      absl::StrAppendFormat(&text, "%-12s",
                            new_replica ? absl::StrCat("replica ", at.replicas) : "");
    }
    absl::StrAppendFormat(&text, "%-8s", new_dp ? absl::StrCat("dp ", at.dp) : "");
    if (cp > 1) absl::StrAppendFormat(&text, "%-8s", absl::StrCat("cp ", at.cp));
    for (int t = 0; t < tp; ++t) absl::StrAppendFormat(&text, "%6d", rank + t);
  }
  return absl::StrCat(text, "\n");
}

}  // namespace lockstep
