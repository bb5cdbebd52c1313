#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <vector>

#include "core/nn/model.h"
#include "core/train/replica.h"
#include "strategies/fsdp/unit.h"

namespace lockstep {

enum class ReshardAfterForward { kYes, kNo };

// When the units of a model are whole: hangs on its blocks, gathers what a block needs before it
// runs and the next block's meanwhile, and gives back what no block needs any more.
class Residency {
 public:
  // Makes the units of a model, one a block that has parameters of its own.
  Residency(Model& model, Communicator& ranks, Kernels& kernels, uint64_t seed,
            ReshardAfterForward reshard);

  // In the order of first use.
  const std::vector<std::unique_ptr<FsdpUnit>>& units() const { return units_; }

  // Called when a unit's gradients are complete, in backward of the step's last micro-batch: fills
  // in what is missing before they are summed.
  void OnComplete(std::function<void(FsdpUnit&)> complete) { complete_ = std::move(complete); }
  // Before a micro-batch: whether its backward completes the gradients of the step.
  enum class MicroBatch { kAccumulates, kCompletes };
  void Begin(MicroBatch kind) { kind_ = kind; }
  // Waits for the sums of all gradients.
  void AwaitReduced();
  // After a pass without backward.
  void ReleaseAll();

  // The most bytes of whole parameters, and of whole gradients, that exist at one time.
  int64_t peak_whole_bytes() const;
  int64_t peak_gradient_bytes(int64_t micro_batches) const;

 private:
  // The first and the last of the blocks that use a unit.
  struct Use {
    FsdpUnit* unit;
    int first, last;
  };

  void BeforeForward(int block);
  void AfterForward(int block);
  void BeforeBackward(int block);
  void AfterBackward(int block);

  const ReshardAfterForward reshard_;
  std::vector<std::unique_ptr<FsdpUnit>> units_;
  std::vector<Use> forward_;   // by first block
  std::vector<Use> backward_;  // by last block, from the end
  std::function<void(FsdpUnit&)> complete_;
  MicroBatch kind_ = MicroBatch::kCompletes;
  std::deque<FsdpUnit*> reducing_;
};

}  // namespace lockstep
