#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/comm/communicator.h"

namespace lockstep {

// A file that one rank has and another one, which does not see it, is sent.
struct FileTransfer {
  int from = 0, to = 0;
  std::string name;  // in the folders of both
  int64_t bytes = 0;
};

// Called by all ranks with the same transfers, each with its own folder. A file appears there under
// its name when it is whole. What a rank cannot read or write is its own error alone: the others'
// files arrive all the same, and whoever expected its file gets one of other bytes.
absl::Status TransferFiles(const std::string& folder, const std::vector<FileTransfer>& transfers,
                           Communicator& ranks);

}  // namespace lockstep
