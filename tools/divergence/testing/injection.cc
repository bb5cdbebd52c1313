#include "tools/divergence/testing/injection.h"

#include <memory>
#include <optional>
#include <utility>

#include "core/base/status.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "tools/divergence/testing/faulty_communicator.h"

namespace lockstep {
namespace {

// The rank that a faulty strategy has: the given one, with other kernels and communicators.
struct FaultyRank {
  FaultyRank(Rank& given_rank, Injection injected)
      : given(given_rank),
        injection(std::move(injected)),
        kernels(given.allocator(), dynamic_cast<CpuKernels&>(given.kernels).instructions(),
                injection.kernels) {
    if (!injection.lost.empty()) {
      world = std::make_unique<FaultyCommunicator>(given.mesh.world(), injection.lost);
      absl::StatusOr<Mesh> faulty = Mesh::Create(given.mesh.shape(), *world);
      ThrowIfError(faulty.status());
      mesh.emplace(*std::move(faulty));
    }
    rank.emplace(kernels, mesh ? *mesh : given.mesh, given.timer, given.trace);
    Follow();
  }

  // What the trainer may have changed since.
  void Follow() {
    rank->probe = given.probe;
    rank->search = given.search;
    rank->recorder = given.recorder;
  }

  Rank& given;
  const Injection injection;
  FaultyKernels kernels;
  std::unique_ptr<FaultyCommunicator> world;  // null: nothing is lost
  std::optional<Mesh> mesh;                   // none: nothing is lost
  std::optional<Rank> rank;
};

class FaultyStrategy final : public Strategy, private BatchSource {
 public:
  FaultyStrategy(std::unique_ptr<FaultyRank> rank, std::unique_ptr<Strategy> strategy)
      : rank_(std::move(rank)), strategy_(std::move(strategy)) {
    if (injection().made) injection().made();
  }

  std::vector<int64_t> micro_batches() const override { return strategy_->micro_batches(); }
  StepResult TrainStep(int64_t step, BatchSource& batches) override {
    rank_->Follow();
    batches_ = &batches;
    read_.clear();
    next_ = 0;
    if (injection().before_step) injection().before_step(step, strategy_->State());
    return strategy_->TrainStep(step, *this);
  }
  EvaluationSums Evaluate(const Batch& batch) override { return strategy_->Evaluate(batch); }
  const ModelLayout& layout() const override { return strategy_->layout(); }
  std::vector<StateTensor> State() override { return strategy_->State(); }
  void Restored() override {
    if (injection().restored) injection().restored(strategy_->State());
    strategy_->Restored();
  }
  CostPrediction Predict() const override { return strategy_->Predict(); }

 private:
  const Injection& injection() const { return rank_->injection; }

  Batch Next() override {
    if (!injection().batches) return batches_->Next();
    if (read_.empty()) {
      for (size_t i = 0; i < micro_batches().size(); ++i) read_.push_back(batches_->Next());
      injection().batches(read_);
    }
    return read_[next_++];
  }

  std::unique_ptr<FaultyRank> rank_;
  std::unique_ptr<Strategy> strategy_;
  BatchSource* batches_ = nullptr;
  std::vector<Batch> read_;
  size_t next_ = 0;
};

}  // namespace

StrategyDefinition WithFault(const StrategyDefinition& sound, Inject inject) {
  StrategyDefinition faulty = sound;
  faulty.make = [make = sound.make,
                 inject = std::move(inject)](StrategyInputs inputs) -> std::unique_ptr<Strategy> {
    Injection injection;
    inject(inputs, injection);
    auto rank = std::make_unique<FaultyRank>(inputs.rank, std::move(injection));
    StrategyInputs with_rank = {.rank = *rank->rank,
                                .model = std::move(inputs.model),
                                .tensors = std::move(inputs.tensors),
                                .settings = inputs.settings,
                                .targets_per_sample = inputs.targets_per_sample,
                                .packs_documents = inputs.packs_documents,
                                .config = inputs.config,
                                .profiles = std::move(inputs.profiles)};
    std::unique_ptr<Strategy> strategy = make(std::move(with_rank));
    return std::make_unique<FaultyStrategy>(std::move(rank), std::move(strategy));
  };
  return faulty;
}

}  // namespace lockstep
