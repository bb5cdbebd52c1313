// The program as a user starts it.

#include <filesystem>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "core/base/subprocess.h"
#include "core/text/testing.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/transformer/gpt2_file.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr char kWorkload[] = R"(name = "generate"
[train]
steps = 3
[batch]
size = 4
[model]
kind = "transformer"
layers = 1
heads = 2
width = 16
[data]
kind = "markov"
context = 8
validation_samples = 4
[optimizer]
kind = "adamw"
[schedule]
learning_rate = 0.01
[run]
threads = 1
)";

class GenerateTest : public testing::Test {
 protected:
  GenerateTest() : folder_(testing::TempDir() + "/generate_test") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }

  void Write(const std::string& name, const std::string& contents) const {
    std::ofstream(folder_ + "/" + name, std::ios::binary) << contents;
  }
  std::string Path(const std::string& name) const { return folder_ + "/" + name; }

  static ProcessResult Run(const std::string& program, std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), program);
    auto result = RunProcess({.arguments = arguments});
    EXPECT_TRUE(result.ok()) << result.status();
    return *std::move(result);
  }
  static std::string Text(const std::vector<std::string>& arguments) {
    const ProcessResult result = Run("tools/generate/generate", arguments);
    EXPECT_TRUE(result.ok()) << result.err;
    return result.out;
  }
  static std::string Problem(const std::vector<std::string>& arguments) {
    const ProcessResult result = Run("tools/generate/generate", arguments);
    EXPECT_EQ(result.exit_code, 1);
    EXPECT_EQ(result.out, "");
    return result.err;
  }

  std::string folder_;
};

TEST_F(GenerateTest, ContinuesWithTheModelOfARun) {
  Write("workload.toml", kWorkload);
  const ProcessResult trained =
      Run("strategies/single/main", {"--config", Path("workload.toml"), "--out", Path("run")});
  ASSERT_TRUE(trained.ok()) << trained.err;
  const std::string run = "--run=" + Path("run");
  const std::string text = Text({run, "--prompt=bad", "--tokens=40"});
  EXPECT_THAT(text, MatchesRegex("bad[a-p]+\n"));
  EXPECT_EQ(text.size(), 3u + 40 + 1);
  EXPECT_EQ(Text({run, "--prompt=bad", "--tokens=40"}), text);
  EXPECT_NE(Text({run, "--prompt=bad", "--tokens=40", "--seed=2"}), text);
  const std::string likeliest = Text({run, "--prompt=bad", "--tokens=20", "--top_k=1"});
  EXPECT_EQ(Text({run, "--prompt=bad", "--tokens=20", "--temperature=0", "--seed=9"}), likeliest);

  EXPECT_THAT(Problem({run}), HasSubstr("--prompt is empty"));
  EXPECT_THAT(Problem({run, "--prompt=z"}), HasSubstr("the letters a to p only"));
  EXPECT_THAT(Problem({run, "--prompt=a", "--checkpoint=" + Path("none")}), HasSubstr("/none"));
}

// Greedy text of adapters beside the weights, merged into them, and out of PEFT's files is the
// same.
TEST_F(GenerateTest, ContinuesWithAdapters) {
  Write("workload.toml", kWorkload);
  const std::vector<std::string> lora = {
      "--config", Path("workload.toml"),       "--out", Path("run"),
      "--set",    "lora.layers=[\"*.qkv.v\"]", "--set", "lora.learning_rate=0.5"};
  const ProcessResult trained = Run("strategies/lora/main", lora);
  ASSERT_TRUE(trained.ok()) << trained.err;
  const std::string run = "--run=" + Path("run");
  const std::string text = Text({run, "--prompt=bad", "--tokens=20", "--top_k=1"});
  EXPECT_EQ(Text({run, "--prompt=bad", "--tokens=20", "--top_k=1", "--merge"}), text);

  // Adapters of another base are refused.
  std::string config;
  std::getline(std::ifstream(Path("run/config.toml")), config, '\0');
  Write("run/config.toml", absl::StrReplaceAll(config, {{"seed = 1\n", "seed = 9\n"}}));
  EXPECT_THAT(Problem({run, "--prompt=bad"}), HasSubstr("were trained on another base"));
}

// A model of packed documents sees none but the last one, and its text ends with that.
TEST_F(GenerateTest, ContinuesTheLastDocument) {
  std::string lines;
  for (int i = 0; i < 60; ++i) lines += i % 3 == 0 ? "abab\n" : "cdcdcd\n";
  Write("text.txt", lines);
  Write("workload.toml", absl::StrReplaceAll(kWorkload, {{"kind = \"markov\"",
                                                          "kind = \"text\"\npath = \"text.txt\"\n"
                                                          "separator = \"\\n\""},
                                                         {"validation_samples = 4\n", ""}}));
  const ProcessResult trained =
      Run("strategies/single/main",
          {"--config", Path("workload.toml"), "--data", folder_, "--out", Path("run")});
  ASSERT_TRUE(trained.ok()) << trained.err;
  const auto continued = [&](const std::string& prompt) {
    const std::string text = Text({"--run=" + Path("run"), "--data=" + folder_,
                                   "--prompt=" + prompt, "--tokens=200", "--seed=4"});
    EXPECT_EQ(text.substr(0, prompt.size()), prompt);
    return text.substr(prompt.size());
  };
  const std::string text = continued("cd");
  EXPECT_EQ(continued("ab\nabab\ncd"), text);
  EXPECT_NE(continued("ab"), text);
  // Within 200 tokens of a vocabulary of five, hardly trained, a document ends.
  EXPECT_EQ(text.find('\n'), text.size() - 1);
  EXPECT_LT(text.size(), 200u);
  EXPECT_THAT(Problem({"--run=" + Path("run"), "--data=" + folder_, "--prompt=ab\n"}),
              HasSubstr("behind the last separator"));
}

TEST_F(GenerateTest, ContinuesWithPublishedWeights) {
  Write("model.safetensors",
        Gpt2File({.layers = 1, .heads = 2, .width = 8, .context = 5, .vocabulary = 257}).Bytes());
  Write("config.json", R"({"n_head": 2})");
  Write("encoder.json", TokensJson({"<|endoftext|>"}));
  Write("vocab.bpe", "#version: 0.2\n");
  const std::string weights = "--weights=" + Path("model.safetensors"), bpe = "--bpe=" + folder_;
  const std::string text = Text({weights, bpe, "--prompt=Hi", "--tokens=3"});
  EXPECT_EQ(text.substr(0, 2), "Hi");
  EXPECT_EQ(text.back(), '\n');
  Text({weights, bpe, "--tokens=3"});  // a new document

  EXPECT_THAT(Problem({weights, "--prompt=Hi"}), HasSubstr("with --bpe"));
  Write("encoder.json", TokensJson({"ab", "<|endoftext|>"}));
  EXPECT_THAT(Problem({weights, bpe}), HasSubstr("has 258 tokens, but the model 257"));
}

TEST_F(GenerateTest, SaysWhatIsWrong) {
  EXPECT_THAT(Problem({}), HasSubstr("either --run or --weights"));
  EXPECT_THAT(Problem({"--run=a", "--weights=b"}), HasSubstr("either --run or --weights"));
  EXPECT_THAT(Problem({"--run=a", "--adapter=b"}), HasSubstr("--adapter goes with --weights"));
  EXPECT_THAT(Problem({"--run=a", "--temperature=-1"}), HasSubstr("--temperature is -1"));
  EXPECT_THAT(Problem({"--run=a", "--temperature=nan"}),
              HasSubstr("--temperature nan: give a finite"));
  EXPECT_THAT(Problem({"--run=a", "--top_k=-1"}),
              HasSubstr("--top_k -1: give a whole number from 0"));
  EXPECT_THAT(Problem({"--run=" + Path("none")}), HasSubstr("/none/config.toml"));
}

}  // namespace
}  // namespace lockstep
