#pragma once

#include <cstdint>
#include <vector>

#include "core/comm/communicator.h"
#include "core/nn/parameter.h"
#include "core/optim/optimizer.h"
#include "core/train/replica.h"
#include "core/train/strategy.h"

namespace lockstep {

// The parameters of one block, laid out one behind the other on 64-byte boundaries, and cut into as
// many shards of one size as there are ranks. A rank keeps its shard; the whole exists while the
// block needs it.
class FsdpUnit {
 public:
  // `parameters` own their values. Gives the shard its memory and initial values, and the
  // parameters values and gradients that are views of the whole, which has no memory yet.
  FsdpUnit(std::vector<Parameter*> parameters, Communicator& ranks, Kernels& kernels,
           uint64_t seed);

  // --- the whole parameters ----------------------------------------------------------------------
  // Begins to bring the shards together; without effect if that has been done or begun.
  void Gather();
  // Returns when the whole is there.
  void AwaitWhole();
  // Gives the memory of the whole back.
  void Release();

  // --- the whole gradients -----------------------------------------------------------------------
  // Gives them memory, if they have none.
  void PrepareGradients();
  // Sums them over the ranks into the shard's gradient, and gives their memory back when that is
  // done, for which AwaitReduced waits.
  void Reduce();
  void AwaitReduced();

  // --- this rank's shard -------------------------------------------------------------------------
  // The part of each parameter that lies in the shard, which may be empty: for the optimizer, and,
  // in the same order, for checkpoints.
  const std::vector<TrainedTensor>& trained() const { return trained_; }
  const std::vector<StateTensor>& state() const { return state_; }

  const std::vector<Parameter*>& parameters() const { return parameters_; }
  // Bytes of the whole with what fills it up, and of the shard.
  int64_t whole_bytes() const { return whole_.bytes(); }
  int64_t shard_bytes() const { return shard_.bytes(); }

 private:
  std::vector<Parameter*> parameters_;
  Communicator& ranks_;
  Tensor shard_, shard_gradient_;
  Tensor whole_, whole_gradient_;
  std::vector<TrainedTensor> trained_;
  std::vector<StateTensor> state_;
  Work gather_, reduce_;
};

}  // namespace lockstep
