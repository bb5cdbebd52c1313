// Runs that faults are brought about in, and the undisturbed runs that they must equal.

#pragma once

#include <cstdint>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/subprocess.h"

namespace lockstep {

enum class FaultModel {
  kGpt,      // a small GPT with dropout and AdamW
  kExperts,  // a small Llama whose layers have four experts each
  kResNet,   // a small ResNet with batch normalisation
};

// Keys that lie over a workload of a fault's runs, as TOML tables and as --set takes them.
struct FaultWorkload {
  FaultModel model = FaultModel::kGpt;
  int64_t steps = 200;
  int64_t checkpoint_every = 0;  // steps; 0: only at the end
  bool is_bf16 = false;          // else fp32
};

// The workload as TOML text: one thread a rank, a cut that meshes of up to eight ranks divide
// (cut.shards = 4, cut.features = 2, for models of tokens cut.tokens = 2), data that need no file.
std::string FaultWorkloadText(const FaultWorkload& workload);

// Writes the workload into `folder` and trains it with `single` there, undisturbed. Returns the
// workload's path. An error where that run fails.
absl::StatusOr<std::string> PrepareFaultRuns(const FaultWorkload& workload,
                                             const std::string& folder);

// What differs between a run in `out` and the undisturbed run of PrepareFaultRuns: losses.csv by
// its bytes, and the hash of the parameters. Empty: nothing.
std::string DifferenceFromUndisturbed(const std::string& out, const std::string& folder);
// The same for a run in this process, which has not written its summary.
std::string DifferenceFromUndisturbed(const std::string& out, const std::string& folder,
                                      const std::string& parameter_hash);

// What a run has left that nobody needs: temporary files, damaged checkpoints, and earlier attempts
// set aside (out.1). Empty: nothing.
std::string LeftoversOf(const std::string& out);

// Rows of a run's losses.csv.
int64_t StepsLogged(const std::string& out);
// Steps behind the newest checkpoint on the disk; 0: there is none.
int64_t StepsSaved(const std::string& out);

// Waits for what may come and be over any moment, without a pause worth speaking of. Whether it has
// come within so many seconds.
bool Await(absl::FunctionRef<bool()> condition, double seconds);

struct WatchedEnd {
  ProcessResult result;
  bool is_late = false;  // it did not come by itself
};
// Waits for the end of a run's program and of all that holds its output. What has the run directory
// `out` among its arguments is killed after so many seconds.
WatchedEnd WaitAtMost(Subprocess& run, const std::string& out, double seconds);

}  // namespace lockstep
