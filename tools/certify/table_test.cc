#include "tools/certify/table.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

const BitsDigest kDigest = {
    .losses = "0123456789abcdef", .weights = "00000000000000ff", .optimizer = "fedcba9876543210"};

TEST(CertificateTableTest, HasARowARun) {
  const std::vector<PlannedMesh> runs = {
      {.preset = "single", .mesh = {}, .threads = 1, .backend = Backend::kThreads},
      {.preset = "fsdp_pipe",
       .mesh = {.pp = 2, .replicas = 2, .dp = 2},
       .threads = 3,
       .backend = Backend::kMpi}};
  const CertificateTable table(runs);
  EXPECT_EQ(
      table.Header() + table.Begin(runs[0]) + CertificateTable::End(kDigest, "reference") +
          table.Begin(runs[1]) + CertificateTable::End(kDigest, "same"),
      "preset     mesh                       threads  backend  losses, norms     weights          "
      " optimizer         bits\n"
      "single     pp=1,dp=1,tp=1                   1  threads  0123456789abcdef  00000000000000ff "
      " fedcba9876543210  reference\n"
      "fsdp_pipe  pp=2,replicas=2,dp=2,tp=1        3  mpi      0123456789abcdef  00000000000000ff "
      " fedcba9876543210  same\n");
}

TEST(CertificateTableTest, SaysWhatIsLeftOutOnALineEach) {
  EXPECT_EQ(LeftOutText({}), "");
  EXPECT_EQ(
      LeftOutText({{.preset = "tp", .reason = "--set: features\nare 1"},
                   {.preset = "gpipe", .mesh = MeshShape{.pp = 4}, .others = 2, .reason = "b"}}),
      "left out:\n"
      "  tp its default mesh: features are 1\n"
      "  gpipe pp=4,dp=1,tp=1 and 2 more: b\n");
}

}  // namespace
}  // namespace lockstep
