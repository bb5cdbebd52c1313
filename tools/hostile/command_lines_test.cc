// What people give programs by mistake, for each program that has a command line: words too many,
// numbers that are none, and names of files that are not the program's to write.

#include <sys/stat.h>  // mkfifo

#include <algorithm>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;
using ::testing::Not;
using Words = std::vector<std::string>;

constexpr char kWorkload[] = R"(name = "tiny"
[train]
steps = 2
[batch]
size = 2
[model]
kind = "transformer"
layers = 1
heads = 1
width = 8
[data]
kind = "markov"
context = 4
validation_samples = 2
[optimizer]
kind = "sgd"
[schedule]
learning_rate = 0.01
[run]
threads = 1
[trace]
first_step = 0
[probe]
steps = 1
)";

std::string Folder() { return testing::TempDir() + "/command_lines"; }
std::string Path(const std::string& name) { return Folder() + "/" + name; }

ProcessResult Start(const Words& arguments) {
  const auto result = RunProcess({.arguments = arguments,
                                  .environment = {{"LOCKSTEP_DATA", ""},
                                                  {"BUILD_WORKING_DIRECTORY", ""},
                                                  {"LOCKSTEP_MACHINE", Path("machine.toml")}}});
  EXPECT_TRUE(result.ok()) << result.status();
  return result.ok() ? *result : ProcessResult{};
}

// The message of a program that must refuse its arguments.
std::string Refusal(const Words& arguments) {
  const ProcessResult result = Start(arguments);
  EXPECT_EQ(result.exit_code, 1) << absl::StrCat(arguments[0], ": ", result.Describe(), "\n",
                                                 result.out, result.err);
  EXPECT_LE(std::ranges::count(result.err, '\n'), 4) << result.err;
  return result.err;
}

class CommandLinesTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    fs::remove_all(Folder());
    fs::create_directories(Folder());
    ASSERT_TRUE(WriteFileAtomically(Path("workload.toml"), kWorkload).ok());
    const ProcessResult run = Start({"strategies/single/main", "--config", Path("workload.toml"),
                                     "--out", Path("run"), "--set", "probe.values=true"});
    ASSERT_TRUE(run.ok()) << run.err;
  }
};

// Programs that take flags alone.
const Words kWithoutWords = {"tools/batches/batches",
                             "tools/bench/attention",
                             "tools/bench/collectives",
                             "tools/bench/training",
                             "tools/curve/curve",
                             "tools/generate/generate",
                             "tools/hostile/hostile",
                             "tools/keys/keys",
                             "tools/language_model/export",
                             "tools/plan/calibration/calibrate",
                             "tools/plan/fit_rows",
                             "tools/plan/held_to",
                             "tools/plan/plan",
                             "tools/schedule/schedule",
                             "tools/tokenize/tokenize"};

TEST_F(CommandLinesTest, WordsTooMany) {
  for (const std::string& program : kWithoutWords) {
    EXPECT_THAT(Refusal({program, "was"}), HasSubstr("'was' belongs to no option")) << program;
  }
  EXPECT_THAT(Refusal({"strategies/single/main", "was"}), HasSubstr("'was'"));
  const std::string run = Path("run");
  EXPECT_THAT(Refusal({"tools/timeline/timeline", run, run}), HasSubstr("name one run"));
  EXPECT_THAT(Refusal({"tools/divergence/divergence", run, run, run}), HasSubstr("two runs"));
  EXPECT_THAT(Refusal({"tools/checkpoint/checkpoint", "list", run, run}), HasSubstr("use it so"));
  EXPECT_THAT(Refusal({"tools/checkpoint/checkpoint", "compare", run, run, run}),
              HasSubstr("use it so"));
  EXPECT_THAT(Refusal({"tools/collectives/collectives", "all_reduce", "all_gather"}),
              HasSubstr("give one operation"));
  EXPECT_THAT(Refusal({"tools/launch/launch", "--strategy", "ddp", "--", "--config",
                       Path("workload.toml"), "was"}),
              HasSubstr("'was'"));
  // Here words are runs, and a run that is none is told as such.
  const ProcessResult compared =
      Start({"tools/compare/compare", run, "was", "--html", Path("compared.html")});
  EXPECT_EQ(compared.exit_code, 1);
  EXPECT_THAT(compared.out, HasSubstr("no such directory"));
}

// Flags of a program's help that take a number.
Words NumberFlags(const std::string& program) {
  Words flags;
  for (const auto line : absl::StrSplit(Start({program, "--help"}).out, '\n')) {
    const Words words = absl::StrSplit(absl::StripAsciiWhitespace(line), ' ');
    if (words.size() > 1 && absl::StartsWith(words[0], "--") &&
        (words[1] == "X" || words[1] == "N")) {
      flags.push_back(words[0]);
    }
  }
  return flags;
}

TEST_F(CommandLinesTest, NumbersThatAreNone) {
  Words programs = kWithoutWords;
  programs.insert(programs.end(), {"tools/certify/certify", "tools/checkpoint/checkpoint",
                                   "tools/collectives/collectives", "tools/compare/compare",
                                   "tools/divergence/divergence", "tools/launch/launch",
                                   "tools/timeline/timeline"});
  size_t tried = 0;
  for (const std::string& program : programs) {
    for (const std::string& flag : NumberFlags(program)) {
      for (const char* value : {"nan", "inf", "-inf", "1e999", "12x", ""}) {
        EXPECT_THAT(Refusal({program, flag, value}),
                    AnyOf(HasSubstr("give a number"), HasSubstr("give a whole number"),
                          HasSubstr("give a finite number")))
            << absl::StrCat(program, " ", flag, " ", value);
        ++tried;
      }
    }
  }
  EXPECT_GT(tried, 100u);
  // Numbers inside texts.
  for (const char* value : {"nan", "inf", "-1", "0", "1,nan", "x"}) {
    EXPECT_THAT(Refusal({"tools/schedule/schedule", "--forward", value, "--svg", Path("x.svg")}),
                HasSubstr("--forward"));
  }
  for (const char* value : {"nan", "inf", "x"}) {
    EXPECT_THAT(Refusal({"tools/plan/fit_rows", "--parameters", absl::StrCat("a:", value, ":1")}),
                HasSubstr("is not NAME:LOW:HIGH"));
    EXPECT_THAT(Refusal({"tools/plan/plan", "--workload", "gpt3_175b", "--cluster", "h100",
                         "--memory", value}),
                Not(HasSubstr("internal")));
  }
}

TEST_F(CommandLinesTest, NumbersOutOfTheirRange) {
  const std::map<std::string, Words> flags = {
      {"tools/bench/attention",
       {"batch", "time", "heads", "head_width", "threads", "rounds", "key_heads"}},
      {"tools/bench/training", {"rounds", "steps"}},
      {"tools/generate/generate", {"threads", "tokens"}},
      {"tools/hostile/hostile", {"tries"}},
  };
  for (const auto& [program, names] : flags) {
    for (const std::string& name : names) {
      for (const char* value : {"-1", "2147483647", "2147483648", "9223372036854775807"}) {
        Words arguments = {program, "--" + name, value};
        if (program == "tools/generate/generate") {
          arguments.insert(arguments.end(), {"--run", Path("run")});
        }
        EXPECT_THAT(Refusal(arguments), AllOf(HasSubstr("--" + name), HasSubstr("give a")))
            << absl::StrCat(program, " --", name, " ", value);
      }
    }
  }
}

// A program and its arguments, with OUT where the file stands that it writes.
struct Writer {
  std::string name;
  Words arguments;
};
const Writer kWriters[] = {
    {"batches", {"tools/batches/batches", "--run", "RUN", "--steps", "1", "--output", "FOLDER"}},
    {"calibrate", {"tools/plan/calibration/calibrate", "--out", "OUT"}},
    {"collectives", {"tools/collectives/collectives", "all_reduce", "--out", "OUT.svg"}},
    {"collectives_all", {"tools/collectives/collectives", "--all", "--out", "OUT.html"}},
    {"compare", {"tools/compare/compare", "RUN", "--html", "OUT"}},
    {"divergence", {"tools/divergence/divergence", "RUN", "RUN", "--html", "OUT"}},
    {"export", {"tools/language_model/export", "--run", "RUN", "--output", "MODEL"}},
    {"keys", {"tools/keys/keys", "--page", "OUT"}},
    {"plan_html",
     {"tools/plan/plan", "--workload", "gpt3_175b", "--cluster", "h100", "--html", "OUT"}},
    {"plan_write",
     {"tools/plan/plan", "--workload", "gpt3_175b", "--cluster", "h100", "--write", "OUT"}},
    {"schedule", {"tools/schedule/schedule", "--svg", "OUT"}},
    {"schedule_csv", {"tools/schedule/schedule", "--svg", "NEW.svg", "--write_csv", "OUT"}},
    {"timeline", {"tools/timeline/timeline", "RUN", "--svg", "OUT"}},
    {"tokenize",
     {"tools/tokenize/tokenize", "--bpe", "RUN", "--input", "RUN/losses.csv", "--output", "OUT"}},
};

// The file that a writer would write, and its arguments.
std::pair<std::string, Words> With(const Writer& writer) {
  const std::string base = Path(absl::StrCat("out_", writer.name));
  std::string file = base;
  Words arguments = writer.arguments;
  for (std::string& argument : arguments) {
    if (argument == "OUT.svg" || argument == "OUT.html") file = base + argument.substr(3);
    if (argument == "FOLDER") file = base + "/step-000000.safetensors";
    if (argument == "MODEL") file = base + "/config.json";
    argument = absl::StrReplaceAll(argument, {{"RUN", Path("run")},
                                              {"OUT", base},
                                              {"NEW", Path("new")},
                                              {"FOLDER", base},
                                              {"MODEL", base}});
  }
  return {file, arguments};
}

// The words of a shell that starts a program in a folder that was removed before.
Words InRemovedFolder(Words arguments) {
  arguments[0] = fs::absolute(arguments[0]).string();
  const std::string gone = Path("gone");
  fs::create_directories(gone);
  Words words = {"/bin/sh", "-c",
                 "cd \"$0\" && rmdir \"$0\" && unset BUILD_WORKING_DIRECTORY && exec \"$@\"", gone};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

TEST_F(CommandLinesTest, ARemovedWorkingDirectoryIsNamed) {
  for (const Writer& writer : kWriters) {
    if (writer.name == "tokenize") continue;  // misses its byte pairs before that
    Words arguments = With(writer).second;
    for (std::string& argument : arguments) {  // outputs become relative
      argument = absl::StrReplaceAll(argument, {{Path("out_"), "out_"}, {Path("new"), "new"}});
    }
    EXPECT_THAT(Refusal(InRemovedFolder(arguments)), HasSubstr("the working directory was removed"))
        << writer.name;
  }
  const Words train = {"strategies/single/main", "--config"};
  const auto with = [&train](const Words& more) {
    Words arguments = train;
    arguments.insert(arguments.end(), more.begin(), more.end());
    return InRemovedFolder(arguments);
  };
  const std::string workload = Path("workload.toml");
  for (const Words& more : {Words{"workload.toml"},
                            {workload},
                            {workload, "--out", "run"},
                            {workload, "--out", Path("x"), "--set", "model.init=weights"}}) {
    EXPECT_THAT(Refusal(with(more)), HasSubstr("the working directory was removed"));
  }
  // Where no path is relative, it is not missed.
  const ProcessResult absolute = Start(with({workload, "--out", Path("absolute")}));
  EXPECT_TRUE(absolute.ok()) << absolute.err;
  EXPECT_EQ(*ReadFile(Path("absolute/losses.csv")), *ReadFile(Path("run/losses.csv")));
}

// Begins as no program's file does.
constexpr char kForeign[] = "Dear diary,\nthis file is not a program's.\n";

TEST_F(CommandLinesTest, FilesOfOthersStay) {
  for (const Writer& writer : kWriters) {
    const auto [file, arguments] = With(writer);
    fs::create_directories(fs::path(file).parent_path());
    ASSERT_TRUE(WriteFileAtomically(file, kForeign).ok());
    EXPECT_NE(Refusal(arguments), "") << writer.name;
    EXPECT_EQ(*ReadFile(file), kForeign) << writer.name;
    // Nor is what is no regular file replaced.
    fs::remove(file);
    ASSERT_EQ(mkfifo(file.c_str(), 0666), 0);
    EXPECT_THAT(Refusal(arguments), HasSubstr("FIFO")) << writer.name;
    EXPECT_TRUE(fs::is_fifo(file)) << writer.name;
    fs::remove(file);
  }
}

TEST_F(CommandLinesTest, InputsStay) {
  const std::string workload = Path("workload.toml"), trace = Path("run/trace.json");
  const std::string schedule = Path("schedule.csv");
  ASSERT_TRUE(WriteFileAtomically(schedule, "0F0,0B0\n").ok());
  for (const Words& arguments :
       {Words{"tools/plan/plan", "--workload", workload, "--cluster", "laptop", "--write", workload,
              "--overwrite"},
        {"tools/timeline/timeline", trace, "--svg", trace, "--overwrite"},
        {"tools/schedule/schedule", "--csv", schedule, "--svg", schedule, "--overwrite"},
        {"tools/schedule/schedule", "--csv", schedule, "--svg", Path("new.svg"), "--write_csv",
         schedule, "--overwrite"},
        {"tools/tokenize/tokenize", "--bpe", Path("run"), "--input", workload, "--output", workload,
         "--overwrite"}}) {
    EXPECT_THAT(Refusal(arguments), HasSubstr("is read and cannot be written too")) << arguments[0];
  }
  EXPECT_EQ(*ReadFile(workload), kWorkload);
  EXPECT_THAT(
      Refusal({"tools/schedule/schedule", "--svg", Path("one"), "--write_csv", Path("one")}),
      HasSubstr("name two files"));
}

}  // namespace
}  // namespace lockstep
