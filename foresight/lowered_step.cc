#include "foresight/lowered_step.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <unordered_map>

#include "absl/hash/hash.h"
#include "absl/strings/match.h"
#include "core/base/status.h"
#include "core/comm/mesh_shape.h"
#include "core/comm/signature.h"
#include "foresight/kernel_tensors.h"
#include "strategies/schedules/schedule.h"

namespace lockstep {
namespace {

constexpr absl::string_view kNorm = "SumOfSquares";
constexpr absl::string_view kEmbedding = "Embedding";
constexpr char kActivations[] = "activations";

// Whether a kernel computes gradients; nothing for those that forward and backward share, which
// belong to what came before them.
std::optional<bool> ComputesGradients(absl::string_view kernel) {
  constexpr absl::string_view kShared[] = {"Add",         "ApplyDropout", "AddBias", "AddScaled",
                                           "Scale",       "Copy",         "Fill",    "Cast",
                                           "CopyColumns", "Multiply"};
  if (std::find(std::begin(kShared), std::end(kShared), kernel) != std::end(kShared)) {
    return std::nullopt;
  }
  return absl::StrContains(kernel, "Backward") || kernel == "ColumnSums";
}

// Turns recorded tasks into what is priced and walked.
class Lowering {
 public:
  Lowering(const RecordedRun& run, const Dialect& dialect, const Cluster& cluster)
      : run_(run),
        mesh_(run.settings.mesh),
        dialect_(dialect),
        devices_(std::min(cluster.node.devices, mesh_.ranks())),
        is_measured_(!cluster.measured.empty()) {}

  absl::StatusOr<LoweredStep> Lower() {
    FindContext();
    for (int pp = 0; pp < mesh_.pp; ++pp) {
      LoweredStep::Rank& plan = step_.ranks.emplace_back();
      plan.order = run_.Stretches(pp);
      for (const RecordedCall& call : run_.steps[pp].calls) plan.calls.push_back(Plan(pp, call));
      for (const RecordedStretch& stretch : run_.steps[pp].stretches) {
        LS_ASSIGN_OR_RETURN(plan.stretches.emplace_back(),
                            Items(run_.steps[pp], stretch, plan.calls));
      }
    }
    step_.channels = static_cast<int>(channels_.size());
    return std::move(step_);
  }

 private:
  using Call = LoweredStep::Call;
  using Item = LoweredStep::Item;
  using Priced = LoweredStep::Priced;

  bool IsAlongTp(const RecordedCall& call) const { return call.group->name == Name(MeshAxis::kTp); }

  void FindContext() {
    DialectContext& context = step_.context;
    context.tp = mesh_.tp;
    context.token_leaves = static_cast<double>(run_.settings.cut.tokens);
    for (const RecordedStep& step : run_.steps) {
      for (const KernelCall& kernel : step.kernels) {
        if (kernel.kernel != kEmbedding) continue;
        for (const NamedTensor& tensor : TensorsOf(kernel)) {
          // Positions that are looked up are not the vocabulary.
          if (tensor.name == "table")
            context.vocabulary = std::max(context.vocabulary, tensor.rows);
        }
      }
      for (const RecordedCall& call : step.calls) {
        if (IsAlongTp(call) && call.signature.operation == Operation::kAllGather &&
            call.label == kActivations) {
          context.sequence_ranks = mesh_.tp;
        }
      }
      for (const RecordedStretch& stretch : step.stretches) {
        if (!IsBackward(stretch.place)) continue;
        for (const RecordedTask& task : stretch.tasks) {
          if (task.kind != RecordedTask::Kind::kKernel) continue;
          const absl::string_view kernel = WithoutLeaves(step.kernels[task.index].kernel);
          if (!ComputesGradients(kernel).value_or(true)) context.recomputed.emplace(kernel);
        }
      }
    }
  }

  absl::StatusOr<int> PricedIndex(const Priced& priced) {
    const auto [at, is_new] = indices_.try_emplace(priced, static_cast<int>(step_.priced.size()));
    if (is_new) step_.priced.push_back(priced);
    return at->second;
  }

  absl::StatusOr<std::vector<Item>> Items(const RecordedStep& step, const RecordedStretch& stretch,
                                          const std::vector<Call>& calls) {
    std::vector<Item> items;
    const bool in_backward = IsBackward(stretch.place);
    bool is_backward = in_backward;
    int32_t last_kernel = -1;
    for (size_t i = 0; i < stretch.tasks.size(); ++i) {
      const RecordedTask& task = stretch.tasks[i];
      if (task.kind == RecordedTask::Kind::kKernel) {
        Priced priced = {
            .call = step.kernels[task.index], .repeats = 1, .in_backward = in_backward};
        const absl::string_view kernel = WithoutLeaves(priced.call.kernel);
        LS_ASSIGN_OR_RETURN(const KernelCost cost,
                            dialect_.CostOf(priced.call, ContextFor(in_backward)));
        if (cost.kernels.empty() && cost.host_seconds == 0 && cost.kept_bytes == 0) continue;
        is_backward = ComputesGradients(kernel).value_or(is_backward);
        if (dialect_.merges_token_leaves() && run_.settings.cut.tokens > 1 && is_backward &&
            last_kernel == task.index) {
          priced.repeats = step_.priced[items.back().index].repeats + 1;
          items.pop_back();
        }
        last_kernel = task.index;
        LS_ASSIGN_OR_RETURN(const int index, PricedIndex(priced));
        // On a machine that was measured, what a run books as its optimizer's time: the norm too.
        const bool is_optimizer = kernel == kOptimizerKernel || (kernel == kNorm && is_measured_);
        items.push_back({Item::Kind::kKernel, is_backward, is_optimizer, index});
        continue;
      }
      if (calls[task.index].kind == Call::Kind::kFree) continue;
      last_kernel = -1;
      const bool is_waited_for =
          i + 1 < stretch.tasks.size() &&
          stretch.tasks[i + 1] == RecordedTask{RecordedTask::Kind::kWait, task.index};
      if (task.kind == RecordedTask::Kind::kCall && is_waited_for &&
          calls[task.index].kind == Call::Kind::kLocal && IsAlongTp(step.calls[task.index])) {
        items.push_back({Item::Kind::kBlocking, is_backward, false, task.index});
        ++i;
        continue;
      }
      items.push_back(
          {task.kind == RecordedTask::Kind::kCall ? Item::Kind::kBegin : Item::Kind::kWait,
           is_backward, false, task.index});
    }
    return items;
  }

  DialectContext ContextFor(bool in_backward) const {
    DialectContext context = step_.context;
    if (in_backward) context.recomputed.clear();
    return context;
  }

  int LabelOf(const std::string& label) {
    std::vector<std::string>& labels = step_.labels;
    const auto at = std::find(labels.begin(), labels.end(), label);
    if (at != labels.end()) return static_cast<int>(at - labels.begin());
    labels.push_back(label);
    return static_cast<int>(labels.size()) - 1;
  }

  // Messages have a channel for each edge, direction and label; meetings one for each group.
  int ChannelOf(const std::string& group, int from, int to, const std::string& label) {
    return channels_.try_emplace({group, from, to, label}, static_cast<int>(channels_.size()))
        .first->second;
  }

  Call Plan(int pp, const RecordedCall& call) {
    const int rank = mesh_.RankAt({.pp = pp});
    const GroupInfo& group = *call.group;
    Call plan;
    if (dialect_.free_calls().contains(call.label) || group.size() == 1) return plan;
    const Signature& signature = call.signature;
    plan.operation = signature.operation;
    plan.label = LabelOf(call.label);
    plan.bytes = static_cast<double>(PayloadBytes(signature));
    const auto node_of = [this](int member) { return member / devices_; };
    const auto beside =
        static_cast<int>(std::count_if(group.members.begin(), group.members.end(), [&](int member) {
          return node_of(member) == node_of(rank);
        }));
    const int ranks_of_stage = mesh_.ranks() / mesh_.pp;
    // A rank that does the same at the same time: all send, and the message that comes is theirs.
    const bool is_like = IsPointToPoint(signature.operation) &&
                         mesh_.CoordinateOf(group.members[signature.root]).pp == pp;
    if (is_like && signature.operation == Operation::kRecv) return plan;
    if (IsPointToPoint(signature.operation) && !is_like) {
      const int peer = group.members[signature.root];
      const bool sends = signature.operation == Operation::kSend;
      plan.kind = sends ? Call::Kind::kSend : Call::Kind::kRecv;
      plan.channel = ChannelOf(group.name, sends ? rank : peer, sends ? peer : rank, call.label);
      plan.within_node = node_of(rank) == node_of(peer);
      plan.placement.at_once = std::min(devices_, ranks_of_stage);
      if (dialect_.divides_messages() && step_.context.sequence_ranks == 1 &&
          absl::StartsWith(group.name, "stages ")) {
        plan.bytes /= mesh_.tp;
      }
      return plan;
    }
    const auto at_places = std::count_if(
        group.members.begin(), group.members.end(),
        [&](int member) { return mesh_.RankAt({.pp = mesh_.CoordinateOf(member).pp}) == member; });
    plan.kind = at_places > 1 ? Call::Kind::kMeeting : Call::Kind::kLocal;
    if (at_places > 1) plan.channel = ChannelOf(group.name, -1, -1, "");
    plan.placement = {
        .ranks = group.size(), .per_node = beside, .at_once = std::max(1, devices_ / beside)};
    return plan;
  }

  LoweredStep step_;
  const RecordedRun& run_;
  const MeshShape& mesh_;
  const Dialect& dialect_;
  const int devices_;  // of a node
  const bool is_measured_;
  std::unordered_map<Priced, int, absl::Hash<Priced>> indices_;
  std::map<std::tuple<std::string, int, int, std::string>, int> channels_;
};

}  // namespace

bool IsForward(const StepPlace& place) {
  return place.kind == StepPlace::Kind::kAction &&
         static_cast<ActionKind>(place.action) == ActionKind::kForward;
}
bool IsBackward(const StepPlace& place) {
  return place.kind == StepPlace::Kind::kAction &&
         static_cast<ActionKind>(place.action) != ActionKind::kForward;
}

absl::StatusOr<LoweredStep> LowerStep(const RecordedRun& run, const Dialect& dialect,
                                      const Cluster& cluster) {
  return Lowering(run, dialect, cluster).Lower();
}

}  // namespace lockstep
