#include "core/run/leg/rank_in_leg.h"

#include <utility>

#include "core/base/parallel.h"
#include "core/base/status.h"
#include "core/probe/probe_file.h"
#include "core/run/leg/profile_blocks.h"

namespace lockstep {
namespace {

ProbeHeader ProbeHeaderOf(const TrainingRun& run, const Model& model, const Rank& rank) {
  const Settings& settings = run.settings;
  ProbeHeader header = {.program = "lockstep " + run.strategy_name,
                        .workload = run.workload,
                        .model = run.model_fingerprint,
                        .rank = rank.rank,
                        .ranks = rank.size,
                        .batch = settings.batch.size,
                        .shards = settings.cut.shards,
                        .micro_batches = settings.cut.micro_batches,
                        .tokens = settings.cut.tokens};
  for (const auto& block : model.blocks) header.blocks.push_back(block->name());
  header.has_legs = !settings.legs.empty();
  return header;
}

}  // namespace

absl::StatusOr<std::unique_ptr<RankInLeg>> RankInLeg::Make(
    const TrainingRun& leg, const RankTools& tools, const std::vector<BlockProfile>* profiles) {
  const int ranks = leg.settings.mesh.ranks();
  std::unique_ptr<Communicator> own;
  if (ranks < tools.world.size()) {
    LS_ASSIGN_OR_RETURN(own, tools.world.SplitBy(
                                 [ranks](int rank) {
                                   return Communicator::Choice{.color = rank < ranks ? 0 : -1,
                                                               .key = rank};
                                 },
                                 "leg"));
    if (own == nullptr) return nullptr;
  }
  SetThreads(static_cast<int>(leg.settings.threads));
  LS_ASSIGN_OR_RETURN(Mesh mesh,
                      Mesh::Create(leg.settings.mesh, own == nullptr ? tools.world : *own));
  LS_ASSIGN_OR_RETURN(Model model, leg.make_model(leg.config, *leg.dataset));
  return std::unique_ptr<RankInLeg>(
      new RankInLeg(leg, tools, std::move(own), std::move(mesh), std::move(model), profiles));
}

RankInLeg::RankInLeg(const TrainingRun& leg, const RankTools& tools,
                     std::unique_ptr<Communicator> own, Mesh mesh, Model model,
                     const std::vector<BlockProfile>* profiles)
    : leg_(leg),
      own_(std::move(own)),
      mesh_(std::move(mesh)),
      rank_(tools.kernels, mesh_, tools.timer, tools.trace),
      initial_({.path = model.initial_weights, .names = model.published}) {
  for (const auto& block : model.blocks) blocks_.push_back(block->name());
  if (leg.settings.probe.steps > 0) {
    probe_.emplace(leg.settings.probe, ProbeHeaderOf(leg, model, rank_), mesh_, rank_.kernels,
                   leg.out + "/" + kProbeFolder);
    rank_.probe = &*probe_;
  }
  profiles_ = profiles == nullptr ? ProfilesOfRun(leg, rank_) : *profiles;
  strategy_ = MakeStrategy(leg, rank_, std::move(model), profiles_);
}

}  // namespace lockstep
