// The workloads that are shipped for plans: each loads, and is the model that its paper describes.

#include <filesystem>
#include <map>
#include <set>
#include <string>

#include "core/config/command_line.h"
#include "core/run/leg/training_run.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/engine/preset.h"

namespace lockstep {
namespace {

// Parameters, in billions, and the unit of the last digit that the paper gives.
struct Published {
  double billions, unit;
};

// SC21: Narayanan et al. 2021, Table 1. Korthikanti et al. 2022, Table 3. Brown et al. 2020, Table
// 2.1. The models of Llama 3 and Mixtral 8x7B are named by Meta's and Mistral's model cards.
const std::map<std::string, Published>& PublishedParameters() {
  static const auto* const published = new std::map<std::string, Published>{
      {"sc21_1_7b", {1.7, 0.1}},      {"sc21_3_6b", {3.6, 0.1}},
      {"sc21_7_5b", {7.5, 0.1}},      {"sc21_18b", {18.4, 0.1}},
      {"sc21_39b", {39.1, 0.1}},      {"sc21_76b", {76.1, 0.1}},
      {"sc21_145b", {145.6, 0.1}},    {"sc21_310b", {310.1, 0.1}},
      {"sc21_530b", {529.6, 0.1}},    {"sc21_1t", {1008.0, 0.1}},
      {"korthikanti_22b", {22, 1}},   {"korthikanti_175b", {175, 1}},
      {"korthikanti_530b", {530, 1}}, {"korthikanti_1t", {1000, 100}},
      {"gpt3_175b", {175, 1}},        {"llama3_8b", {8, 1}},
      {"llama3_70b", {70.6, 0.1}},    {"llama3_405b", {406, 1}},
      {"mixtral_8x7b", {46.7, 0.1}}};
  return *published;
}

TEST(WorkloadsTest, HaveThePublishedNumbersOfParameters) {
  const StrategyDefinition strategy = EnginePreset("plan", {});
  std::set<std::string> seen;
  for (const auto& file : std::filesystem::directory_iterator("tools/plan/workloads")) {
    const std::string name = file.path().stem();
    if (name == "measured_gpt") continue;  // each measured row adds its own size
    SCOPED_TRACE(name);
    seen.insert(name);
    const auto published = PublishedParameters().find(name);
    if (published == PublishedParameters().end()) {
      ADD_FAILURE() << "no published number of parameters";
      continue;
    }
    CommandLine command_line;
    command_line.configs = {file.path()};
    command_line.assignments = {"cut.shards=1", "cut.micro_batches=1"};
    const auto run = CheckRun(command_line, strategy, MakeModel);
    ASSERT_TRUE(run.ok()) << run.status();
    const auto model = run->make_model(run->config, *run->dataset);
    ASSERT_TRUE(model.ok()) << model.status();
    const auto& [billions, unit] = published->second;
    EXPECT_NEAR(static_cast<double>(model->ParameterCount()) / 1e9, billions, unit / 2);
  }
  EXPECT_EQ(seen.size(), PublishedParameters().size());
}

}  // namespace
}  // namespace lockstep
