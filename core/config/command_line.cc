#include "core/config/command_line.h"

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "absl/strings/str_cat.h"
#include "core/base/nearest.h"
#include "core/base/status.h"
#include "core/base/user_path.h"

namespace lockstep {
namespace {

std::string FindConfig(const std::string& path) {
  const std::string users = UserPath(path);
  return !std::filesystem::exists(users) && std::filesystem::exists(path) ? path : users;
}

const std::vector<std::string>& FlagNames() {
  static const std::vector<std::string>& names = *new std::vector<std::string>{
      "--config", "--set", "--out", "--data", "--device", "--resume", "--help", "--print_config"};
  return names;
}

// The arguments, with "--flag=value" split in two.
class Arguments {
 public:
  Arguments(int argc, char** argv) : arguments_(argv + 1, argv + argc) {}

  bool empty() const { return next_ == arguments_.size(); }

  // The next flag's name; a value behind '=' is kept for Value.
  std::string Flag() {
    std::string flag = arguments_[next_++];
    attached_.reset();
    const size_t equals = flag.find('=');
    if (flag.starts_with("--") && equals != std::string::npos) {
      attached_ = flag.substr(equals + 1);
      flag.resize(equals);
    }
    return flag;
  }

  absl::StatusOr<std::string> Value(const std::string& flag) {
    if (attached_) return *std::exchange(attached_, std::nullopt);
    if (empty()) return absl::InvalidArgumentError(absl::StrCat(flag, " needs a value behind it"));
    return arguments_[next_++];
  }

  bool has_attached() const { return attached_.has_value(); }

 private:
  std::vector<std::string> arguments_;
  size_t next_ = 0;
  std::optional<std::string> attached_;
};

absl::StatusOr<DeviceType> ParseDevice(const std::string& name) {
  if (name == "cpu") return DeviceType::kCpu;
  if (name == "cuda") return DeviceType::kCuda;
  return absl::InvalidArgumentError(
      absl::StrCat("--device ", name, ": there is no such device; use cpu or cuda"));
}

}  // namespace

absl::StatusOr<CommandLine> ParseCommandLine(int argc, char** argv) {
  CommandLine line;
  const char* data = std::getenv("LOCKSTEP_DATA");
  if (data != nullptr && *data != '\0') line.data = UserPath(data);
  Arguments arguments(argc, argv);
  while (!arguments.empty()) {
    const std::string flag = arguments.Flag();
    if (flag == "--resume" || flag == "--help" || flag == "--print_config") {
      if (arguments.has_attached()) {
        return absl::InvalidArgumentError(absl::StrCat(flag, " takes no value"));
      }
      (flag == "--help" ? line.help : flag == "--resume" ? line.resume : line.print_config) = true;
      continue;
    }
    if (flag != "--config" && flag != "--set" && flag != "--out" && flag != "--data" &&
        flag != "--device") {
      return absl::InvalidArgumentError(absl::StrCat("unknown argument '", flag, "'; did you mean ",
                                                     NearestName(flag, FlagNames()),
                                                     "? --help lists what there is"));
    }
    LS_ASSIGN_OR_RETURN(const std::string value, arguments.Value(flag));
    if (flag == "--config") {
      line.configs.push_back(FindConfig(value));
    } else if (flag == "--set") {
      line.assignments.push_back(value);
    } else if (flag == "--out") {
      line.out = UserPath(value);
    } else if (flag == "--data") {
      line.data = UserPath(value);
    } else {
      LS_ASSIGN_OR_RETURN(line.device, ParseDevice(value));
    }
  }
  return line;
}

std::string Usage(const std::string& strategy) {
  return absl::StrCat(
      "Trains a model with the strategy '", strategy, "'.\n\n",
      "  --config FILE      a configuration (TOML); repeatable, later ones win\n"
      "  --set KEY=VALUE    one value over all files, e.g. --set train.steps=100; repeatable\n"
      "  --out DIR          run directory; default runs/<workload>/",
      strategy,
      "\n"
      "  --data DIR         folder of data sets; default: the environment's LOCKSTEP_DATA\n"
      "  --device cpu|cuda  where to compute; default cpu\n"
      "  --resume           go on from the newest checkpoint of the run directory\n"
      "  --print_config     write the configuration as it will run, each key with its source\n"
      "  --help             this text\n");
}

absl::StatusOr<Config> LoadConfig(const CommandLine& command_line) {
  if (command_line.configs.empty()) {
    return absl::InvalidArgumentError(
        "no configuration: give --config FILE, e.g. an experiment's workload.toml");
  }
  Config config;
  for (const std::string& path : command_line.configs) {
    LS_ASSIGN_OR_RETURN(const Config layer, Config::FromFile(path));
    config.Merge(layer);
  }
  for (const std::string& assignment : command_line.assignments) {
    LS_RETURN_IF_ERROR(config.Set(assignment));
  }
  return config;
}

}  // namespace lockstep
