#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/comm/operation.h"
#include "foresight/cluster.h"
#include "foresight/comm_time.h"
#include "foresight/dialect.h"
#include "foresight/recorded_run.h"

namespace lockstep {

// What a rank does for a while.
struct Interval {
  enum class Kind : uint8_t {
    kCompute,        // kernels, and the collectives along tp between them
    kOptimizer,      // the update of the parameters
    kCommunication,  // waits for a collective or a message that is on its way
    kBubble,         // waits for another stage that has not begun to send
  };
  Kind kind = Kind::kCompute;
  double begin = 0, end = 0;  // seconds from the beginning of the step
  int label = -1;             // of communication: an index into StepEstimate::labels
};

// Where the step of a rank goes, in seconds.
struct RankEstimate {
  double compute = 0, optimizer = 0, bubble = 0;
  std::map<std::string, double> exposed = {};  // communication that nothing hides, by label
  // Both are empty unless asked for.
  std::vector<Interval> timeline = {};      // without gaps
  std::vector<double> stretch_begins = {};  // of RecordedRun::Stretches, from the step's beginning
};

struct StepEstimate {
  double seconds = 0;
  std::vector<RankEstimate> ranks = {};  // by place along pp
  std::vector<std::string> labels = {};
};

// Bytes of a rank in another framework than ours, which StepMemory has.
struct DialectMemory {
  double layers = 0;             // values, gradients and optimizer state, without embeddings
  double embeddings = 0;         // the same of embeddings
  double layer_activations = 0;  // the most that is kept for backward, of all micro-batches
  double other_activations = 0;  // of the loss and the logits, then
  double recomputed = 0;         // the most that a recomputed layer keeps for its backward

  double total() const {
    return layers + embeddings + layer_activations + other_activations + recomputed;
  }
};

// The time of a step, from what was recorded of it. Each stretch is folded into few numbers, and
// then all ranks along pp go through their stretches together:
//
// - Kernels run one after the other on a device, which the host feeds (`KernelQueue` in
// step_time.cc).
// - Collectives along tp that are waited for at once stand among the kernels.
// - Other collectives run on a stream of their own, one after the other; where the dialect overlaps
//   nothing, or the cluster is a machine that was measured, they begin when they are waited for.
// - Messages between stages leave in order, one at a time for each edge and direction. Sender and
//   receiver are busy with each for the dialect's `message_seconds`, if it has them.
//
// Numbers of dialect and cluster may change from call to call, as fits do, and rules may not: what
// depends on neither is worked out once.
class StepTime {
 public:
  // InvalidArgument where the dialect has no rule for what was recorded, or the cluster has too few
  // devices. Later clusters have as many devices in a node.
  static absl::StatusOr<StepTime> Create(std::shared_ptr<const RecordedRun> run,
                                         const Dialect& dialect, const Cluster& cluster);

  // What the kernels of the step are, for Estimate: depends on the dialect's numbers.
  absl::StatusOr<std::vector<KernelCost>> Costs(const Dialect& dialect) const;

  StepEstimate Estimate(const std::vector<KernelCost>& costs, const Dialect& dialect,
                        const Cluster& cluster, const CommTime& network,
                        bool with_timeline = false) const;
  absl::StatusOr<StepEstimate> Estimate(const Dialect& dialect, const Cluster& cluster,
                                        const CommTime& network, bool with_timeline = false) const;

  // Returns the bytes of the rank at `pp` along pp. The parameters that it updates itself count.
  DialectMemory Memory(const std::vector<KernelCost>& costs, const Dialect& dialect, int pp) const;

  const RecordedRun& run() const { return *run_; }

 private:
  struct Item {
    enum class Kind : uint8_t { kKernel, kBlocking, kBegin, kWait };
    Kind kind = Kind::kKernel;
    bool is_backward = false;
    bool is_optimizer = false;
    int index = 0;  // of a kernel: into the costs; else into the rank's calls
  };
  // A kernel call as a dialect has to price it.
  struct Priced {
    KernelCall call;
    int64_t repeats = 1;
    bool in_backward = false;  // nothing of it is recomputed any more

    friend bool operator==(const Priced&, const Priced&) = default;
    template <typename H>
    friend H AbslHashValue(H state, const Priced& priced) {
      return H::combine(std::move(state), priced.call, priced.repeats, priced.in_backward);
    }
  };
  // How the walk treats a call.
  struct CallPlan {
    enum class Kind : uint8_t {
      kFree,     // takes no time
      kLocal,    // a collective whose members all do the same at the same time
      kMeeting,  // a collective of ranks along pp, which wait for each other
      kSend,
      kRecv,
    };
    Kind kind = Kind::kFree;
    Operation operation = Operation::kBarrier;
    int channel = -1;  // of messages and meetings
    int label = 0;
    GroupPlacement placement = {};
    double bytes = 0;
    bool within_node = false;
  };
  struct RankPlan {
    std::vector<std::vector<Item>> stretches;  // as recorded
    std::vector<int32_t> order;                // of stretches
    std::vector<CallPlan> calls;
  };
  class Walk;

  class Lowering;

  std::shared_ptr<const RecordedRun> run_;
  DialectContext context_;
  std::vector<Priced> priced_;
  std::vector<RankPlan> ranks_;
  std::vector<std::string> labels_;
  int channels_ = 0;
};

}  // namespace lockstep
