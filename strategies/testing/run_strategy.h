#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "core/run/leg/training_run.h"
#include "core/run/rehearsal.h"
#include "core/run/trainer.h"

namespace lockstep {

// "key=value", as --set takes them; later ones win.
using Assignments = std::vector<std::string>;
Assignments With(Assignments assignments, const Assignments& more);

// Trains with a strategy, for tests: `config` is TOML text, `assignments` are laid over it as --set
// does. Axes of the mesh that neither names have one rank. Losses, hashes and books come back;
// files go to a folder of the test's own. Fails the test on an error. Ranks compute on the CPU
// unless `devices` are given. `legs`: the strategies that a run's legs may name.
std::vector<RankReport> RunStrategy(const StrategyDefinition& strategy,
                                    const ModelFactory& make_model, const std::string& config,
                                    const Assignments& assignments,
                                    std::shared_ptr<RankDevices> devices = nullptr,
                                    const std::vector<StrategyDefinition>& legs = {});

// What the memory of such a run comes to over shapes alone, by rank (core/run/rehearsal.h).
std::vector<Rehearsed> RehearseStrategy(const StrategyDefinition& strategy,
                                        const ModelFactory& make_model, const std::string& config,
                                        const Assignments& assignments,
                                        const RehearsalOptions& options = {});

// Goes on with what the last RunStrategy of this test left, as --resume does.
std::vector<RankReport> ResumeStrategy(const StrategyDefinition& strategy,
                                       const ModelFactory& make_model, const std::string& config,
                                       const Assignments& assignments,
                                       const std::vector<StrategyDefinition>& legs = {});

// Makes the strategy of such a run on each of its ranks, in threads, and runs `look` there.
void OnStrategies(const StrategyDefinition& strategy, const ModelFactory& make_model,
                  const std::string& config, const Assignments& assignments,
                  const std::function<void(const TrainingRun&, Rank&, Strategy&)>& look);

// Where these runs leave their files.
std::string RunFolder();

// The error of such a run; fails the test if there is none.
absl::Status FailStrategy(const StrategyDefinition& strategy, const ModelFactory& make_model,
                          const std::string& config, const Assignments& assignments,
                          std::shared_ptr<RankDevices> devices = nullptr,
                          const std::vector<StrategyDefinition>& legs = {});

// The error of going on with what the last RunStrategy left; fails the test if there is none.
absl::Status FailToResume(const StrategyDefinition& strategy, const ModelFactory& make_model,
                          const std::string& config, const Assignments& assignments);

// Contract 3: on every rank the very bits of a run of `single`: losses, final parameters and
// running statistics, validation.
void ExpectSameBits(const std::vector<RankReport>& ranks, const std::vector<RankReport>& single);

// Contract 8: in the steps of this run a rank has sent what theory says of it, by kind, and nothing
// else.
void ExpectPredictedTraffic(const RankReport& report);

// ExpectPredictedTraffic on every rank; and the peaks of the predicted classes of memory are those
// predicted, to the byte.
void ExpectPredictedCosts(const std::vector<RankReport>& ranks);

// A small GPT with dropout and a small Llama with groups of two heads on markov text, a small
// ResNet on shapes, and a small U-Net on their segmentation: 12 samples a step, 4 steps.
std::string SmallGptConfig();
std::string SmallLlamaConfig();
std::string SmallResNetConfig();
std::string SmallUNetConfig();

// The same, for tests that walk through them.
enum class SmallModel { kGpt, kLlama, kResNet, kUNet };
std::string SmallConfig(SmallModel model);
std::string Name(SmallModel model);  // letters

}  // namespace lockstep
