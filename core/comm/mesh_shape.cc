#include "core/comm/mesh_shape.h"

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "absl/strings/strip.h"

namespace lockstep {
namespace {

absl::Status Malformed(absl::string_view text, absl::string_view what) {
  return absl::InvalidArgumentError(absl::StrCat(
      "mesh \"", text, "\": ", what, "; write the axes pp, dp and tp as in \"dp=2,tp=4\""));
}

}  // namespace

absl::StatusOr<MeshShape> MeshShape::Parse(absl::string_view text) {
  MeshShape shape;
  std::vector<std::string> seen;
  for (const absl::string_view item : absl::StrSplit(text, ',', absl::SkipWhitespace())) {
    const std::pair<absl::string_view, absl::string_view> parts = absl::StrSplit(item, '=');
    const std::string name(absl::StripAsciiWhitespace(parts.first));
    int* size = name == "pp"   ? &shape.pp
                : name == "dp" ? &shape.dp
                : name == "tp" ? &shape.tp
                               : nullptr;
    if (size == nullptr) return Malformed(text, absl::StrCat("there is no axis \"", name, "\""));
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
      return absl::InvalidArgumentError(absl::StrCat("mesh ", ToString(), ": axis ", Name(axis),
                                                     " has size ", (*this)[axis],
                                                     "; it must be 1 or more"));
    }
  }
  const int64_t needed = int64_t{pp} * dp * tp;
  if (needed != ranks) {
    return absl::InvalidArgumentError(absl::StrCat(
        "mesh ", ToString(), " takes ", needed, needed == 1 ? " rank" : " ranks", " (", pp, " x ",
        dp, " x ", tp, "), but there ", ranks == 1 ? "is " : "are ", ranks, "; start ", needed,
        " or change the mesh so that its sizes multiply to ", ranks));
  }
  return absl::OkStatus();
}

std::string MeshShape::ToString() const { return absl::StrCat("pp=", pp, ",dp=", dp, ",tp=", tp); }

std::string MeshShape::Grid() const {
  std::string text =
      absl::StrCat("mesh ", ToString(), ", ", ranks(), ranks() == 1 ? " rank\n" : " ranks\n");
  absl::StrAppendFormat(&text, "%16s", "");
  for (int t = 0; t < tp; ++t) absl::StrAppendFormat(&text, "%6s", absl::StrCat("tp ", t));
  for (int p = 0; p < pp; ++p) {
    for (int d = 0; d < dp; ++d) {
      absl::StrAppendFormat(&text, "\n  %-6s%-8s", d == 0 ? absl::StrCat("pp ", p) : "",
                            absl::StrCat("dp ", d));
      for (int t = 0; t < tp; ++t) {
        absl::StrAppendFormat(&text, "%6d", RankAt({.pp = p, .dp = d, .tp = t}));
      }
    }
  }
  return absl::StrCat(text, "\n");
}

}  // namespace lockstep
