#include "foresight/step_time.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/comm/mesh_shape.h"
#include "core/comm/operation.h"
#include "core/comm/signature.h"
#include "foresight/device_time.h"
#include "foresight/kernel_tensors.h"
#include "foresight/measured_time.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr absl::string_view kOptimizer = "UpdateParameters";
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

bool IsForward(const StepPlace& place) {
  return place.kind == StepPlace::Kind::kAction &&
         static_cast<ActionKind>(place.action) == ActionKind::kForward;
}
bool IsBackward(const StepPlace& place) {
  return place.kind == StepPlace::Kind::kAction &&
         static_cast<ActionKind>(place.action) != ActionKind::kForward;
}

}  // namespace

// Turns recorded tasks into what is priced and walked.
class StepTime::Lowering {
 public:
  Lowering(StepTime& step, const Dialect& dialect, const Cluster& cluster)
      : step_(step),
        run_(*step.run_),
        mesh_(run_.settings.mesh),
        dialect_(dialect),
        devices_(std::min(cluster.node.devices, mesh_.ranks())),
        is_measured_(!cluster.measured.empty()) {}

  absl::Status Lower() {
    FindContext();
    for (int pp = 0; pp < mesh_.pp; ++pp) {
      RankPlan& plan = step_.ranks_.emplace_back();
      plan.order = run_.Stretches(pp);
      for (const RecordedCall& call : run_.steps[pp].calls) plan.calls.push_back(Plan(pp, call));
      for (const RecordedStretch& stretch : run_.steps[pp].stretches) {
        LS_ASSIGN_OR_RETURN(plan.stretches.emplace_back(),
                            Items(run_.steps[pp], stretch, plan.calls));
      }
    }
    step_.channels_ = static_cast<int>(channels_.size());
    return absl::OkStatus();
  }

 private:
  bool IsAlongTp(const RecordedCall& call) const { return call.group->name == Name(MeshAxis::kTp); }

  void FindContext() {
    DialectContext& context = step_.context_;
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
    const auto [at, is_new] = indices_.try_emplace(priced, static_cast<int>(step_.priced_.size()));
    if (is_new) step_.priced_.push_back(priced);
    return at->second;
  }

  absl::StatusOr<std::vector<Item>> Items(const RecordedStep& step, const RecordedStretch& stretch,
                                          const std::vector<CallPlan>& calls) {
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
          priced.repeats = step_.priced_[items.back().index].repeats + 1;
          items.pop_back();
        }
        last_kernel = task.index;
        LS_ASSIGN_OR_RETURN(const int index, PricedIndex(priced));
        // On a machine that was measured, what a run books as its optimizer's time: the norm too.
        const bool is_optimizer = kernel == kOptimizer || (kernel == kNorm && is_measured_);
        items.push_back({Item::Kind::kKernel, is_backward, is_optimizer, index});
        continue;
      }
      if (calls[task.index].kind == CallPlan::Kind::kFree) continue;
      last_kernel = -1;
      const bool is_waited_for =
          i + 1 < stretch.tasks.size() &&
          stretch.tasks[i + 1] == RecordedTask{RecordedTask::Kind::kWait, task.index};
      if (task.kind == RecordedTask::Kind::kCall && is_waited_for &&
          calls[task.index].kind == CallPlan::Kind::kLocal && IsAlongTp(step.calls[task.index])) {
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
    DialectContext context = step_.context_;
    if (in_backward) context.recomputed.clear();
    return context;
  }

  int LabelOf(const std::string& label) {
    std::vector<std::string>& labels = step_.labels_;
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

  CallPlan Plan(int pp, const RecordedCall& call) {
    const int rank = mesh_.RankAt({.pp = pp});
    const GroupInfo& group = *call.group;
    CallPlan plan;
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
    if (IsPointToPoint(signature.operation)) {
      const int peer = group.members[signature.root];
      const bool sends = signature.operation == Operation::kSend;
      plan.kind = sends ? CallPlan::Kind::kSend : CallPlan::Kind::kRecv;
      plan.channel = ChannelOf(group.name, sends ? rank : peer, sends ? peer : rank, call.label);
      plan.within_node = node_of(rank) == node_of(peer);
      plan.placement.at_once = std::min(devices_, ranks_of_stage);
      if (dialect_.divides_messages() && step_.context_.sequence_ranks == 1 &&
          absl::StartsWith(group.name, "stages ")) {
        plan.bytes /= mesh_.tp;
      }
      return plan;
    }
    const auto at_places = std::count_if(
        group.members.begin(), group.members.end(),
        [&](int member) { return mesh_.RankAt({.pp = mesh_.CoordinateOf(member).pp}) == member; });
    plan.kind = at_places > 1 ? CallPlan::Kind::kMeeting : CallPlan::Kind::kLocal;
    if (at_places > 1) plan.channel = ChannelOf(group.name, -1, -1, "");
    plan.placement = {
        .ranks = group.size(), .per_node = beside, .at_once = std::max(1, devices_ / beside)};
    return plan;
  }

  StepTime& step_;
  const RecordedRun& run_;
  const MeshShape& mesh_;
  const Dialect& dialect_;
  const int devices_;  // of a node
  const bool is_measured_;
  absl::flat_hash_map<Priced, int> indices_;
  std::map<std::tuple<std::string, int, int, std::string>, int> channels_;
};

namespace {

// Kernels of one direction (forward or backward) that a device runs one after the other, while its
// host launches them:
//
//   host    seconds to launch them all;  device: seconds to run them all
//   gaps    seconds by which kernels are shorter than their launch
//
// Where the host is the slower, its time counts. Else the device's, and the share
// `visible_gaps` of the gaps, which the lead of the host does not hide. Ranks come late to each
// collective: by `steady_skew` for each doubling of their number; and by `skew`, of which the less
// is seen the farther the device lags behind the host.
class KernelQueue {
 public:
  explicit KernelQueue(const Dialect& dialect)
      : forward_(dialect.Fitted("host_forward")),
        backward_(dialect.Fitted("host_backward")),
        visible_(dialect.Fitted("visible_gaps")),
        skew_(dialect.Fitted("skew")),
        steady_skew_(dialect.Fitted("steady_skew")) {}

  void Kernel(double seconds, bool is_backward) {
    Add(seconds, is_backward ? backward_ : forward_);
  }
  // `share`: 1 for an all-reduce, and 1/2 for a reduce-scatter or an all-gather, which do half of
  // its work.
  void Collective(double seconds, int ranks, double share, bool is_backward) {
    Add(seconds, is_backward ? backward_ : forward_);
    steady_late_ += share * steady_skew_ * std::log2(ranks);
    late_ += share * skew_;
  }
  // The host is busy with something else.
  void Host(double seconds) {
    host_ += seconds;
    gaps_ += seconds;
  }
  // What a collective takes beside its own time where nothing hides it.
  double Beside(int ranks, double share) const {
    return share * (steady_skew_ * std::log2(ranks) + skew_);
  }

  // Seconds of what is in the queue, which is empty then.
  double Take() {
    double seconds = 0;
    if (device_ > 0) {
      const double late = steady_late_ + late_ * std::min(1.0, 3 * host_ / device_);
      seconds = std::max(host_, device_ + late + visible_ * gaps_);
    }
    host_ = device_ = gaps_ = late_ = steady_late_ = 0;
    return seconds;
  }

 private:
  void Add(double seconds, double launch) {
    host_ += launch;
    device_ += seconds;
    gaps_ += std::max(0.0, launch - seconds);
  }

  const double forward_, backward_, visible_, skew_, steady_skew_;
  double host_ = 0, device_ = 0, gaps_ = 0, late_ = 0, steady_late_ = 0;
};

}  // namespace

// All ranks along pp go through their stretches.
class StepTime::Walk {
 public:
  Walk(const StepTime& step, const std::vector<KernelCost>& costs, const Dialect& dialect,
       const Cluster& cluster, const CommTime& network, bool with_timeline)
      : step_(step),
        costs_(costs),
        dialect_(dialect),
        network_(network),
        // Ranks of a machine that was measured move data with the cores that compute.
        overlaps_(dialect.overlaps() && cluster.measured.empty()),
        with_timeline_(with_timeline),
        message_seconds_(dialect.Fitted("message_seconds")),
        channels_(step.channels_) {
    const DeviceTime device(cluster);
    const Settings& settings = step.run_->settings;
    const MeasuredKernelTime measured(cluster.measured, settings.mesh.ranks(),
                                      static_cast<int>(settings.threads));
    seconds_.resize(costs.size());
    for (size_t i = 0; i < costs.size(); ++i) {
      const auto seconds = measured.Seconds(step.priced_[i].call, WorkOf(costs[i]));
      if (seconds) {
        seconds_[i].push_back(*seconds);
        continue;
      }
      // A device of a machine that was measured is a core.
      const double devices = cluster.measured.empty() ? 1 : static_cast<double>(settings.threads);
      for (const DeviceKernel& kernel : costs[i].kernels) {
        seconds_[i].push_back(device.Seconds(kernel) / devices);
      }
    }
    for (const RankPlan& plan : step.ranks_) {
      Rank& rank = ranks_.emplace_back();
      rank.plan = &plan;
      rank.pending.resize(plan.calls.size());
      for (const CallPlan& call : plan.calls) {
        rank.call_seconds.push_back(SecondsOf(call));
        if (call.kind == CallPlan::Kind::kMeeting && rank.met.emplace(call.channel, 0).second) {
          ++channels_[call.channel].members;
        }
      }
      rank.exposed.assign(step.labels_.size(), 0.0);
      rank.folded.resize(plan.stretches.size());
      for (size_t i = 0; i < plan.stretches.size(); ++i) {
        rank.folded[i] = Fold(plan.stretches[i], rank.call_seconds, plan.calls);
      }
    }
  }

  StepEstimate Run() {
    std::vector<int> ready;
    for (int rank = static_cast<int>(ranks_.size()) - 1; rank >= 0; --rank) ready.push_back(rank);
    size_t finished = 0;
    while (!ready.empty()) {
      const int rank = ready.back();
      ready.pop_back();
      if (GoOn(rank, ready)) ++finished;
    }
    CHECK_EQ(finished, ranks_.size()) << "recorded stages wait for each other";
    StepEstimate estimate = {.labels = step_.labels_};
    for (Rank& rank : ranks_) {
      estimate.seconds = std::max(estimate.seconds, rank.now);
      for (size_t label = 0; label < step_.labels_.size(); ++label) {
        if (rank.exposed[label] > 0) {
          rank.estimate.exposed[step_.labels_[label]] = rank.exposed[label];
        }
      }
      estimate.ranks.push_back(std::move(rank.estimate));
    }
    return estimate;
  }

 private:
  struct Op {
    enum class Kind : uint8_t { kCompute, kOptimizer, kBegin, kWait };
    Kind kind;
    double seconds = 0;
    int call = 0;
  };
  struct Folded {
    std::vector<Op> operations;
    std::vector<double> exposed;  // within compute, by label
  };
  // A call that was begun.
  struct Pending {
    double seconds = 0;  // of a local one: when it ends; of one that waits to begin: unused
    size_t number = 0;   // of a message or a meeting, in its channel
  };
  struct Queue {
    std::vector<Pending> all;
    size_t first = 0;
  };
  struct Rank {
    const RankPlan* plan = nullptr;
    std::vector<Folded> folded;
    std::vector<double> call_seconds;
    std::map<int, size_t> met;          // how often, by channel
    std::vector<Queue> pending;         // by call
    size_t stretch = 0, operation = 0;  // where it is
    double now = 0;
    double stream = 0;            // when the stream of collectives is free
    std::vector<double> exposed;  // by label
    RankEstimate estimate;
  };
  struct Channel {
    std::vector<double> begins, ends;  // of messages; of meetings, when the last member came
    std::vector<int> came;
    size_t received = 0;
    int members = 0;
    double free = 0;
    std::vector<int> waiting;  // ranks
  };

  double SecondsOf(const CallPlan& call) const {
    switch (call.kind) {
      case CallPlan::Kind::kFree:
      case CallPlan::Kind::kRecv:
        return 0;
      case CallPlan::Kind::kSend:
        return network_.Message(call.bytes, call.within_node, call.placement.at_once);
      case CallPlan::Kind::kLocal:
      case CallPlan::Kind::kMeeting:
        return network_.Collective(call.operation, call.bytes, call.placement);
    }
    return 0;
  }

  // Few numbers instead of many tasks.
  Folded Fold(const std::vector<Item>& items, const std::vector<double>& call_seconds,
              const std::vector<CallPlan>& calls) const {
    Folded folded = {.operations = {}, .exposed = std::vector<double>(step_.labels_.size(), 0.0)};
    KernelQueue queue(dialect_);
    double compute = 0;
    bool queue_is_backward = false, is_apart = false;
    const auto end_compute = [&] {
      compute += queue.Take();
      if (compute > 0) {
        folded.operations.push_back({Op::Kind::kCompute, compute});
        compute = 0;
      }
    };
    for (const Item& item : items) {
      if (item.kind == Item::Kind::kBegin || item.kind == Item::Kind::kWait) {
        end_compute();
        folded.operations.push_back(
            {item.kind == Item::Kind::kBegin ? Op::Kind::kBegin : Op::Kind::kWait, 0, item.index});
        continue;
      }
      if (item.is_backward != queue_is_backward) compute += queue.Take();
      queue_is_backward = item.is_backward;
      if (item.kind == Item::Kind::kBlocking) {
        const double seconds = call_seconds[item.index];
        folded.exposed[calls[item.index].label] += seconds;
        const CallPlan& call = calls[item.index];
        const double share = call.operation == Operation::kAllReduce ? 1 : 0.5;
        if (is_apart) {
          compute += seconds + queue.Beside(call.placement.ranks, share);
        } else {
          queue.Collective(seconds, call.placement.ranks, share, item.is_backward);
        }
        continue;
      }
      const KernelCost& cost = costs_[item.index];
      if (item.is_optimizer) {
        end_compute();
        double seconds = cost.host_seconds;
        for (const double kernel : seconds_[item.index]) seconds += kernel;
        folded.operations.push_back({Op::Kind::kOptimizer, seconds});
        continue;
      }
      is_apart = cost.apart;
      if (is_apart) {
        compute += cost.host_seconds;
        for (const double kernel : seconds_[item.index]) compute += kernel;
        continue;
      }
      if (cost.host_seconds > 0) queue.Host(cost.host_seconds);
      for (const double kernel : seconds_[item.index]) queue.Kernel(kernel, item.is_backward);
    }
    end_compute();
    return folded;
  }

  void Spend(Rank& rank, Interval::Kind kind, double until, int label = -1) {
    if (until <= rank.now) return;
    const double seconds = until - rank.now;
    switch (kind) {
      case Interval::Kind::kCompute:
        rank.estimate.compute += seconds;
        break;
      case Interval::Kind::kOptimizer:
        rank.estimate.optimizer += seconds;
        break;
      case Interval::Kind::kBubble:
        rank.estimate.bubble += seconds;
        break;
      case Interval::Kind::kCommunication:
        rank.exposed[label] += seconds;
        break;
    }
    if (with_timeline_) {
      std::vector<Interval>& timeline = rank.estimate.timeline;
      if (!timeline.empty() && timeline.back().kind == kind && timeline.back().label == label) {
        timeline.back().end = until;
      } else {
        timeline.push_back({kind, rank.now, until, label});
      }
    }
    rank.now = until;
  }

  // Goes on until the rank has to wait for another; true at its end.
  bool GoOn(int index, std::vector<int>& ready) {
    Rank& rank = ranks_[index];
    for (; rank.stretch < rank.plan->order.size(); ++rank.stretch, rank.operation = 0) {
      const Folded& folded = rank.folded[rank.plan->order[rank.stretch]];
      if (with_timeline_ && rank.estimate.stretch_begins.size() == rank.stretch) {
        rank.estimate.stretch_begins.push_back(rank.now);
      }
      for (; rank.operation < folded.operations.size(); ++rank.operation) {
        const Op& operation = folded.operations[rank.operation];
        switch (operation.kind) {
          case Op::Kind::kCompute:
            Spend(rank, Interval::Kind::kCompute, rank.now + operation.seconds);
            break;
          case Op::Kind::kOptimizer:
            Spend(rank, Interval::Kind::kOptimizer, rank.now + operation.seconds);
            break;
          case Op::Kind::kBegin:
            Begin(rank, operation.call, ready);
            break;
          case Op::Kind::kWait:
            if (!Wait(index, operation.call)) return false;
            break;
        }
      }
      // What stands among the kernels counts as communication, not as compute.
      for (size_t label = 0; label < folded.exposed.size(); ++label) {
        rank.exposed[label] += folded.exposed[label];
        rank.estimate.compute -= folded.exposed[label];
      }
    }
    return true;
  }

  void Wake(Channel& channel, std::vector<int>& ready) {
    ready.insert(ready.end(), channel.waiting.begin(), channel.waiting.end());
    channel.waiting.clear();
  }

  void Begin(Rank& rank, int index, std::vector<int>& ready) {
    const CallPlan& call = rank.plan->calls[index];
    Pending pending;
    switch (call.kind) {
      case CallPlan::Kind::kFree:
        return;
      case CallPlan::Kind::kLocal:
        if (overlaps_) {
          pending.seconds = rank.stream =
              std::max(rank.now, rank.stream) + rank.call_seconds[index];
        }
        break;
      case CallPlan::Kind::kSend: {
        Channel& channel = channels_[call.channel];
        Spend(rank, Interval::Kind::kCommunication, rank.now + message_seconds_, call.label);
        pending.number = channel.ends.size();
        channel.begins.push_back(rank.now);
        channel.free = std::max(rank.now, channel.free) + rank.call_seconds[index];
        channel.ends.push_back(channel.free);
        Wake(channel, ready);
        break;
      }
      case CallPlan::Kind::kRecv:
        pending.number = channels_[call.channel].received++;
        break;
      case CallPlan::Kind::kMeeting: {
        Channel& channel = channels_[call.channel];
        pending.number = rank.met[call.channel]++;
        if (channel.came.size() <= pending.number) {
          channel.came.push_back(0);
          channel.begins.push_back(0);
          channel.ends.push_back(0);
        }
        double& begin = channel.begins[pending.number];
        begin = std::max(begin, rank.now);
        channel.ends[pending.number] = begin + rank.call_seconds[index];
        if (++channel.came[pending.number] == channel.members) Wake(channel, ready);
        break;
      }
    }
    rank.pending[index].all.push_back(pending);
  }

  // False if the rank has to stop here until somebody wakes it.
  bool Wait(int index, int call_index) {
    Rank& rank = ranks_[index];
    const CallPlan& call = rank.plan->calls[call_index];
    Queue& pending = rank.pending[call_index];
    if (pending.first == pending.all.size()) return true;  // it was begun before the step
    const Pending& first = pending.all[pending.first];
    if (call.kind == CallPlan::Kind::kLocal) {
      double end = first.seconds;
      if (!overlaps_) {
        end = rank.stream = std::max(rank.now, rank.stream) + rank.call_seconds[call_index];
      }
      Spend(rank, Interval::Kind::kCommunication, end, call.label);
    } else {
      Channel& channel = channels_[call.channel];
      const bool is_known = call.kind == CallPlan::Kind::kMeeting
                                ? channel.came[first.number] == channel.members
                                : first.number < channel.ends.size();
      if (!is_known) {
        channel.waiting.push_back(index);
        return false;
      }
      Spend(rank, Interval::Kind::kBubble, channel.begins[first.number]);
      const double busy = call.kind == CallPlan::Kind::kRecv ? message_seconds_ : 0;
      Spend(rank, Interval::Kind::kCommunication,
            std::max(rank.now, channel.ends[first.number]) + busy, call.label);
    }
    ++pending.first;
    return true;
  }

  const StepTime& step_;
  const std::vector<KernelCost>& costs_;
  const Dialect& dialect_;
  const CommTime& network_;
  const bool overlaps_;  // collectives run beside kernels
  const bool with_timeline_;
  const double message_seconds_;
  std::vector<std::vector<double>> seconds_;  // by cost and kernel
  std::vector<Rank> ranks_;
  std::vector<Channel> channels_;
};

absl::StatusOr<StepTime> StepTime::Create(std::shared_ptr<const RecordedRun> run,
                                          const Dialect& dialect, const Cluster& cluster) {
  const int ranks = run->settings.mesh.ranks();
  if (ranks > cluster.devices()) {
    return InvalidArgument("cluster ", cluster.name, " has ", cluster.devices(),
                           " devices, and the mesh ", ranks, " ranks");
  }
  StepTime step;
  step.run_ = std::move(run);
  LS_RETURN_IF_ERROR(Lowering(step, dialect, cluster).Lower());
  return step;
}

absl::StatusOr<std::vector<KernelCost>> StepTime::Costs(const Dialect& dialect) const {
  DialectContext nothing_recomputed = context_;
  nothing_recomputed.recomputed.clear();
  std::vector<KernelCost> costs;
  costs.reserve(priced_.size());
  for (const Priced& priced : priced_) {
    LS_ASSIGN_OR_RETURN(
        costs.emplace_back(),
        dialect.CostOf(priced.call, priced.in_backward ? nothing_recomputed : context_,
                       priced.repeats));
  }
  return costs;
}

StepEstimate StepTime::Estimate(const std::vector<KernelCost>& costs, const Dialect& dialect,
                                const Cluster& cluster, const CommTime& network,
                                bool with_timeline) const {
  return Walk(*this, costs, dialect, cluster, network, with_timeline).Run();
}

absl::StatusOr<StepEstimate> StepTime::Estimate(const Dialect& dialect, const Cluster& cluster,
                                                const CommTime& network, bool with_timeline) const {
  LS_ASSIGN_OR_RETURN(const std::vector<KernelCost> costs, Costs(dialect));
  return Estimate(costs, dialect, cluster, network, with_timeline);
}

DialectMemory StepTime::Memory(const std::vector<KernelCost>& costs, const Dialect& dialect,
                               int pp) const {
  const RecordedStep& step = run_->steps[pp];
  const RankPlan& plan = ranks_[pp];
  DialectMemory memory;
  for (const KernelCall& kernel : step.kernels) {
    if (kernel.kernel != kOptimizer) continue;
    const size_t stride = kernel.tensors.empty() ? 1 : UpdateStride();
    for (size_t i = 1; i < kernel.tensors.size(); i += stride) {
      const TensorKind& parameter = kernel.tensors[i];
      const bool is_table = parameter.shape.rank() == 2 && context_.vocabulary > 0 &&
                            static_cast<double>(parameter.shape[0]) == context_.vocabulary;
      (is_table ? memory.embeddings : memory.layers) +=
          dialect.parameter_bytes() * static_cast<double>(parameter.elements());
    }
  }
  // By stage: what forward keeps, of layers and of the rest, and what backward needs anew.
  struct Kept {
    double layers = 0, others = 0, recomputed = 0;
  };
  std::map<int, Kept> kept;
  for (size_t i = 0; i < plan.stretches.size(); ++i) {
    const StepPlace& place = step.stretches[i].place;
    if (!IsForward(place) && !IsBackward(place)) continue;
    Kept of_stretch;
    double since_backward = 0;
    for (const Item& item : plan.stretches[i]) {
      if (item.kind != Item::Kind::kKernel) continue;
      const KernelCost& cost = costs[item.index];
      if (IsForward(place)) {
        (cost.apart ? of_stretch.others : of_stretch.layers) += cost.kept_bytes;
      } else {
        since_backward = item.is_backward ? 0 : since_backward + cost.kept_bytes;
        of_stretch.recomputed = std::max(of_stretch.recomputed, since_backward);
      }
    }
    Kept& of_stage = kept[place.stage];
    of_stage.layers = std::max(of_stage.layers, of_stretch.layers);
    of_stage.others = std::max(of_stage.others, of_stretch.others);
    of_stage.recomputed = std::max(of_stage.recomputed, of_stretch.recomputed);
  }
  Kept live;
  double most = 0;
  for (const Action& action : run_->schedule.ranks[pp]) {
    const Kept& of_stage = kept[action.stage];
    const double sign = action.kind == ActionKind::kForward ? 1
                        : EndsBackward(action.kind)         ? -1
                                                            : 0;
    const double recomputed = action.kind == ActionKind::kForward ? 0 : of_stage.recomputed;
    if (sign > 0) {
      live.layers += of_stage.layers;
      live.others += of_stage.others;
    }
    if (live.layers + live.others + recomputed > most) {
      most = live.layers + live.others + recomputed;
      memory.layer_activations = live.layers;
      memory.other_activations = live.others;
      memory.recomputed = recomputed;
    }
    if (sign < 0) {
      live.layers -= of_stage.layers;
      live.others -= of_stage.others;
    }
  }
  return memory;
}

}  // namespace lockstep
