#include <string>
#include <string_view>

#include "core/base/status.h"
#include "foresight/cluster.h"
#include "glog/logging.h"
#include "tools/hostile/fuzz/fuzz_targets.h"
#include "tools/hostile/fuzz/memory_file.h"

namespace lockstep {

absl::Status FuzzCluster(std::string_view input) {
  const MemoryFile file(input);
  LS_ASSIGN_OR_RETURN(const Cluster cluster, ReadCluster(file.path()));
  CHECK_GE(cluster.devices(), 1);
  // Numbers are written with few digits, so that the first text may differ from what was read; what
  // has been written once does not change any more.
  const std::string written = ToToml(cluster);
  const auto again = ReadCluster(MemoryFile(written).path());
  CHECK(again.ok()) << again.status() << "\n" << written;
  CHECK_EQ(ToToml(*again), written);
  return absl::OkStatus();
}

}  // namespace lockstep
