// The programs of strategies as a shell runs them, on a small workload.

#pragma once

#include <filesystem>
#include <fstream>
#include <map>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "gtest/gtest.h"

namespace lockstep {

inline constexpr char kSingle[] = "strategies/single/main";
inline constexpr char kDdp[] = "strategies/ddp/main";

// A run that takes a second or two.
inline constexpr char kWorkload[] = R"(name = "small"
[train]
steps = 6
[batch]
size = 8
[model]
kind = "transformer"
layers = 1
heads = 2
width = 16
[data]
kind = "markov"
context = 16
validation_samples = 8
[optimizer]
kind = "adamw"
[schedule]
learning_rate = 0.01
total_steps = 6
[run]
threads = 1
[checkpoint]
every = 2
)";

// The line of `text` that holds `word`; empty where there is none.
inline std::string Line(const std::string& text, const std::string& word) {
  const size_t at = text.find(word);
  return at == std::string::npos ? "" : text.substr(at, text.find('\n', at) - at);
}

// A folder with workload.toml, in which runs go to out/.
class TrainerProgramTest : public ::testing::Test {
 protected:
  TrainerProgramTest() : folder_(::testing::TempDir() + "/small") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
    Write("workload.toml", kWorkload);
  }

  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  void Write(const std::string& name, const std::string& contents) {
    std::filesystem::create_directories(std::filesystem::path(Path(name)).parent_path());
    std::ofstream(Path(name), std::ios::binary) << contents;
  }

  ProcessOptions Options(const std::string& binary, const std::vector<std::string>& more) {
    ProcessOptions options;
    options.arguments = {binary, "--config", Path("workload.toml"), "--out", Path("out")};
    options.arguments.insert(options.arguments.end(), more.begin(), more.end());
    // Nor is there a GPU, wherever this runs.
    options.environment = {{"LOCKSTEP_DATA", ""}, {"CUDA_VISIBLE_DEVICES", "-1"}};
    return options;
  }

  ProcessResult Start(const std::string& binary, const std::vector<std::string>& more) {
    auto result = RunProcess(Options(binary, more));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : ProcessResult{};
  }

  // The message of a run that must fail.
  std::string Fail(const std::string& binary, const std::vector<std::string>& more) {
    const ProcessResult result = Start(binary, more);
    EXPECT_EQ(result.exit_code, 1) << result.Describe() << "\n" << result.err;
    EXPECT_EQ(result.out, "");
    return result.err;
  }

  // Every file below a folder of the test, with its bytes.
  std::map<std::string, std::string> Snapshot(const std::string& name) const {
    std::map<std::string, std::string> files;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(Path(name))) {
      if (entry.is_regular_file()) files[entry.path().string()] = *ReadFile(entry.path().string());
    }
    return files;
  }

  std::string folder_;
};

}  // namespace lockstep
