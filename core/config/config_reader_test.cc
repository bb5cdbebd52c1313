#include "core/config/config_reader.h"

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "core/config/config.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

Config Parse(const std::string& text) {
  absl::StatusOr<Config> config = Config::FromString(text, "a.toml");
  EXPECT_TRUE(config.ok()) << config.status();
  return config.ok() ? *config : Config();
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// The message after reading key `x` of `text` as a T, and whether the value stayed as it was.
template <typename T>
std::string Problem(const std::string& text, const NumberBounds& bounds = {}) {
  const Config config = Parse(text);
  ConfigReader reader(config.Table(""));
  T value{};
  reader.Read("x", &value, bounds);
  const absl::Status status = reader.Finish();
  if (!status.ok()) {
    EXPECT_EQ(value, T{}) << "changed in spite of the problem";
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  }
  return Message(status);
}

enum class Kind { kSgd, kAdamW };

TEST(ConfigReaderTest, ReadsEveryType) {
  const Config config = Parse(R"(
[t]
bool = true
int = -7
int64 = 9_000_000_000
uint64 = 42
float = 0.25
double = 1e-3
whole = 3
string = "text"
ints = [3, 4]
doubles = [0.5, 2]
strings = ["a"]
kind = "adamw"
)");
  bool boolean = false;
  int small = 0;
  int64_t large = 0;
  uint64_t natural = 0;
  float single_precision = 0;
  double double_precision = 0;
  double whole = 0;
  std::string text;
  std::vector<int64_t> ints = {1, 2, 3};
  std::vector<double> doubles;
  std::vector<std::string> strings;
  Kind kind = Kind::kSgd;
  ConfigReader reader(config.Table("t"));
  reader.Read("bool", &boolean);
  reader.Read("int", &small);
  reader.Read("int64", &large);
  reader.Read("uint64", &natural);
  reader.Read("float", &single_precision);
  reader.Read("double", &double_precision);
  reader.Require("whole", &whole);
  reader.Require("string", &text);
  reader.Require("ints", &ints);
  reader.Require("doubles", &doubles);
  reader.Require("strings", &strings);
  reader.RequireChoice("kind", &kind, {{"sgd", Kind::kSgd}, {"adamw", Kind::kAdamW}});
  ASSERT_EQ(reader.Finish(), absl::OkStatus());
  EXPECT_TRUE(boolean);
  EXPECT_EQ(small, -7);
  EXPECT_EQ(large, 9'000'000'000);
  EXPECT_EQ(natural, 42u);
  EXPECT_EQ(single_precision, 0.25f);
  EXPECT_EQ(double_precision, 1e-3);
  EXPECT_EQ(whole, 3.0);
  EXPECT_EQ(text, "text");
  EXPECT_THAT(ints, ElementsAre(3, 4));
  EXPECT_THAT(doubles, ElementsAre(0.5, 2.0));
  EXPECT_THAT(strings, ElementsAre("a"));
  EXPECT_EQ(kind, Kind::kAdamW);
}

TEST(ConfigReaderTest, AbsentKeysAndTablesKeepDefaults) {
  const Config config;
  ConfigReader reader(config.Table("optimizer"));
  double learning_rate = 0.1;
  Kind kind = Kind::kAdamW;
  reader.Read("learning_rate", &learning_rate, {.greater_than = 0});
  reader.ReadChoice("kind", &kind, {{"sgd", Kind::kSgd}, {"adamw", Kind::kAdamW}});
  EXPECT_FALSE(reader.Has("learning_rate"));
  EXPECT_THAT(reader.Keys(), IsEmpty());
  EXPECT_EQ(reader.Finish(), absl::OkStatus());
  EXPECT_EQ(learning_rate, 0.1);
  EXPECT_EQ(kind, Kind::kAdamW);
}

TEST(ConfigReaderTest, WrongTypesSayWhatIsExpected) {
  EXPECT_EQ(Problem<double>("\nx = \"fast\""),
            "a.toml:2: x is the string \"fast\", expected a number, such as x = 0.5");
  EXPECT_EQ(Problem<int64_t>("x = 1e3"),
            "a.toml:1: x is the number 1000.0, expected a whole number, such as x = 4");
  EXPECT_EQ(Problem<bool>("x = 1"),
            "a.toml:1: x is the number 1, expected true or false, such as x = true");
  EXPECT_EQ(Problem<std::string>("x = true"),
            "a.toml:1: x is true, expected a string, such as x = \"text\"");
  EXPECT_EQ(Problem<std::vector<int64_t>>("x = 3"),
            "a.toml:1: x is the number 3, expected a list of whole numbers, such as x = [2, 4]");
  EXPECT_EQ(Problem<std::vector<int64_t>>("x = [1, \"2\"]"),
            "a.toml:1: x is the list [1, \"2\"], expected a list of whole numbers, such as "
            "x = [2, 4]");
  EXPECT_EQ(Problem<std::vector<std::string>>("x = [1]"),
            "a.toml:1: x is the list [1], expected a list of strings, such as x = [\"a\", \"b\"]");
  EXPECT_EQ(Problem<int>("[x]\ny = 1"),
            "a.toml:1: x is a table, expected a whole number, such as x = 4");
}

TEST(ConfigReaderTest, ReadsWhatMayBeAChoiceOrANumber) {
  using Either = std::variant<bool, int64_t>;
  const Config config = Parse("a = false\nb = 3\n");
  ConfigReader reader(config.Table(""));
  Either a = int64_t{1}, b = true, c = true;
  reader.Read("a", &a);
  reader.Read("b", &b);
  reader.Read("c", &c);
  ASSERT_EQ(reader.Finish(), absl::OkStatus());
  EXPECT_EQ(a, Either(false));
  EXPECT_EQ(b, Either(int64_t{3}));
  EXPECT_EQ(c, Either(true));
  EXPECT_EQ(Problem<Either>("x = 2.0"),
            "a.toml:1: x is the number 2.0, expected true, false or a whole number, such as "
            "x = true");
  EXPECT_EQ(Problem<Either>("x = -1", {.at_least = 0}), "a.toml:1: x is -1: it must be at least 0");
}

TEST(ConfigReaderTest, ReadsWhatMayBeAWordOrAList) {
  using Either = std::variant<std::string, std::vector<int64_t>>;
  const Config config = Parse("a = \"time\"\nb = [1, 2]\n");
  ConfigReader reader(config.Table(""));
  Either a, b;
  reader.Read("a", &a);
  reader.Read("b", &b);
  ASSERT_EQ(reader.Finish(), absl::OkStatus());
  EXPECT_EQ(a, Either("time"));
  EXPECT_EQ(b, Either(std::vector<int64_t>{1, 2}));
  EXPECT_EQ(Problem<Either>("x = 2"),
            "a.toml:1: x is the number 2, expected a string or a list of whole numbers, such as "
            "x = [2, 4]");
  EXPECT_EQ(Problem<Either>("x = [0]", {.at_least = 1}),
            "a.toml:1: x is [0]: it must be at least 1");
}

TEST(ConfigReaderTest, BoundsHold) {
  const NumberBounds dropout = {.at_least = 0, .less_than = 1};
  EXPECT_EQ(Problem<double>("x = 0", dropout), "");
  EXPECT_EQ(Problem<float>("x = 0.999", dropout), "");
  EXPECT_EQ(Problem<double>("x = 1", dropout),
            "a.toml:1: x is 1: it must be at least 0 and less than 1");
  EXPECT_EQ(Problem<double>("x = -0.5", dropout),
            "a.toml:1: x is -0.5: it must be at least 0 and less than 1");
  const NumberBounds positive = {.greater_than = 0, .at_most = 8};
  EXPECT_EQ(Problem<int64_t>("x = 8", positive), "");
  EXPECT_EQ(Problem<int64_t>("x = 0", positive),
            "a.toml:1: x is 0: it must be greater than 0 and at most 8");
  EXPECT_EQ(Problem<int64_t>("x = 9", positive),
            "a.toml:1: x is 9: it must be greater than 0 and at most 8");
  EXPECT_EQ(Problem<std::vector<int64_t>>("x = [1, 8, 0]", positive),
            "a.toml:1: x is [1, 8, 0]: it must be greater than 0 and at most 8");
}

TEST(ConfigReaderTest, NumbersFitTheirTypes) {
  EXPECT_EQ(Problem<int>("x = 2147483647"), "");
  EXPECT_EQ(Problem<int>("x = 2147483648"),
            "a.toml:1: x is 2147483648: it must be at least -2147483648 and at most 2147483647");
  EXPECT_EQ(Problem<uint64_t>("x = -1"),
            "a.toml:1: x is -1: it must be at least 0 and at most 18446744073709551615");
  EXPECT_EQ(Problem<float>("x = 1e39"),
            "a.toml:1: x is 1e+39: it is too large for single precision");
  EXPECT_EQ(Problem<double>("x = inf"), "a.toml:1: x is inf: it must be finite");
  EXPECT_EQ(Problem<double>("x = nan"), "a.toml:1: x is nan: it must be finite");
}

TEST(ConfigReaderTest, ChoicesSuggestTheNearestName) {
  const Config config = Parse("[optimizer]\nkind = \"adanw\"\nother = 3\n");
  ConfigReader reader(config.Table("optimizer"));
  Kind kind = Kind::kSgd;
  reader.ReadChoice("kind", &kind, {{"sgd", Kind::kSgd}, {"adamw", Kind::kAdamW}});
  reader.ReadChoice("other", &kind, {{"sgd", Kind::kSgd}, {"adamw", Kind::kAdamW}});
  reader.RequireChoice("third", &kind, {{"sgd", Kind::kSgd}});
  EXPECT_EQ(Message(reader.Finish()),
            "a.toml:2: optimizer.kind is \"adanw\"; did you mean \"adamw\"? "
            "Known are \"sgd\", \"adamw\"\n"
            "a.toml:3: optimizer.other is the number 3, expected one of \"sgd\", \"adamw\"\n"
            "optimizer.third is missing; set it in a configuration file, or with "
            "--set optimizer.third=\"sgd\"");
  EXPECT_EQ(kind, Kind::kSgd);
}

TEST(ConfigReaderTest, NoKeyIsUnknownBesideAWrongKind) {
  for (const char* kind : {"kind = \"adam\"\n", "kind = 3\n", ""}) {
    const Config config = Parse(std::string("[optimizer]\n") + kind + "beta = 0.9\n");
    ConfigReader reader(config.Table("optimizer"));
    Kind read = Kind::kSgd;
    reader.RequireChoice("kind", &read, {{"sgd", Kind::kSgd}, {"adamw", Kind::kAdamW}});
    const std::string message = Message(reader.Finish());
    EXPECT_THAT(message, HasSubstr("optimizer.kind")) << kind;
    EXPECT_THAT(message, Not(HasSubstr("unknown key"))) << kind;
  }
}

TEST(ConfigReaderTest, AKeyOfAnotherKindNamesTheKind) {
  const std::string choices = "[schedule] has kind, learning_rate";
  for (const auto& [given, kind] :
       {std::pair("kind = \"constant\"\n", "constant"), {"", "cosine"}}) {
    const Config config =
        Parse(std::string("[schedule]\n") + given + "decay_steps = 1\nzzzzzz = 1\n");
    ConfigReader reader(config.Table("schedule"));
    Kind read = Kind::kAdamW;
    double learning_rate = 0;
    reader.ReadChoice("kind", &read, {{"constant", Kind::kSgd}, {"cosine", Kind::kAdamW}});
    reader.Read("learning_rate", &learning_rate);
    const std::string message = Message(reader.Finish());
    EXPECT_THAT(message,
                HasSubstr(absl::StrCat("unknown key schedule.decay_steps with schedule.kind = \"",
                                       kind, "\"; ", choices)));
    EXPECT_THAT(message, HasSubstr("unknown key schedule.zzzzzz; " + choices));
  }
}

TEST(ConfigReaderTest, UnknownKeysSuggestTheNearest) {
  Config config = Parse("[optimizer]\nlerning_rate = 0.1\nmomentum = 0.9\n");
  ASSERT_EQ(config.Set("optimizer.wieght_decay=1"), absl::OkStatus());
  ConfigReader reader(config.Table("optimizer"));
  double learning_rate = 0;
  double momentum = 0;
  double weight_decay = 0;
  reader.Require("learning_rate", &learning_rate);
  reader.Read("momentum", &momentum);
  reader.Read("weight_decay", &weight_decay);
  EXPECT_EQ(Message(reader.Finish()),
            "optimizer.learning_rate is missing; set it in a configuration file, or with "
            "--set optimizer.learning_rate=0.5\n"
            "a.toml:2: unknown key optimizer.lerning_rate; did you mean optimizer.learning_rate?\n"
            "--set: unknown key optimizer.wieght_decay; did you mean optimizer.weight_decay?");
}

TEST(ConfigReaderTest, TheWholeConfigurationIsChecked) {
  const Config config = Parse("steps = 3\n[modle]\nwidth = 64\n[data]\nname = \"shapes\"\n");
  ConfigReader root(config.Table(""));
  int64_t steps = 0;
  std::string name;
  root.Read("steps", &steps);
  ConfigReader model(root.Table("model"));
  ConfigReader data(root.Table("data"));
  data.Require("name", &name);
  EXPECT_EQ(data.Finish(), absl::OkStatus());
  EXPECT_EQ(model.Finish(), absl::OkStatus());
  EXPECT_EQ(Message(root.Finish()), "a.toml:2: unknown key modle; did you mean model?");
  EXPECT_EQ(name, "shapes");
}

TEST(ConfigReaderTest, KeysOfUnknownTablesAreNamed) {
  const Config config = Parse("[gpipe]\nchunks = 4\n[optim]\nlr = 0.1\nzzzzzzzz = 1\n[zzzz]\n");
  ConfigReader root(config.Table(""));
  ConfigReader optimizer(root.Table("optimizer"));
  EXPECT_EQ(Message(root.Finish()),
            "a.toml:2: unknown key gpipe.chunks; did you mean cut.micro_batches?\n"
            "a.toml:4: unknown key optim.lr; did you mean schedule.learning_rate?\n"
            "a.toml:3: unknown key optim; did you mean optimizer?\n"
            "a.toml:6: unknown key zzzz; there are optimizer");
}

TEST(ConfigReaderTest, NestedTablesCarryTheirPath) {
  const Config config = Parse("[data.validation]\nprats = 3\n");
  ConfigReader data(config.Table("data"));
  ConfigReader validation(data.Table("validation"));
  int64_t parts = 0;
  validation.Read("parts", &parts);
  EXPECT_EQ(Message(validation.Finish()),
            "a.toml:2: unknown key data.validation.prats; did you mean data.validation.parts?");
  EXPECT_EQ(data.Finish(), absl::OkStatus());
}

TEST(ConfigReaderTest, AValueInPlaceOfATableIsOneProblem) {
  const Config config = Parse("optimizer = \"adamw\"\n");
  ConfigReader reader(config.Table("optimizer"));
  double learning_rate = 0;
  reader.Require("learning_rate", &learning_rate);
  EXPECT_EQ(Message(reader.Finish()),
            "a.toml:1: optimizer is the string \"adamw\", expected a table, such as [optimizer] "
            "and its keys below it");
}

TEST(ConfigReaderTest, TablesWithKeysThatAreData) {
  const Config config = Parse("[plan]\n\"blocks.*\" = \"column\"\nhead = \"diagonal\"\n");
  ConfigReader reader(config.Table("plan"));
  for (const std::string& pattern : reader.Keys()) {
    std::string style;
    reader.Read(pattern, &style);
    if (style != "column") reader.AddProblem(pattern, "must be \"column\"");
  }
  EXPECT_THAT(reader.Keys(), ElementsAre("blocks.*", "head"));
  EXPECT_EQ(Message(reader.Finish()), "a.toml:3: plan.head must be \"column\"");
}

}  // namespace
}  // namespace lockstep
