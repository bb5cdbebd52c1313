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

StageLinks::StageLinks(LocalModel& local_model, const StagePlan& plan, Communicator& ranks)
    : rank_(local_model.rank()), plan_(plan), own_(ranks.rank()) {
  const Model& model = local_model.model();
  std::map<std::pair<int, int>, Edge> skips;
  for (int stage = 0; stage < plan.size(); ++stage) {
    if (stage + 1 < plan.size()) {
      const int64_t last = plan.stages[stage].end - 1;
      AddEdge(ranks, {.from = stage,
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
      Edge& edge = skips[{stage, to}];
      edge.from = stage;
      edge.to = to;
      edge.elements += out[i].elements;
      if (TrainsUpTo(model, out[i].from)) edge.gradient_elements += out[i].elements;
      edge.sent.push_back(i);
    }
  }
  for (int stage = 0; stage < plan.size(); ++stage) {
    const std::vector<SkipPath> in = SkipEndsOf(model, plan.stages[stage]).in;
    for (size_t i = 0; i < in.size(); ++i) {
      skips[{plan.StageOfBlock(in[i].from), stage}].taken.push_back(i);
    }
  }
  for (auto& [ends, edge] : skips) AddEdge(ranks, std::move(edge));
}

// All ranks make all groups, and keep the edges that end with them.
void StageLinks::AddEdge(Communicator& ranks, Edge edge) {
  const int from = plan_.rank_of_stage[edge.from], to = plan_.rank_of_stage[edge.to];
  const bool is_here = own_ == from || own_ == to;
  if (from == to) {
    edge.link = LinkWithinRank();
  } else {
    auto group =
        ranks.Split(is_here ? 0 : -1, own_ == from ? 0 : 1,
                    absl::StrCat(edge.is_line() ? "stages " : "skips ", edge.from, "-", edge.to));
    ThrowIfError(group.status());
    edge.group = *std::move(group);
    if (is_here) {
      edge.link = LinkRanks(*edge.group, 0, 1, edge.is_line() ? kLine : kSkips, rank_.kernels);
    }
  }
  if (is_here) edges_.push_back(std::move(edge));
}

void StageLinks::ExpectInputs(int stage, const BatchKind& kind) {
  for (Edge& edge : edges_) {
    if (edge.to == stage) edge.link->Expect(kind);
  }
}

StageVariables StageLinks::TakeInputs(int stage, const BatchKind& kind) {
  StepTimer::Scope scope(rank_.timer, Phase::kBubble);
  StageVariables inputs;
  for (Edge& edge : edges_) {
    if (edge.to != stage) continue;
    Variables variables = edge.link->Take(kind);
    if (edge.is_line()) {
      inputs.line = std::move(variables);
      continue;
    }
    for (size_t i = 0; i < variables.size(); ++i) {
      if (inputs.skips.size() <= edge.taken[i]) inputs.skips.resize(edge.taken[i] + 1);
      inputs.skips[edge.taken[i]] = std::move(variables[i]);
    }
  }
  ReleaseSent();
  return inputs;
}

void StageLinks::SendOutputs(int stage, const BatchKind& kind, const StageVariables& outputs) {
  ReleaseSent();
  for (Edge& edge : edges_) {
    if (edge.from != stage) continue;
    if (edge.is_line()) {
      edge.link->Send(kind, outputs.line);
      continue;
    }
    Variables skips;
    for (const size_t i : edge.sent) skips.push_back(outputs.skips[i]);
    edge.link->Send(kind, skips);
  }
}

void StageLinks::ExpectGradients(int stage, const BatchKind& kind) {
  for (Edge& edge : edges_) {
    if (edge.from == stage) edge.link->ExpectGradients(kind);
  }
}

StageGradients StageLinks::TakeGradients(int stage, const BatchKind& kind) {
  StepTimer::Scope scope(rank_.timer, Phase::kBubble);
  StageGradients gradients;
  for (Edge& edge : edges_) {
    if (edge.from != stage) continue;
    std::vector<Tensor> taken = edge.link->TakeGradients(kind);
    if (edge.is_line()) {
      gradients.line = std::move(taken);
      continue;
    }
    for (size_t i = 0; i < taken.size(); ++i) {
      if (gradients.skips.size() <= edge.sent[i]) gradients.skips.resize(edge.sent[i] + 1);
      gradients.skips[edge.sent[i]] = std::move(taken[i]);
    }
  }
  ReleaseSent();  // the outputs that these are of, at least
  return gradients;
}

void StageLinks::SendGradients(int stage, const BatchKind& kind, const StageGradients& of_inputs) {
  ReleaseSent();
  for (Edge& edge : edges_) {
    if (edge.to != stage) continue;
    if (edge.is_line()) {
      edge.link->SendGradients(kind, of_inputs.line);
      continue;
    }
    std::vector<Tensor> skips;
    for (const size_t i : edge.taken) skips.push_back(of_inputs.skips[i]);
    edge.link->SendGradients(kind, skips);
  }
}

void StageLinks::ReleaseSent() {
  for (Edge& edge : edges_) edge.link->ReleaseSent();
}

void StageLinks::AwaitSent() {
  if (edges_.empty()) return;  // one stage waits for no other
  StepTimer::Scope scope(rank_.timer, Phase::kBubble);
  for (Edge& edge : edges_) edge.link->AwaitSent();
}

void StageLinks::AddTraffic(const Settings& settings, double token_fraction,
                            CostPrediction& prediction) const {
  const int64_t kinds = settings.largest_micro_batch() == settings.smallest_micro_batch() ? 1 : 2;
  int64_t announcements = 0;
  std::map<std::string, int64_t> elements;  // of a sample, by label
  for (const Edge& edge : edges_) {
    if (edge.group == nullptr) continue;
    const bool sends_variables = plan_.rank_of_stage[edge.from] == own_;
    const LinkLabels& labels = edge.is_line() ? kLine : kSkips;
    if (sends_variables) {
      elements[labels.variables] += edge.elements;
    } else if (edge.gradient_elements > 0) {
      elements[labels.gradients] += edge.gradient_elements;
    }
    announcements += kinds;
  }
  if (announcements == 0) return;
  prediction.AddTraffic(Operation::kSend, kAnnouncementLabel,
                        static_cast<double>(announcements * kAnnouncementBytes),
                        CostPrediction::Often::kOnce);
  const int64_t samples = settings.samples_of_shard() * settings.shards_of_rank();
  for (const auto& [label, count] : elements) {
    const int64_t bytes = count * samples * SizeOf(settings.precision.compute);
    prediction.AddTraffic(Operation::kSend, label, token_fraction * static_cast<double>(bytes));
  }
}

}  // namespace lockstep
