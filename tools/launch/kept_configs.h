#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

// The configuration files of a run as they were when its launcher started. Ranks read them at each
// start, and whoever changes a file for the next run must not change the one that trains.
class KeptConfigs {
 public:
  KeptConfigs() = default;
  // An error where one cannot be read.
  static absl::StatusOr<KeptConfigs> Read(const std::vector<std::string>& paths);

  // Where the texts are now, in the order of the paths: in the files themselves, or, where one of
  // them has changed or is gone, in a copy that is written into the run's directory, which the
  // standard error stream is told. Before there is such a directory: in the files, whatever they
  // hold.
  absl::StatusOr<std::vector<std::string>> PathsNow(const std::string& out) const;

 private:
  struct File {
    std::string path, text;
  };
  std::vector<File> files_;
};

// The arguments of a run with these paths in the place of the values of --config, in their order.
std::vector<std::string> WithConfigs(const std::vector<std::string>& arguments,
                                     const std::vector<std::string>& paths);

}  // namespace lockstep
