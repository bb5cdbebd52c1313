// What :certify writes: a row a run, its bits as hashes.

#pragma once

#include <string>
#include <vector>

#include "tools/certify/plan.h"
#include "tools/certify/run_bits.h"

namespace lockstep {

// The table of a plan's runs. A row is written in two halves, one before its run and one behind it.
class CertificateTable {
 public:
  explicit CertificateTable(const std::vector<PlannedMesh>& runs);

  std::string Header() const;
  std::string Begin(const PlannedMesh& run) const;
  // `verdict`: "reference", "same", "DIFFERS".
  static std::string End(const BitsDigest& digest, const std::string& verdict);

 private:
  std::string Cells(const std::string& preset, const std::string& mesh, const std::string& threads,
                    const std::string& backend) const;

  size_t preset_width_ = sizeof("preset") - 1, mesh_width_ = sizeof("mesh") - 1;
};

// A line for each reason, or "" where nothing is left out.
std::string LeftOutText(const std::vector<LeftOut>& left_out);

}  // namespace lockstep
