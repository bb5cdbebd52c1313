#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/comm/operation.h"
#include "core/kernels/kernel_call.h"
#include "core/run/record/recorded_step.h"
#include "foresight/cluster.h"
#include "foresight/comm_time.h"
#include "foresight/dialect.h"
#include "foresight/recorded_run.h"

namespace lockstep {

// The kernel that updates parameters.
inline constexpr absl::string_view kOptimizerKernel = "UpdateParameters";

// Whether a stretch of tasks is a forward, or a backward or the half of one.
bool IsForward(const StepPlace& place);
bool IsBackward(const StepPlace& place);

// A recorded step as a dialect has it: kernels and calls that cost nothing are gone, and calls know
// their members' place in the cluster. It depends on the rules of the dialect and on how many
// devices a node has, not on fitted numbers.
struct LoweredStep {
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
  // How the ranks treat a call.
  struct Call {
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
  struct Rank {
    std::vector<std::vector<Item>> stretches;  // as recorded
    std::vector<int32_t> order;                // of stretches
    std::vector<Call> calls;
  };
  DialectContext context = {};
  std::vector<Priced> priced = {};  // each distinct kernel once
  std::vector<Rank> ranks = {};     // by place along pp
  std::vector<std::string> labels = {};
  int channels = 0;
};

// InvalidArgument where the dialect has no rule for a recorded kernel.
absl::StatusOr<LoweredStep> LowerStep(const RecordedRun& run, const Dialect& dialect,
                                      const Cluster& cluster);

}  // namespace lockstep
