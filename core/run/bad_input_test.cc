// What a user can get wrong, through the whole program: exit code 1, and one message that says what
// and where. Runs the binaries of strategies as a shell would.

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
#include "core/run/testing/trainer_program_fixture.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

class BadInputTest : public TrainerProgramTest {};

TEST_F(BadInputTest, ARightRunSucceeds) {
  const ProcessResult result = Start(kSingle, {});
  EXPECT_TRUE(result.ok()) << result.err;
  // No terminal, so no progress line, and too short for lines in a log.
  EXPECT_THAT(result.err, AllOf(StartsWith("small under single: 1 rank on the CPU"),
                                EndsWith("small/out\n"), Not(HasSubstr("step 1/"))));
  EXPECT_THAT(result.out, HasSubstr("small  single"));
}

TEST_F(BadInputTest, CommandLine) {
  EXPECT_THAT(Fail(kSingle, {"--resum"}), HasSubstr("did you mean --resume?"));
  EXPECT_THAT(Fail(kSingle, {"--set"}), HasSubstr("--set needs a value"));
  EXPECT_THAT(Fail(kSingle, {"--device", "gpu"}), HasSubstr("use cpu or cuda"));
  // Whether it was built without CUDA, or there is no driver or no GPU.
  EXPECT_THAT(Fail(kDdp, {"--device", "cuda", "--set", "mesh.dp=2"}),
              AllOf(HasSubstr("--device cuda: "), HasSubstr("use --device cpu")));
  EXPECT_THAT(Fail(kSingle, {"--config", Path("none.toml")}), HasSubstr("none.toml"));
}

// Each task would train a run of its own, all into one folder.
TEST_F(BadInputTest, TasksThatMpiCannotBringTogether) {
  ProcessOptions options = Options(kDdp, {});
  options.environment["SLURM_STEP_NUM_TASKS"] = "2";
  const auto result = RunProcess(options);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->exit_code, 1);
  EXPECT_THAT(result->err, HasSubstr("use srun --mpi=pmix"));
  EXPECT_FALSE(fs::exists(Path("out/losses.csv")));
}

TEST_F(BadInputTest, MalformedToml) {
  Write("bad.toml", "[train]\nsteps = = 3\n");
  EXPECT_THAT(Fail(kSingle, {"--config", Path("bad.toml")}), HasSubstr("bad.toml:2"));
}

TEST_F(BadInputTest, UnknownAndWronglyTypedKeys) {
  EXPECT_THAT(Fail(kSingle, {"--set", "optimizer.weight_decy=0.1"}), HasSubstr("weight_decay"));
  EXPECT_THAT(Fail(kSingle, {"--set", "optimiser.kind=sgd"}), HasSubstr("optimizer"));
  EXPECT_THAT(Fail(kSingle, {"--set", "model.depht=18"}), HasSubstr("depht"));
  EXPECT_THAT(Fail(kDdp, {"--set", "data_parallel.buckt_bytes=18"}), HasSubstr("bucket_bytes"));
  Write("typed.toml", "[train]\nsteps = \"many\"\n");
  const std::string typed = Fail(kSingle, {"--config", Path("typed.toml")});
  EXPECT_THAT(typed, HasSubstr("typed.toml:2"));
  EXPECT_THAT(typed, HasSubstr("train.steps"));
  EXPECT_THAT(Fail(kSingle, {"--set", "data.kind=markow"}), HasSubstr("markov"));
  EXPECT_THAT(Fail(kSingle, {"--set", "checkpoint.files=shraded"}), HasSubstr("sharded"));
}

// Beside the keys that each table really has, which may be nearer than what is meant.
TEST_F(BadInputTest, NamesOfOtherProgramsLeadToOurKeys) {
  const std::vector<std::pair<std::string, std::string>> names = {
      {"optimizer.lr=0.1", "optimizer.lr; did you mean schedule.learning_rate?"},
      {"optimizer.learning_rate=0.1",
       "optimizer.learning_rate; did you mean schedule.learning_rate?"},
      {"train.lr=0.1", "train.lr; did you mean schedule.learning_rate?"},
      {"lr=0.1", "lr; did you mean schedule.learning_rate?"},
      {"model.d_model=8", "model.d_model; did you mean model.width?"},
      {"model.n_embd=8", "model.n_embd; did you mean model.width?"},
      {"model.hidden_size=8", "model.hidden_size; did you mean model.width?"},
      {"model.n_layer=1", "model.n_layer; did you mean model.layers?"},
      {"model.vocab_size=16", "model.vocab_size; did you mean data.vocabulary?"},
      {"precision.dtype=bf16", "precision.dtype; did you mean precision.compute?"},
      {"grad_accum=2", "grad_accum; did you mean cut.micro_batches?"},
      {"train.grad_accum=2", "train.grad_accum; did you mean cut.micro_batches?"},
      {"batch.gradient_accumulation_steps=2",
       "batch.gradient_accumulation_steps; did you mean cut.micro_batches?"},
      {"gpipe.chunks=2", "gpipe.chunks; did you mean cut.micro_batches?"},
      {"training.seq_len=8", "training.seq_len; did you mean data.context?"},
      {"optim.kind=sgd", "optim; did you mean optimizer?"},
      {"optim.lr=0.1", "optim.lr; did you mean schedule.learning_rate?"},
      {"optim=sgd", "optim; did you mean optimizer?"},
      {"optimizer.kind=adam", "did you mean \"adamw\" with optimizer.weight_decay = 0?"},
      {"model.kind=gpt", "did you mean \"transformer\"?"},
      {"model.kind=gpt2", "did you mean \"transformer\"?"}};
  for (const auto& [assignment, message] : names) {
    EXPECT_THAT(Fail(kSingle, {"--set", assignment}), HasSubstr(message)) << assignment;
  }
}

TEST_F(BadInputTest, BatchesAndMeshesThatDoNotFit) {
  EXPECT_THAT(Fail(kSingle, {"--set", "cut.shards=3"}), HasSubstr("do not divide into 3 shards"));
  EXPECT_THAT(Fail(kSingle, {"--set", "mesh.dp=2"}), HasSubstr("'single' has mesh.dp = 1"));
  EXPECT_THAT(Fail(kDdp, {"--set", "mesh.pp=2"}), HasSubstr("use layerwise or gpipe"));
  EXPECT_THAT(Fail(kDdp, {"--set", "mesh.dp=512", "--set", "batch.size=512"}),
              HasSubstr("512 ranks; this machine's threads carry at most 256"));
  EXPECT_THAT(Fail(kDdp, {"--set", "mesh.dp=4", "--set", "cut.shards=2"}),
              HasSubstr("cut.shards is 2, but mesh.dp is 4"));
  EXPECT_THAT(Fail(kSingle, {"--set", "batch.shards=2"}), HasSubstr("cut.shards"));
  EXPECT_THAT(Fail(kSingle, {"--set", "model.heads=3"}), HasSubstr("3 heads"));
  EXPECT_THAT(Fail(kSingle, {"--set", "data.kind=shapes"}), HasSubstr("context"));
}

TEST_F(BadInputTest, Text) {
  const std::vector<std::string> text = {"--config", Path("text.toml"), "--data", Path("data")};
  Write("workload.toml",
        std::string(kWorkload).replace(std::string(kWorkload).find("[data]"),
                                       std::string("[data]\nkind = \"markov\"\ncontext = 16\n"
                                                   "validation_samples = 8\n")
                                           .size(),
                                       "[data]\nkind = \"text\"\npath = \"t.txt\"\ncontext = 4\n"));
  Write("text.toml", "");
  EXPECT_THAT(Fail(kSingle, {}), HasSubstr("--data DIR or LOCKSTEP_DATA"));
  EXPECT_THAT(Fail(kSingle, text), HasSubstr("does not exist"));
  fs::create_directories(Path("data"));
  EXPECT_THAT(Fail(kSingle, text), HasSubstr("t.txt"));
  Write("data/t.txt", "");
  EXPECT_THAT(Fail(kSingle, text), HasSubstr("empty"));
  Write("data/t.txt", std::string(90, 'a') + "bbbbbbbbbb");
  EXPECT_THAT(Fail(kSingle, text), HasSubstr("90"));  // where the unknown character stands
}

// 8 samples of a step, so one and a half times 20 samples are 3.75 steps.
TEST_F(BadInputTest, EpochsStandForSteps) {
  const std::vector<std::string> epochs = {"--set", "train.epochs=1.5", "--set",
                                           "data.train_samples=20"};
  const auto losses = [this] {
    return std::ranges::count(*ReadFile(Path("out/losses.csv")), '\n') - 1;
  };
  // What is said last of the length counts: here over the file's six steps.
  const ProcessResult result = Start(kSingle, epochs);
  ASSERT_TRUE(result.ok()) << result.err;
  EXPECT_THAT(result.err, HasSubstr("  steps  4 of 8 samples (128 tokens)\n"));
  EXPECT_EQ(losses(), 4);
  std::vector<std::string> steps_last = epochs;
  steps_last.insert(steps_last.end(), {"--set", "train.steps=3"});
  ASSERT_TRUE(Start(kSingle, steps_last).ok());
  EXPECT_EQ(losses(), 3);
  ASSERT_TRUE(Start(kSingle, {"--set", "train.epochs=0"}).ok());
  EXPECT_EQ(losses(), 6);
  Write("workload.toml",
        absl::StrReplaceAll(kWorkload, {{"steps = 6\n", "steps = 6\nepochs = 2\n"}}));
  EXPECT_THAT(Fail(kSingle, {}), HasSubstr("train.epochs is given beside train.steps"));
  Write("workload.toml", absl::StrReplaceAll(kWorkload, {{"[train]\nsteps = 6\n", ""}}));
  ASSERT_TRUE(Start(kSingle, epochs).ok());
  EXPECT_EQ(losses(), 4);
  EXPECT_THAT(Fail(kSingle, {"--set", "train.epochs=-1"}),
              HasSubstr("train.epochs is -1: it must be greater than 0"));
  EXPECT_THAT(Fail(kSingle, {"--set", "train.epochs=1e12"}), HasSubstr("it must be at least 1"));
  EXPECT_THAT(Fail(kSingle, {}), HasSubstr("train.steps is missing"));
}

TEST_F(BadInputTest, Cifar10) {
  std::string workload = kWorkload;
  const auto replace = [&workload](const std::string& from, const std::string& to) {
    workload.replace(workload.find(from), from.size(), to);
  };
  replace("kind = \"transformer\"\nlayers = 1\nheads = 2\nwidth = 16\n", "kind = \"toy\"\n");
  replace("kind = \"markov\"\ncontext = 16\nvalidation_samples = 8\n", "kind = \"cifar10\"\n");
  Write("workload.toml", workload);
  const std::vector<std::string> data = {"--data", Path("data")};
  const std::string batch = "data/cifar-10-batches-bin/data_batch_1.bin";
  const std::string test = "data/cifar-10-batches-bin/test_batch.bin";

  fs::create_directories(Path("data"));
  const std::string missing = Fail(kSingle, data);
  EXPECT_THAT(missing, HasSubstr("data_batch_1.bin"));
  EXPECT_THAT(missing, HasSubstr("toronto.edu"));
  std::string records(3073 * 10, '\1');
  Write(batch, records.substr(0, 3073 * 10 - 5));
  Write(test, records);
  const std::string truncated = Fail(kSingle, data);
  EXPECT_THAT(truncated, HasSubstr("data_batch_1.bin"));
  EXPECT_THAT(truncated, HasSubstr("30725"));
  records[3073 * 4] = 17;
  Write(batch, records);
  const std::string label = Fail(kSingle, data);
  EXPECT_THAT(label, HasSubstr("data_batch_1.bin"));
  EXPECT_THAT(label, HasSubstr("17"));
}

// A line of a table: its first cell and its last.
std::map<std::string, std::string> LastCells(const std::string& text) {
  std::map<std::string, std::string> cells;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    if (line.size() < 40 || line.substr(0, 4) != "    ") continue;
    const std::string name(absl::StripAsciiWhitespace(line.substr(0, 34)));
    const size_t two_blanks = line.rfind("  ");
    cells[name] = std::string(absl::StripAsciiWhitespace(line.substr(two_blanks)));
  }
  return cells;
}

TEST_F(BadInputTest, ADryRunSaysWhatTheRunCostsAndLeavesNothing) {
  const ProcessResult dry = Start(kDdp, {"--dry_run"});
  ASSERT_TRUE(dry.ok()) << dry.err;
  EXPECT_THAT(dry.out, StartsWith("small under ddp, mesh "));
  EXPECT_FALSE(fs::exists(Path("out")));
  const ProcessResult run = Start(kDdp, {});
  ASSERT_TRUE(run.ok()) << run.err;
  auto forecast = LastCells(dry.out), measured = LastCells(run.out);
  for (const std::string name : {"parameters", "gradients", "optimizer_state", "activations",
                                 "communication", "workspace"}) {
    EXPECT_NE(measured[name], "") << run.out;
    EXPECT_EQ(forecast[name], measured[name]) << name << "\n" << dry.out << run.out;
  }
  EXPECT_NE(forecast["all_reduce gradients"], "") << dry.out;
  EXPECT_THAT(Fail(kDdp, {"--dry_run", "--set", "mesh.dp=3"}),
              HasSubstr("batch.size is 8 samples"));
}

// Both answers are about the legs, and tell what is wrong with any of them.
TEST_F(BadInputTest, LegsAreCheckedAndListedOneByOne) {
  const std::vector<std::string> shards = {"--set", "cut.shards=2", "--legs"};
  const auto with = [&shards](const std::string& legs, const std::string& flag) {
    std::vector<std::string> arguments = shards;
    arguments.insert(arguments.end(), {legs, flag});
    return arguments;
  };
  const std::string legs = "2: single; 3: fsdp dp=2";
  const ProcessResult listed = Start(kDdp, with(legs, "--print_config"));
  ASSERT_TRUE(listed.ok()) << listed.err;
  EXPECT_THAT(listed.out, AllOf(StartsWith("# legs with up to 2 ranks\n"),
                                HasSubstr("# leg 2, steps 3 to 5: fsdp\n"), HasSubstr("\n[cut]\n"),
                                Not(HasSubstr("\n[mesh]\n"))));
  EXPECT_THAT(Line(listed.out, "#   mesh.dp = 2"), HasSubstr("# train.legs"));
  EXPECT_THAT(Line(listed.out, "#   mesh.dp = 1"), HasSubstr("# fixed by single"));
  Write("listed.toml", listed.out);
  const ProcessResult again = Start(kDdp, {"--config", Path("listed.toml"), "--print_config"});
  EXPECT_TRUE(again.ok()) << again.err;
  const ProcessResult dry = Start(kDdp, with(legs, "--dry_run"));
  ASSERT_TRUE(dry.ok()) << dry.err;
  EXPECT_THAT(dry.out,
              AllOf(HasSubstr("train.legs, leg 1, steps 1 to 2\nsmall under single: "),
                    HasSubstr("train.legs, leg 2, steps 3 to 5\nsmall under fsdp, mesh ")));
  for (const char* flag : {"--print_config", "--dry_run"}) {
    EXPECT_THAT(Fail(kDdp, with("2: single; 3: fdsp", flag)),
                HasSubstr("train.legs, leg 2: there is no strategy 'fdsp'"));
  }
}

// Two levels of width 4 on pictures of 32 x 32: what the first one stashes has 32 x 32 x 4 floats.
TEST_F(BadInputTest, ADryRunNamesTheWayOfEachSkip) {
  Write("workload.toml",
        absl::StrReplaceAll(kWorkload, {{"\"transformer\"\nlayers = 1\nheads = 2\nwidth = 16",
                                         "\"unet\"\nlevels = 2\nwidth = 4"},
                                        {"\"markov\"\ncontext = 16", "\"shapes_segmentation\""}}));
  const ProcessResult dry = Start(kSingle, {"--dry_run"});
  ASSERT_TRUE(dry.ok()) << dry.err;
  EXPECT_THAT(dry.out, HasSubstr("skips, each stashed once"));
  EXPECT_THAT(Line(dry.out, ": down0 to up0"), HasSubstr("16.0 KiB"));
}

TEST_F(BadInputTest, SizesThatNoMachineHas) {
  for (const char* assignment :
       {"lora={layers=[\"*\"], rank=4611686018427387904}", "model.width=4611686018427387904",
        "batch.size=4611686018427387904", "data.context=2305843009213693952",
        "model.layers=1000000000", "run.threads=2147483648",
        "data.train_samples=9223372036854775807", "run.timeout_seconds=9.3e9",
        "schedule.learning_rate=1e300",
        "schedule={kind=\"cosine\", learning_rate=0.1, total_steps=4, floor=1e300}",
        "lora={layers=[\"*\"], alpha=1e300}"}) {
    EXPECT_THAT(Fail(kSingle, {"--set", assignment}), HasSubstr("at most"));
  }
  // Each by itself is in range.
  EXPECT_THAT(Fail(kSingle, {"--set", "model.width=1048576", "--set", "model.layers=1000"}),
              AllOf(HasSubstr("parameters: its weights and gradients alone take"),
                    HasSubstr("lower the sizes in [model]")));
  EXPECT_THAT(Fail(kSingle, {"--set", "batch.size=16777216", "--set", "data.context=4194304"}),
              AllOf(HasSubstr("a micro-batch of 16777216 samples"), HasSubstr("lower batch.size")));
}

// What the help says of a key.
struct KeyOfHelp {
  std::string name;
  std::string expected;  // "a whole number", "one of sgd, adamw, lion"
  std::string meaning;
};

// The keys of the help that a preset does not fix, by table and, where they are not always there,
// the choice that brings them.
std::map<std::pair<std::string, std::string>, std::vector<KeyOfHelp>> KeysOfHelp(
    const std::string& help) {
  std::map<std::pair<std::string, std::string>, std::vector<KeyOfHelp>> keys;
  std::string table, with;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(help, '\n'))) {
    const std::vector<std::string> parts = absl::StrSplit(line, "with ");
    const std::string condition =
        parts.size() < 2 ? "" : absl::StrReplaceAll(parts[1], {{" ", ""}, {":", ""}});
    const size_t mark = line.find(" # ");
    if (absl::StartsWith(line, "[")) {
      table = line.substr(1, line.find(']') - 1);
      with = condition;
    } else if (absl::StartsWith(line, "  with ")) {
      with = absl::StrCat(table, ".", condition);
    } else if (!table.empty() && mark != std::string::npos &&
               !absl::StrContains(line, "fixed by")) {
      const std::string said = absl::StrReplaceAll(line.substr(mark + 3), {{"required, ", ""}});
      const size_t colon = std::min(said.find(": "), said.size());
      keys[{table, with}].push_back({.name = std::string(absl::StripAsciiWhitespace(
                                         line.substr(0, line.find_first_of("=#")))),
                                     .expected = said.substr(0, std::min(said.find(';'), colon)),
                                     .meaning = said.substr(std::min(colon + 2, said.size()))});
    }
  }
  return keys;
}

TEST_F(BadInputTest, TheHelpSaysWhatEachKeyMeans) {
  const std::string help = Start(kDdp, {"--help"}).out;
  for (const auto& [place, keys] : KeysOfHelp(help)) {
    for (const KeyOfHelp& key : keys) {
      EXPECT_NE(key.meaning, "") << place.first << "." << key.name;
    }
  }
  std::string narrow = help;
  while (absl::StrReplaceAll({{"  #", " #"}}, &narrow) > 0) continue;
  // Lines of a whole number, a number, true or false, a choice, a string, and a required list.
  for (const char* line :
       {"  every = 0 # a whole number: steps between checkpoints; 0: only at the end\n",
        "  weight_decay = 0.0 # a number: decoupled for adamw and lion\n",
        "  nesterov = false # true or false: whether the velocity looks ahead\n",
        "  kind # required, one of sgd, adamw, lion: the update rule\n",
        "  init = \"\" # a string: file or folder of weights to start from\n",
        "  layers # required, a list of strings: patterns of the layers to adapt\n"}) {
    EXPECT_THAT(narrow, HasSubstr(line));
  }
}

// Each key of the help is read as the type that the help says.
TEST_F(BadInputTest, EveryKeyRefusesAValueOfAnotherType) {
  int64_t count = 0;
  for (const auto& [place, keys] : KeysOfHelp(Start(kDdp, {"--help"}).out)) {
    const auto& [table, with] = place;
    std::vector<std::string> arguments = {"--print_config"};
    std::vector<std::string> expected;
    if (!with.empty()) arguments.insert(arguments.end(), {"--set", with});
    if (table == "lora") arguments.insert(arguments.end(), {"--set", "lora.layers=[\"*\"]"});
    for (const KeyOfHelp& key : keys) {
      const bool is_number =
          key.expected.ends_with("a number") || key.expected.ends_with("a whole number");
      const std::string full = absl::StrCat(table, ".", key.name);
      // A table whose kind is wrong is not read any further, nor are epochs read beside steps.
      if (key.name == "kind" || key.name == "shard" || key.name == "epochs") continue;
      arguments.insert(arguments.end(), {"--set", full + (is_number ? "=\"word\"" : "=7")});
      // The message has choices in quotes.
      const std::string type = key.expected.starts_with("one of ") ? "one of " : key.expected;
      expected.push_back(absl::StrCat(
          full, " is ", is_number ? "the string \"word\"" : "the number 7", ", expected ", type));
    }
    if (expected.empty()) continue;
    const std::string message = Fail(kDdp, arguments);
    for (const std::string& problem : expected) {
      EXPECT_THAT(message, HasSubstr(problem));
      ++count;
    }
  }
  EXPECT_GT(count, 100);
}

TEST_F(BadInputTest, EveryWholeNumberHasARange) {
  const auto keys = KeysOfHelp(Start(kDdp, {"--help"}).out);
  EXPECT_GT(keys.size(), 20u);
  for (const auto& [place, keys_of_table] : keys) {
    const auto& [table, with] = place;
    for (const std::string value : {"9223372036854775807", "-9223372036854775808"}) {
      std::vector<std::string> arguments = {"--print_config"};
      std::vector<std::string> expected;
      if (!with.empty()) arguments.insert(arguments.end(), {"--set", with});
      if (table == "lora") arguments.insert(arguments.end(), {"--set", "lora.layers=[\"*\"]"});
      for (const auto& [name, type, meaning] : keys_of_table) {
        if (type != "a whole number") continue;
        // Any number that is not negative serves as a seed.
        const bool is_seed = name.ends_with("seed") || name == "source";
        if (is_seed && value[0] != '-') continue;
        const std::string key = table + "." + name;
        arguments.insert(arguments.end(), {"--set", key + "=" + value});
        expected.push_back(key);
      }
      if (expected.empty()) continue;
      const std::string message = Fail(kDdp, arguments);
      for (const std::string& key : expected) {
        EXPECT_THAT(message, HasSubstr(key + " is " + value));
      }
    }
  }
}

TEST_F(BadInputTest, InputsThatAreNoFilesAreNotWaitedFor) {
  ASSERT_EQ(mkfifo(Path("fifo").c_str(), 0666), 0);
  EXPECT_THAT(Fail(kSingle, {"--config", Path("fifo")}), HasSubstr("it is a FIFO"));
  EXPECT_THAT(Fail(kSingle, {"--config", "/dev/zero"}), HasSubstr("it is a device"));
  EXPECT_THAT(Fail(kSingle, {"--set", "model.init=" + Path("fifo")}), HasSubstr("it is a FIFO"));
  EXPECT_THAT(Fail(kSingle, {"--config", Path(std::string(300, 'x'))}), HasSubstr("too long"));
  EXPECT_THAT(Fail(kSingle, {"--out", Path(std::string(300, 'x'))}), HasSubstr("too long"));
  fs::create_symlink(Path("loop"), Path("loop"));
  EXPECT_THAT(Fail(kSingle, {"--out", Path("loop/out")}), HasSubstr("in the way"));
}

TEST_F(BadInputTest, LimitsOfTheSystemEndInAMessage) {
  const auto under = [this](const std::string& limit) {
    ProcessOptions options = Options(kSingle, {});
    options.arguments.insert(options.arguments.begin(),
                             {"/bin/sh", "-c", limit + "; exec \"$@\"", "sh"});
    auto result = RunProcess(options);
    EXPECT_TRUE(result.ok()) << result.status();
    return result.ok() ? *result : ProcessResult{};
  };
#ifndef __SANITIZE_THREAD__  // ThreadSanitizer's own mapped file breaks this limit.
  const ProcessResult file = under("ulimit -f 8");
  EXPECT_EQ(file.exit_code, 1) << file.Describe();
  EXPECT_THAT(file.err, HasSubstr("File too large"));
#endif
  const ProcessResult full = under("exec > /dev/full");
  EXPECT_EQ(full.exit_code, 1) << full.Describe();
  EXPECT_THAT(full.err, HasSubstr("cannot write to the standard output"));
}

}  // namespace
}  // namespace lockstep
