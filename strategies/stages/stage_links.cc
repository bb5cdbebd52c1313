#include "strategies/stages/stage_links.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

// What the traffic of an edge is called in the ledger.
struct EdgeLabels {
  const char* variables;
  const char* gradients;
};
constexpr EdgeLabels kLine = {"activations", "activation gradients"};
constexpr EdgeLabels kSkips = {"skips", "skip gradients"};
constexpr char kLoss[] = "loss";

RoutedTensors Routed(const Variables& variables) {
  RoutedTensors tensors;
  for (const Variable& variable : variables) {
    tensors.push_back({.tensor = variable.value, .needs_gradient = variable.needs_gradient()});
  }
  return tensors;
}

RoutedTensors Routed(const std::vector<Tensor>& gradients) {
  RoutedTensors tensors;
  for (const Tensor& gradient : gradients) tensors.push_back({.tensor = gradient});
  return tensors;
}

// As inputs of a tape of their own.
Variables VariablesOf(RoutedTensors tensors) {
  Variables variables;
  for (RoutedTensor& routed : tensors) {
    variables.emplace_back(std::move(routed.tensor),
                           routed.needs_gradient ? std::make_shared<GradientSlot>() : nullptr);
  }
  return variables;
}

std::vector<Tensor> TensorsOf(RoutedTensors routed) {
  std::vector<Tensor> tensors;
  for (RoutedTensor& one : routed) tensors.push_back(std::move(one.tensor));
  return tensors;
}

}  // namespace

StageLinks::StageLinks(LocalModel& local_model, const StagePlan& plan, Communicator& ranks)
    : rank_(local_model.rank()), plan_(plan), own_(ranks.rank()) {
  const Model& model = local_model.model();
  const std::vector<ModelTensor>& tensors = local_model.layout().tensors();
  const auto trained = std::find_if(tensors.begin(), tensors.end(), [](const ModelTensor& tensor) {
    return !tensor.is_frozen && !tensor.statistic;
  });
  // What blocks hand on needs a gradient if something in them or before them is trained.
  const auto needs_gradient = [&](int64_t block) {
    return trained != tensors.end() && trained->block <= block;
  };
  std::map<std::pair<int, int>, Edge> skips;
  for (int stage = 0; stage < plan.size(); ++stage) {
    if (stage + 1 < plan.size()) {
      const int64_t last = plan.stages[stage].end - 1;
      const int64_t elements = model.blocks[last]->cost.output_elements;
      AddEdge(ranks, {.from = {stage},
                      .to = {stage + 1},
                      .elements = elements,
                      .gradient_elements = needs_gradient(last) ? elements : 0});
    }
    const std::vector<SkipPath> out = SkipEndsOf(model, plan.stages[stage]).out;
    for (size_t i = 0; i < out.size(); ++i) {
      const int to = plan.StageOfBlock(out[i].to);
      Edge& edge = skips[{stage, to}];
      edge.from.stage = stage;
      edge.to.stage = to;
      edge.elements += out[i].elements;
      if (needs_gradient(out[i].from)) edge.gradient_elements += out[i].elements;
      edge.from.skips.push_back(i);
    }
  }
  for (int stage = 0; stage < plan.size(); ++stage) {
    const std::vector<SkipPath> in = SkipEndsOf(model, plan.stages[stage]).in;
    for (size_t i = 0; i < in.size(); ++i) {
      skips[{plan.StageOfBlock(in[i].from), stage}].to.skips.push_back(i);
    }
  }
  for (auto& [ends, edge] : skips) AddEdge(ranks, std::move(edge));
}

// All ranks make all groups, and keep the edges that end with them.
void StageLinks::AddEdge(Communicator& ranks, Edge edge) {
  const int from = plan_.rank_of_stage[edge.from.stage], to = plan_.rank_of_stage[edge.to.stage];
  const bool is_here = own_ == from || own_ == to;
  if (from != to) {
    const auto choice_of = [&](int rank) -> Communicator::Choice {
      return {rank == from || rank == to ? 0 : -1, rank == from ? 0 : 1};
    };
    auto group = ranks.SplitBy(choice_of, absl::StrCat(edge.is_line() ? "stages " : "skips ",
                                                       edge.from.stage, "-", edge.to.stage));
    ThrowIfError(group.status());
    edge.group = *std::move(group);
    if (edge.group != nullptr) ThrowIfError(edge.group->ConnectRoutes({{0, 1}, {1, 0}}));
    const EdgeLabels& labels = edge.is_line() ? kLine : kSkips;
    if (own_ == from) {
      edge.variables.start.emplace(*edge.group, 1, labels.variables, rank_.kernels);
      edge.gradients.end.emplace(*edge.group, 1, labels.gradients, rank_.kernels);
    } else if (own_ == to) {
      edge.variables.end.emplace(*edge.group, 0, labels.variables, rank_.kernels);
      edge.gradients.start.emplace(*edge.group, 0, labels.gradients, rank_.kernels);
    }
  }
  if (is_here) edges_.push_back(std::move(edge));
}

void StageLinks::Channel::Send(const BatchKind& kind, RoutedTensors tensors) {
  if (start) {
    start->Send(kind, std::move(tensors));
  } else {
    here.push_back(std::move(tensors));
  }
}

RoutedTensors StageLinks::Channel::Take(const BatchKind& kind) {
  if (end) return end->Receive(kind);
  CHECK(!here.empty()) << "a stage runs before the one whose results it needs";
  RoutedTensors first = std::move(here.front());
  here.pop_front();
  return first;
}

void StageLinks::Expect(int stage, const BatchKind& kind, End Edge::*end, Channel Edge::*channel) {
  for (Edge& edge : edges_) {
    std::optional<RouteEnd>& route = (edge.*channel).end;
    if ((edge.*end).stage == stage && route) route->Expect(kind);
  }
}

StageLinks::Lists StageLinks::Take(int stage, const BatchKind& kind, End Edge::*end,
                                   Channel Edge::*channel) {
  StepTimer::Scope scope(rank_.timer, Phase::kBubble);
  Lists lists;
  for (Edge& edge : edges_) {
    const auto& [at, skips] = edge.*end;
    if (at != stage) continue;
    RoutedTensors tensors = (edge.*channel).Take(kind);
    if (edge.is_line()) {
      lists.line = std::move(tensors);
      continue;
    }
    for (size_t i = 0; i < tensors.size(); ++i) {
      if (lists.skips.size() <= skips[i]) lists.skips.resize(skips[i] + 1);
      lists.skips[skips[i]] = std::move(tensors[i]);
    }
  }
  // Where gradients came, the outputs that these are of have arrived, at least.
  GiveBackSent(&RouteStart::ReleaseSent);
  return lists;
}

void StageLinks::Send(int stage, const BatchKind& kind, End Edge::*end, Channel Edge::*channel,
                      const Lists& lists) {
  GiveBackSent(&RouteStart::ReleaseSent);
  for (Edge& edge : edges_) {
    const auto& [at, skips] = edge.*end;
    if (at != stage) continue;
    RoutedTensors tensors = edge.is_line() ? lists.line : RoutedTensors();
    for (const size_t i : skips) tensors.push_back(lists.skips[i]);
    (edge.*channel).Send(kind, std::move(tensors));
  }
}

StageVariables StageLinks::TakeInputs(int stage, const BatchKind& kind) {
  Lists lists = Take(stage, kind, &Edge::to, &Edge::variables);
  return {VariablesOf(std::move(lists.line)), VariablesOf(std::move(lists.skips))};
}

void StageLinks::SendOutputs(int stage, const BatchKind& kind, const StageVariables& outputs) {
  Send(stage, kind, &Edge::from, &Edge::variables, {Routed(outputs.line), Routed(outputs.skips)});
}

StageGradients StageLinks::TakeGradients(int stage, const BatchKind& kind) {
  Lists lists = Take(stage, kind, &Edge::from, &Edge::gradients);
  return {TensorsOf(std::move(lists.line)), TensorsOf(std::move(lists.skips))};
}

void StageLinks::SendGradients(int stage, const BatchKind& kind, const StageGradients& of_inputs) {
  Send(stage, kind, &Edge::to, &Edge::gradients, {Routed(of_inputs.line), Routed(of_inputs.skips)});
}

void StageLinks::GiveBackSent(void (RouteStart::*give_back)()) {
  StepRecorder* const recorder = rank_.recorder;
  if (recorder != nullptr) recorder->BeginGivingBack();
  for (Edge& edge : edges_) {
    for (Channel* channel : {&edge.variables, &edge.gradients}) {
      if (channel->start) ((*channel->start).*give_back)();
    }
  }
  if (recorder != nullptr) recorder->EndGivingBack();
}

void StageLinks::AwaitSent() {
  if (edges_.empty()) return;  // one stage waits for no other
  StepTimer::Scope scope(rank_.timer, Phase::kBubble);
  GiveBackSent(&RouteStart::AwaitSent);
}

void StageLinks::AddTraffic(const Settings& settings, double token_fraction,
                            CostPrediction& prediction) const {
  const int64_t kinds = settings.largest_micro_batch() == settings.smallest_micro_batch() ? 1 : 2;
  int64_t announcements = 0;
  std::map<std::string, int64_t> elements;  // of a sample, by label
  for (const Edge& edge : edges_) {
    if (edge.group == nullptr) continue;
    const EdgeLabels& labels = edge.is_line() ? kLine : kSkips;
    if (edge.variables.start) {
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

double ShareLoss(LocalModel& local_model, Communicator& shards, Communicator& stages, int from) {
  double loss = local_model.has_last() ? local_model.MeanLoss(&shards) : 0;
  if (stages.size() == 1) return loss;
  StepTimer::Scope scope(local_model.rank().timer, Phase::kBubble);
  ThrowIfError(BroadcastNumbers(stages, absl::MakeSpan(&loss, 1), from, kLoss));
  return loss;
}

void AddLossTraffic(const LocalModel& local_model, const Communicator& shards,
                    const Communicator& stages, int from, CostPrediction& prediction) {
  if (local_model.has_last()) {
    prediction.AddCollective(Operation::kAllReduce, kLoss, shards.size(), sizeof(ExactSum));
  }
  if (stages.size() == 1) return;
  // Around a ring from the last stage, whose predecessor has nobody left to tell.
  const bool tells = (stages.rank() + 1) % stages.size() != from;
  prediction.AddTraffic(Operation::kBroadcast, kLoss, tells ? sizeof(double) : 0.0);
}

}  // namespace lockstep
