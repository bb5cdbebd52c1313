#include "foresight/step_walk.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "foresight/device_time.h"
#include "foresight/kernel_queue.h"
#include "foresight/measured_time.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

class Walk {
 public:
  Walk(const LoweredStep& step, const Settings& settings, const std::vector<KernelCost>& costs,
       const Dialect& dialect, const Cluster& cluster, const CommTime& network, Timeline timeline)
      : step_(step),
        costs_(costs),
        dialect_(dialect),
        network_(network),
        keeps_timeline_(timeline == Timeline::kKeep),
        message_seconds_(dialect.Fitted("message_seconds")),
        channels_(step.channels) {
    const DeviceTime device(cluster);
    const MeasuredKernelTime measured(cluster.measured,
                                      std::min(settings.mesh.ranks(), cluster.node.devices),
                                      static_cast<int>(settings.threads));
    seconds_.resize(costs.size());
    for (size_t i = 0; i < costs.size(); ++i) {
      const auto seconds = measured.Seconds(step.priced[i].call, WorkOf(costs[i]));
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
    for (const LoweredStep::Rank& plan : step.ranks) {
      Rank& rank = ranks_.emplace_back();
      rank.plan = &plan;
      rank.pending.resize(plan.calls.size());
      for (const Call& call : plan.calls) {
        rank.call_seconds.push_back(SecondsOf(call));
        if (call.kind == Call::Kind::kMeeting && rank.met.emplace(call.channel, 0).second) {
          ++channels_[call.channel].members;
        }
      }
      rank.exposed.assign(step.labels.size(), 0.0);
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
    StepEstimate estimate = {.labels = step_.labels};
    for (Rank& rank : ranks_) {
      estimate.seconds = std::max(estimate.seconds, rank.now);
      for (size_t label = 0; label < step_.labels.size(); ++label) {
        if (rank.exposed[label] > 0) {
          rank.estimate.exposed[step_.labels[label]] = rank.exposed[label];
        }
      }
      estimate.ranks.push_back(std::move(rank.estimate));
    }
    return estimate;
  }

 private:
  using Call = LoweredStep::Call;
  using Item = LoweredStep::Item;

  struct Op {
    enum class Kind : uint8_t { kCompute, kOptimizer, kBegin, kWait };
    Kind kind;
    double seconds = 0;
    int call = 0;
    // Where ranks meet within compute: seconds behind the last meeting.
    std::optional<double> since_meeting = {};
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
    const LoweredStep::Rank* plan = nullptr;
    std::vector<Folded> folded;
    std::vector<double> call_seconds;
    std::map<int, size_t> met;          // how often, by channel
    std::vector<Queue> pending;         // by call
    size_t stretch = 0, operation = 0;  // where it is
    double now = 0;
    double met_at = 0;            // when it last met ranks that do the same
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

  // Whether a collective runs beside kernels.
  bool Overlaps(const Call& call) const {
    return dialect_.overlaps() && !network_.HoldsUpCompute(call.placement);
  }

  double SecondsOf(const Call& call) const {
    switch (call.kind) {
      case Call::Kind::kFree:
      case Call::Kind::kRecv:
        return 0;
      case Call::Kind::kSend:
        return network_.Message(call.bytes, call.within_node, call.placement.at_once);
      case Call::Kind::kLocal:
      case Call::Kind::kMeeting:
        return network_.Collective(call.operation, call.bytes, call.placement);
    }
    return 0;
  }

  // Few numbers instead of many tasks.
  Folded Fold(const std::vector<Item>& items, const std::vector<double>& call_seconds,
              const std::vector<Call>& calls) const {
    Folded folded = {.operations = {}, .exposed = std::vector<double>(step_.labels.size(), 0.0)};
    KernelQueue queue(dialect_);
    double compute = 0;
    double apart = 0;  // seconds of kernels since ranks met
    bool has_met = false;
    bool queue_is_backward = false, is_apart = false;
    const auto end_compute = [&] {
      compute += queue.Take();
      if (compute > 0) {
        folded.operations.push_back({.kind = Op::Kind::kCompute, .seconds = compute});
        if (has_met) folded.operations.back().since_meeting = apart;
        compute = 0;
        has_met = false;
      }
    };
    for (const Item& item : items) {
      if (item.kind == Item::Kind::kBegin || item.kind == Item::Kind::kWait) {
        end_compute();
        folded.operations.push_back(
            {item.kind == Item::Kind::kBegin ? Op::Kind::kBegin : Op::Kind::kWait, 0, item.index});
        const bool meets =
            item.kind == Item::Kind::kWait && calls[item.index].kind == Call::Kind::kLocal;
        if (meets) apart = 0;
        continue;
      }
      if (item.is_backward != queue_is_backward) compute += queue.Take();
      queue_is_backward = item.is_backward;
      if (item.kind == Item::Kind::kBlocking) {
        const Call& call = calls[item.index];
        const double seconds = call_seconds[item.index] + network_.Wait(apart, call.placement);
        apart = 0;
        has_met = true;
        folded.exposed[call.label] += seconds;
        const double share = call.operation == Operation::kAllReduce ? 1 : 0.5;
        if (is_apart) {
          compute += seconds + queue.Beside(call.placement.ranks, share);
        } else {
          queue.Collective(seconds, call.placement.ranks, share, item.is_backward);
        }
        continue;
      }
      const KernelCost& cost = costs_[item.index];
      if (!item.is_optimizer) {
        for (const double kernel : seconds_[item.index]) apart += kernel;
      } else {
        end_compute();
        double seconds = cost.host_seconds;
        for (const double kernel : seconds_[item.index]) seconds += kernel;
        apart += seconds;
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
    if (keeps_timeline_) {
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
      if (keeps_timeline_ && rank.estimate.stretch_begins.size() == rank.stretch) {
        rank.estimate.stretch_begins.push_back(rank.now);
      }
      for (; rank.operation < folded.operations.size(); ++rank.operation) {
        const Op& operation = folded.operations[rank.operation];
        switch (operation.kind) {
          case Op::Kind::kCompute:
            Spend(rank, Interval::Kind::kCompute, rank.now + operation.seconds);
            if (operation.since_meeting) rank.met_at = rank.now - *operation.since_meeting;
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
    const Call& call = rank.plan->calls[index];
    Pending pending;
    switch (call.kind) {
      case Call::Kind::kFree:
        return;
      case Call::Kind::kLocal:
        if (Overlaps(call)) {
          pending.seconds = rank.stream =
              std::max(rank.now, rank.stream) + rank.call_seconds[index];
        }
        break;
      case Call::Kind::kSend: {
        Channel& channel = channels_[call.channel];
        Spend(rank, Interval::Kind::kCommunication, rank.now + message_seconds_, call.label);
        pending.number = channel.ends.size();
        channel.begins.push_back(rank.now);
        channel.free = std::max(rank.now, channel.free) + rank.call_seconds[index];
        channel.ends.push_back(channel.free);
        Wake(channel, ready);
        break;
      }
      case Call::Kind::kRecv:
        pending.number = channels_[call.channel].received++;
        break;
      case Call::Kind::kMeeting: {
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
    const Call& call = rank.plan->calls[call_index];
    Queue& pending = rank.pending[call_index];
    if (pending.first == pending.all.size()) return true;  // it was begun before the step
    const Pending& first = pending.all[pending.first];
    if (call.kind == Call::Kind::kLocal) {
      double end = first.seconds;
      if (!Overlaps(call)) {
        end = rank.stream = std::max(rank.now, rank.stream) + rank.call_seconds[call_index] +
                            network_.Wait(rank.now - rank.met_at, call.placement);
      }
      Spend(rank, Interval::Kind::kCommunication, end, call.label);
      rank.met_at = rank.now;
    } else {
      Channel& channel = channels_[call.channel];
      const bool is_known = call.kind == Call::Kind::kMeeting
                                ? channel.came[first.number] == channel.members
                                : first.number < channel.ends.size();
      if (!is_known) {
        channel.waiting.push_back(index);
        return false;
      }
      Spend(rank, Interval::Kind::kBubble, channel.begins[first.number]);
      const double busy = call.kind == Call::Kind::kRecv ? message_seconds_ : 0;
      Spend(rank, Interval::Kind::kCommunication,
            std::max(rank.now, channel.ends[first.number]) + busy, call.label);
    }
    ++pending.first;
    return true;
  }

  const LoweredStep& step_;
  const std::vector<KernelCost>& costs_;
  const Dialect& dialect_;
  const CommTime& network_;
  const bool keeps_timeline_;
  const double message_seconds_;
  std::vector<std::vector<double>> seconds_;  // by cost and kernel
  std::vector<Rank> ranks_;
  std::vector<Channel> channels_;
};

}  // namespace

StepEstimate WalkStep(const LoweredStep& step, const Settings& settings,
                      const std::vector<KernelCost>& costs, const Dialect& dialect,
                      const Cluster& cluster, const CommTime& network, Timeline timeline) {
  return Walk(step, settings, costs, dialect, cluster, network, timeline).Run();
}

}  // namespace lockstep
