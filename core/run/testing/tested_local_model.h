#pragma once

#include <functional>
#include <vector>

#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/run/strategy/local_model.h"

namespace lockstep {

inline constexpr int64_t kSquareWidth = 3;

// Three blocks "a", "b", "c", each y = x w' with a square matrix of kSquareWidth; those of "b" and
// "c" are tied to that of "a".
Model MakeTiedSquares();

// A rank of a mesh {pp = ranges.size()}, with its stage of MakeTiedSquares, for tests: its
// gradients have memory, and Clear(1) has been called.
class LocalModelUnderTest {
 public:
  LocalModelUnderTest(RankHandle& handle, const Settings& settings,
                      const std::vector<BlockRange>& ranges);

  Kernels& kernels() { return kernels_; }
  Mesh& mesh() { return mesh_; }
  LocalModel& local_model() { return local_model_; }
  // The matrix of a block, of this stage or another.
  Parameter& weight(int block) { return *local_model_.model().blocks[block]->Parameters()[0]; }

 private:
  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
  Mesh mesh_;
  StepTimer timer_{{}};
  Trace trace_{0, TraceWindow{}};
  Rank rank_;
  LocalModel local_model_;
};

// Runs `run` on each of the stages, in threads, with the stage's number; two samples a step.
void ForStages(const std::vector<BlockRange>& ranges,
               const std::function<void(LocalModelUnderTest&, int)>& run);

// The elements of an fp32 tensor.
std::vector<float> Look(const Tensor& tensor);

}  // namespace lockstep
