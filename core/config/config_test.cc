#include "core/config/config.h"

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

Config Parse(const std::string& text) {
  absl::StatusOr<Config> config = Config::FromString(text, "a.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : Config();
}

std::string SetError(const std::string& assignment) {
  Config config;
  return std::string(config.Set(assignment).message());
}

// The document that results from one --set on an empty configuration.
std::string AfterSet(const std::string& assignment) {
  Config config;
  EXPECT_EQ(config.Set(assignment), absl::OkStatus());
  return config.ToToml();
}

TEST(ConfigTest, WritesSortedToml) {
  EXPECT_EQ(Parse(R"(
steps = 2_000
seed = 0x10
[optimizer]   # a comment
kind = 'adamw'
learning_rate = 1e-3
betas = [0.9, 0.99]
nesterov = false
[data]
validation.name = "val"
validation.parts = [ { to = 2, from = 1 } ]
[empty]
)")
                .ToToml(),
            R"(seed = 16
steps = 2000

[data.validation]
name = "val"
parts = [{from = 1, to = 2}]

[empty]

[optimizer]
betas = [0.9, 0.99]
kind = "adamw"
learning_rate = 0.001
nesterov = false
)");
}

TEST(ConfigTest, WrittenTomlReadsBackAsTheSameValues) {
  const std::string text = Parse(R"(
whole = 3.0
tiny = 5e-324
third = 0.3333333333333333
large = 1e300
endless = -inf
"odd key.with dot" = "quote \" backslash \\ newline \n bell \u0007 é"
)")
                               .ToToml();
  EXPECT_EQ(Parse(text).ToToml(), text);
  EXPECT_THAT(text, HasSubstr("whole = 3.0\n"));
  EXPECT_THAT(text, HasSubstr("tiny = 5e-324\n"));
  EXPECT_THAT(text, HasSubstr("third = 0.3333333333333333\n"));
  EXPECT_THAT(text, HasSubstr("endless = -inf\n"));
  EXPECT_THAT(text, HasSubstr(R"("odd key.with dot" = "quote \" backslash \\ newline \u000A )"
                              R"(bell \u0007 é")"));
}

TEST(ConfigTest, LaterLayersWinKeyByKey) {
  Config config = Parse("steps = 10\n[model]\nwidth = 64\nheads = 4\nsizes = [1, 2, 3]\n");
  config.Merge(Parse("[model]\nwidth = 128\nsizes = [9]\n[mesh]\ndp = 2\n"));
  EXPECT_EQ(config.ToToml(),
            "steps = 10\n\n[mesh]\ndp = 2\n\n[model]\nheads = 4\nsizes = [9]\nwidth = 128\n");
}

TEST(ConfigTest, KeepsTheOriginOfEachValue) {
  Config config = Parse("steps = 10\n[model]\nwidth = 64\nheads = 4\n");
  config.Merge(Config::FromString("\n\n[model]\nwidth = 128\n", "b.toml").value());
  ASSERT_EQ(config.Set("model.heads=8"), absl::OkStatus());
  const auto& model = *config.Table("model").value->As<ConfigValue::Table>();
  EXPECT_EQ(model.find("width")->second.origin, "b.toml:4");
  EXPECT_EQ(model.find("heads")->second.origin, "--set");
  EXPECT_EQ(config.Table("model").value->origin, "a.toml:2");
}

// What a run writes of its configuration can be read again.
TEST(ConfigTest, SetRefusesBytesThatAreNotUtf8) {
  for (const char* assignment : {"a=\xff", "a=2\"\xc3", "data.file=caf\xe9.txt", "a=\"\xff\""}) {
    EXPECT_NE(SetError(assignment), "") << assignment;
  }
  EXPECT_EQ(SetError("data.file=caf\xe9.txt"),
            "--set data.file: the value is not UTF-8, as configurations are");
  EXPECT_EQ(AfterSet("a=caf\xc3\xa9"), "a = \"caf\xc3\xa9\"\n");
}

TEST(ConfigTest, SetReadsTomlAndBareWords) {
  EXPECT_EQ(AfterSet("a=3"), "a = 3\n");
  EXPECT_EQ(AfterSet(" a = -1.5e-3 "), "a = -0.0015\n");
  EXPECT_EQ(AfterSet("a=true"), "a = true\n");
  EXPECT_EQ(AfterSet("a=[1, 2]"), "a = [1, 2]\n");
  EXPECT_EQ(AfterSet("a=\"3\""), "a = \"3\"\n");
  EXPECT_EQ(AfterSet("a=\"\""), "a = \"\"\n");
  EXPECT_EQ(AfterSet("optimizer.kind=adamw"), "[optimizer]\nkind = \"adamw\"\n");
  EXPECT_EQ(AfterSet("model.init=../x/y=1.safetensors"),
            "[model]\ninit = \"../x/y=1.safetensors\"\n");
  EXPECT_EQ(AfterSet("a=2024-01-01"), "a = \"2024-01-01\"\n");
  EXPECT_EQ(AfterSet("a=1\nb=2"), "a = \"1\\u000Ab=2\"\n");
  EXPECT_EQ(AfterSet("plan.\"blocks.*\"=column"), "[plan]\n\"blocks.*\" = \"column\"\n");
}

TEST(ConfigTest, SetReplacesEvenATableByAValue) {
  Config config = Parse("[a]\nb = 1\n");
  ASSERT_EQ(config.Set("a=1"), absl::OkStatus());
  ASSERT_EQ(config.Set("a.c.d=2"), absl::OkStatus());
  EXPECT_EQ(config.ToToml(), "[a.c]\nd = 2\n");
}

TEST(ConfigTest, SetRefusesWhatIsNoAssignment) {
  EXPECT_EQ(SetError("mesh.dp"), "--set mesh.dp: expected key=value, such as mesh.dp=2");
  EXPECT_EQ(SetError("=2"), "--set =2: expected key=value, such as mesh.dp=2");
  EXPECT_EQ(SetError("mesh dp=2"), "--set mesh dp=2: expected key=value, such as mesh.dp=2");
  EXPECT_EQ(SetError("a\nb=2"), "--set a\nb=2: expected key=value, such as mesh.dp=2");
  EXPECT_EQ(SetError("#a=2"), "--set #a=2: expected key=value, such as mesh.dp=2");  // a comment
  EXPECT_EQ(SetError("a="), "--set a=: the value is missing; write \"\" for an empty string");
  EXPECT_EQ(SetError("a=[1, 2"),
            "--set a=[1, 2: the value opens a string, list or table but is not valid TOML; "
            "write it like [1, 2] or \"text\"");
}

TEST(ConfigTest, MalformedTomlNamesFileLineAndColumn) {
  const auto message = [](const std::string& text) {
    return std::string(Config::FromString(text, "a.toml").status().message());
  };
  EXPECT_THAT(message("steps = 3\n[model\nwidth = 3\n"),
              HasSubstr("a.toml:2: malformed TOML at column 7: "));
  EXPECT_THAT(message("a = 1\na = 2\n"), HasSubstr("a.toml:2: malformed TOML at column"));
  EXPECT_THAT(message("a = \xff\n"), HasSubstr("a.toml:1: malformed TOML at column"));
  EXPECT_EQ(message("[x]\nday = 2024-01-01\n"),
            "a.toml:2: dates and times have no use here; write a string in quotes");
}

TEST(ConfigTest, ReadsFiles) {
  const std::string path = testing::TempDir() + "/config_test.toml";
  ASSERT_EQ(WriteFileAtomically(path, "a = 1\n"), absl::OkStatus());
  const absl::StatusOr<Config> config = Config::FromFile(path);
  ASSERT_TRUE(config.ok()) << config.status();
  EXPECT_EQ(config->ToToml(), "a = 1\n");
  EXPECT_EQ(std::string(Config::FromFile("missing.toml").status().message()),
            "configuration: cannot read \"missing.toml\": No such file or directory");
}

TEST(ConfigTest, FindsTables) {
  const Config config = Parse("[data.validation]\nparts = 3\n");
  EXPECT_NE(config.Table("").value, nullptr);
  ASSERT_NE(config.Table("data.validation").value, nullptr);
  EXPECT_TRUE(config.Table("data.validation").value->As<ConfigValue::Table>()->contains("parts"));
  EXPECT_EQ(config.Table("model").value, nullptr);
  EXPECT_EQ(config.Table("data.validation.parts.x").value, nullptr);
}

// 64-bit FNV-1a of "a = 1\n", computed by another program; of no bytes, its published offset.
TEST(ConfigTest, FingerprintIsFnv1a) {
  EXPECT_EQ(Config().Fingerprint(), "cbf29ce484222325");
  EXPECT_EQ(Parse("a = 1 # one").Fingerprint(), "58ac462f1a79636e");
}

TEST(ConfigTest, FingerprintDependsOnValuesAlone) {
  Config one = Parse("[b]\nx = 1\ny = 2\n[a]\nz = 0.50\n");
  Config other = Parse("[a]\nz = 0.5\n");
  ASSERT_EQ(other.Set("b.y=2"), absl::OkStatus());
  ASSERT_EQ(other.Set("b.x=1"), absl::OkStatus());
  EXPECT_EQ(one.Fingerprint(), other.Fingerprint());
  ASSERT_EQ(other.Set("b.x=2"), absl::OkStatus());
  EXPECT_NE(one.Fingerprint(), other.Fingerprint());
  EXPECT_EQ(one.Only({"a", "missing"}).Fingerprint(), other.Only({"a"}).Fingerprint());
  EXPECT_EQ(one.Only({"a", "missing"}).ToToml(), "[a]\nz = 0.5\n");
  EXPECT_EQ(one.Only({"a"}).Without("a.z").ToToml(), Parse("[a]").ToToml());
  for (const char* missing : {"a.y", "a.z.y", "missing", "missing.z"}) {
    EXPECT_EQ(one.Without(missing).ToToml(), one.ToToml()) << missing;
  }
}

TEST(ConfigTest, TellsWhatDiffers) {
  const Config one = Parse("seed = 1\n[model]\nwidth = 64\nheads = 4\n[mesh]\ndp = 2\n[x]\n");
  const Config other = Parse("seed = 1.0\n[model]\nwidth = 65\nheads = 4\ndepth = 2\n[x]\n");
  using Difference = Config::Difference;
  EXPECT_THAT(one.Differences(other),
              ElementsAre(Difference{"mesh.dp", "2", ""}, Difference{"model.depth", "", "2"},
                          Difference{"model.width", "64", "65"}, Difference{"seed", "1", "1.0"}));
  EXPECT_THAT(one.Differences(one), IsEmpty());
}

// The library goes down a level of the stack for each part of a dotted key.
TEST(ConfigTest, KeysOfManyPartsAreRefusedBeforeParsing) {
  std::string key = "a";
  for (int i = 0; i < 100'000; ++i) key += ".a";
  for (const std::string& text : {key + " = 1", "[" + key + "]", "x = {" + key + " = 1}",
                                  "s = \"\"\"\n\\\"\"\"\"\n" + key + " = 1"}) {
    EXPECT_THAT(std::string(Config::FromString(text, "deep.toml").status().message()),
                HasSubstr("a key has more than 32 dots"));
  }
  Config config;
  EXPECT_THAT(std::string(config.Set(key + "=1").message()), HasSubstr("--set"));
  // What only looks so.
  const std::string dots(100, '.');
  for (const std::string& text :
       {"a = \"" + dots + "\"", "# " + dots, "a = '''\n" + dots + "'''", "a = '" + dots + "'",
        std::string(
            "a = [1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, "
            "1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, 1.5, "
            "1.5, 1.5, 1.5]")}) {
    EXPECT_TRUE(Config::FromString(text, "flat.toml").ok()) << text;
  }
}

}  // namespace
}  // namespace lockstep
