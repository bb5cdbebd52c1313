#include "tools/certify/table.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"

namespace lockstep {

CertificateTable::CertificateTable(const std::vector<PlannedMesh>& runs) {
  for (const PlannedMesh& run : runs) {
    preset_width_ = std::max(preset_width_, run.preset.size());
    mesh_width_ = std::max(mesh_width_, run.MeshText().size());
  }
}

std::string CertificateTable::Cells(const std::string& preset, const std::string& mesh,
                                    const std::string& threads, const std::string& backend) const {
  return absl::StrFormat("%-*s  %-*s  %7s  %-7s", static_cast<int>(preset_width_), preset,
                         static_cast<int>(mesh_width_), mesh, threads, backend);
}

std::string CertificateTable::Header() const {
  return Cells("preset", "mesh", "threads", "backend") +
         End({"losses, norms", "weights", "optimizer"}, "bits");
}

std::string CertificateTable::Begin(const PlannedMesh& run) const {
  return Cells(run.preset, run.MeshText(), absl::StrCat(run.threads), Name(run.backend));
}

std::string CertificateTable::End(const BitsDigest& digest, const std::string& verdict) {
  return absl::StrFormat("  %-16s  %-16s  %-16s  %s\n", digest.losses, digest.weights,
                         digest.optimizer, verdict);
}

std::string LeftOutText(const std::vector<LeftOut>& left_out) {
  std::string text;
  for (const LeftOut& entry : left_out) {
    absl::StrAppend(&text, text.empty() ? "left out:\n" : "", "  ", entry.preset, " ",
                    entry.mesh ? entry.mesh->ToString() : "its default mesh",
                    entry.others == 0 ? "" : absl::StrCat(" and ", entry.others, " more"), ": ",
                    absl::StrReplaceAll(entry.reason, {{"\n", " "}, {"--set: ", ""}}), "\n");
  }
  return text;
}

}  // namespace lockstep
