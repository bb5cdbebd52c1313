#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <unordered_map>

#include "absl/hash/hash.h"
#include "core/comm/call_observer.h"
#include "core/kernels/kernel_call.h"
#include "core/run/record/recorded_step.h"
#include "core/tensor/allocator.h"

namespace lockstep {

// Records the step that a rank runs between Start and Finish. Used by the rank's own thread.
class StepRecorder final : public KernelObserver, public CallObserver {
 public:
  // `allocator` outlives the recorder, which resets its peaks.
  explicit StepRecorder(Allocator& allocator) : allocator_(allocator) {}

  void Start();
  // A new stretch begins. Does nothing outside Start and Finish.
  void Enter(const StepPlace& place);
  RecordedStep Finish();

  // Called before and after the rank gives back what it has sent to other stages, if that has
  // arrived. The first time in a stretch counts: afterwards there is nothing left.
  void BeginGivingBack();
  void EndGivingBack();

  void OnKernel(KernelCall call) override;
  int64_t OnCall(const std::shared_ptr<const GroupInfo>& group, const Signature& signature,
                 const std::string& label) override;
  void OnWait(int64_t call) override;

 private:
  void EndStretch();
  // The peaks since ResetPeaks, over what was live when the present stretch began.
  PeakBytes TakePeaks();

  Allocator& allocator_;
  bool is_on_ = false;
  RecordedStep step_;
  ClassBytes live_ = {};  // when the present stretch began
  bool is_giving_back_ = false;
  ClassBytes before_giving_back_ = {};
  std::optional<size_t> last_to_give_back_;  // a stretch; none: no stretch so far
  std::unordered_map<KernelCall, int32_t, absl::Hash<KernelCall>> kernels_;
  // The group, the signature as text, and the label.
  using CallKey = std::tuple<const GroupInfo*, std::string, std::string>;
  std::unordered_map<CallKey, int32_t, absl::Hash<CallKey>> calls_;
};

}  // namespace lockstep
