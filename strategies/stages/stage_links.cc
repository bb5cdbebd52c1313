#include "strategies/stages/stage_links.h"

#include <algorithm>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

constexpr LinkLabels kLine = {"activations", "activation gradients"};
constexpr LinkLabels kSkips = {"skips", "skip gradients"};

// Whether blocks up to one, that included, have something to train: else what it hands on needs no
// gradient.
bool TrainsUpTo(const Model& model, int64_t last) {
  for (int64_t i = 0; i <= last; ++i) {
    const std::vector<Parameter*> parameters = model.blocks[i]->Parameters();
    if (std::any_of(parameters.begin(), parameters.end(),
                    [](const Parameter* parameter) { return parameter->trainable; })) {
      return true;
    }
  }
  return false;
}

}  // namespace

StageLinks::StageLinks(Stage& part, const StagePlan& plan, Communicator& ranks)
    : rank_(part.rank()), plan_(plan), own_(ranks.rank()) {
  const Model& model = part.model();
  std::map<std::pair<int, int>, Way> skips;
  for (int stage = 0; stage < plan.size(); ++stage) {
    if (stage + 1 < plan.size()) {
      const int64_t last = plan.stages[stage].end - 1;
      AddWay(ranks, {.from = stage,
                     .to = stage + 1,
                     .elements = model.blocks[last]->cost.output_elements,
                     .gradient_elements =
                         TrainsUpTo(model, last) ? model.blocks[last]->cost.output_elements : 0,
                     .sent = {},
                     .taken = {},
                     .group = nullptr,
                     .link = nullptr});
    }
    const std::vector<SkipPath> out = SkipEndsOf(model, plan.stages[stage]).out;
    for (size_t i = 0; i < out.size(); ++i) {
      const int to = plan.StageOfBlock(out[i].to);
      Way& way = skips[{stage, to}];
      way.from = stage;
      way.to = to;
      way.elements += out[i].elements;
      if (TrainsUpTo(model, out[i].from)) way.gradient_elements += out[i].elements;
      way.sent.push_back(i);
    }
  }
  for (int stage = 0; stage < plan.size(); ++stage) {
    const std::vector<SkipPath> in = SkipEndsOf(model, plan.stages[stage]).in;
    for (size_t i = 0; i < in.size(); ++i) {
      skips[{plan.StageOfBlock(in[i].from), stage}].taken.push_back(i);
    }
  }
  for (auto& [ends, way] : skips) AddWay(ranks, std::move(way));
}

// All ranks make all groups, and keep the ways that end with them.
void StageLinks::AddWay(Communicator& ranks, Way way) {
  const int from = plan_.rank_of_stage[way.from], to = plan_.rank_of_stage[way.to];
  const bool is_here = own_ == from || own_ == to;
  if (from == to) {
    way.link = LinkWithinRank();
  } else {
    auto group =
        ranks.Split(is_here ? 0 : -1, own_ == from ? 0 : 1,
                    absl::StrCat(way.is_line() ? "stages " : "skips ", way.from, "-", way.to));
    ThrowIfError(group.status());
    way.group = *std::move(group);
    if (is_here) {
      way.link = LinkRanks(*way.group, 0, 1, way.is_line() ? kLine : kSkips, rank_.kernels);
    }
  }
  if (is_here) ways_.push_back(std::move(way));
}

void StageLinks::ExpectInputs(int stage, const BatchKind& kind) {
  for (Way& way : ways_) {
    if (way.to == stage) way.link->Expect(kind);
  }
}

StageVariables StageLinks::TakeInputs(int stage, const BatchKind& kind) {
  StepTimer::Scope scope(rank_.timer, Phase::kBubble);
  StageVariables inputs;
  for (Way& way : ways_) {
    if (way.to != stage) continue;
    Variables variables = way.link->Take(kind);
    if (way.is_line()) {
      inputs.line = std::move(variables);
      continue;
    }
    for (size_t i = 0; i < variables.size(); ++i) {
      if (inputs.skips.size() <= way.taken[i]) inputs.skips.resize(way.taken[i] + 1);
      inputs.skips[way.taken[i]] = std::move(variables[i]);
    }
  }
  ReleaseSent();
  return inputs;
}

void StageLinks::SendOutputs(int stage, const BatchKind& kind, const StageVariables& outputs) {
  ReleaseSent();
  for (Way& way : ways_) {
    if (way.from != stage) continue;
    if (way.is_line()) {
      way.link->Send(kind, outputs.line);
      continue;
    }
    Variables skips;
    for (const size_t i : way.sent) skips.push_back(outputs.skips[i]);
    way.link->Send(kind, skips);
  }
}

void StageLinks::ExpectGradients(int stage, const BatchKind& kind) {
  for (Way& way : ways_) {
    if (way.from == stage) way.link->ExpectGradients(kind);
  }
}

StageGradients StageLinks::TakeGradients(int stage, const BatchKind& kind) {
  StepTimer::Scope scope(rank_.timer, Phase::kBubble);
  StageGradients gradients;
  for (Way& way : ways_) {
    if (way.from != stage) continue;
    std::vector<Tensor> taken = way.link->TakeGradients(kind);
    if (way.is_line()) {
      gradients.line = std::move(taken);
      continue;
    }
    for (size_t i = 0; i < taken.size(); ++i) {
      if (gradients.skips.size() <= way.sent[i]) gradients.skips.resize(way.sent[i] + 1);
      gradients.skips[way.sent[i]] = std::move(taken[i]);
    }
  }
  ReleaseSent();  // the outputs that these are of, at least
  return gradients;
}

void StageLinks::SendGradients(int stage, const BatchKind& kind, const StageGradients& of_inputs) {
  ReleaseSent();
  for (Way& way : ways_) {
    if (way.to != stage) continue;
    if (way.is_line()) {
      way.link->SendGradients(kind, of_inputs.line);
      continue;
    }
    std::vector<Tensor> skips;
    for (const size_t i : way.taken) skips.push_back(of_inputs.skips[i]);
    way.link->SendGradients(kind, skips);
  }
}

void StageLinks::ReleaseSent() {
  for (Way& way : ways_) way.link->ReleaseSent();
}

void StageLinks::AwaitSent() {
  if (ways_.empty()) return;  // one stage waits for no other
  StepTimer::Scope scope(rank_.timer, Phase::kBubble);
  for (Way& way : ways_) way.link->AwaitSent();
}

void StageLinks::AddTraffic(const Settings& settings, double token_share,
                            CostPrediction& prediction) const {
  const int64_t kinds = settings.largest_micro_batch() == settings.smallest_micro_batch() ? 1 : 2;
  int64_t announcements = 0;
  std::map<std::string, int64_t> elements;  // of a sample, by label
  for (const Way& way : ways_) {
    if (way.group == nullptr) continue;
    const bool sends_variables = plan_.rank_of_stage[way.from] == own_;
    const LinkLabels& labels = way.is_line() ? kLine : kSkips;
    if (sends_variables) {
      elements[labels.variables] += way.elements;
    } else if (way.gradient_elements > 0) {
      elements[labels.gradients] += way.gradient_elements;
    }
    announcements += kinds;
  }
  if (announcements == 0) return;
  prediction.AddTraffic(Operation::kSend, kAnnouncementLabel,
                        static_cast<double>(announcements * kAnnouncementBytes),
                        CostPrediction::Often::kOnce);
  const int64_t samples = settings.samples_of_shard();
  for (const auto& [label, count] : elements) {
    const int64_t bytes = count * samples * SizeOf(settings.precision.compute);
    prediction.AddTraffic(Operation::kSend, label, token_share * static_cast<double>(bytes));
  }
}

}  // namespace lockstep
