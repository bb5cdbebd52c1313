#include "foresight/llm_training_puzzles.h"

#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>

#include "core/run/record/recorded_step.h"
#include "foresight/kernel_tensors.h"

namespace lockstep {
namespace {

constexpr int64_t kWidth = kPuzzleWidth, kRows = 256;  // of a layer; of a batch
constexpr int64_t kWeight = kWidth * kWidth;           // numbers of a layer
constexpr int64_t kBatch = kRows * kWidth;             // numbers of a batch's activation

// What one rank of a solution does. Memory counts when an operation begins.
class Program {
 public:
  Program(const MeshShape& mesh, int pp) : mesh_(mesh), pp_(pp) {}

  void Hold(int64_t numbers) { live_ += numbers; }
  void Free(int64_t numbers) { live_ -= numbers; }

  void Forward(int64_t batches) {
    const TensorKind x = Kind(batches * kRows, kWidth), w = Kind(kWidth, kWidth);
    Kernel("Linear", {x, w, {}, {}, x});
  }
  void Backward(int64_t batches) {
    const TensorKind x = Kind(batches * kRows, kWidth), w = Kind(kWidth, kWidth);
    Kernel("LinearBackward", {x, x, w, x, w, {}});
  }
  // Updates the part of a layer that the rank holds: one of `parts`.
  void Update(int64_t parts = 1) {
    std::vector<TensorKind> tensors(UpdateStride());
    tensors[0] = tensors[1] = parts == 1 ? Kind(kWidth, kWidth) : Kind(1, kWeight / parts);
    Kernel("UpdateParameters", std::move(tensors));
  }
  // Makes a call in which all ranks take part, and waits for it.
  void Together(Operation operation) {
    std::vector<int> members(mesh_.ranks());
    for (int rank = 0; rank < mesh_.ranks(); ++rank) members[rank] = rank;
    Call("all", std::move(members), operation, -1);
    Wait();
  }
  // To and from neighbours along pp.
  void Send(int pp) { CallPeer(Operation::kSend, pp); }
  void Receive(int pp) {
    CallPeer(Operation::kRecv, pp);
    Wait();
  }
  // An operation that takes no time, before which memory counts too.
  void Loss() { Look(); }

  RecordedStep Take() {
    step_.stretches.push_back(std::move(stretch_));
    return std::move(step_);
  }

 private:
  static TensorKind Kind(int64_t rows, int64_t columns) {
    TensorKind kind;
    kind.shape = {rows, columns};
    return kind;
  }
  void Look() { stretch_.peaks.total = std::max(stretch_.peaks.total, live_); }
  void Add(RecordedTask::Kind kind, size_t index) {
    stretch_.tasks.push_back({kind, static_cast<int32_t>(index)});
  }
  void Kernel(const char* kernel, std::vector<TensorKind> tensors) {
    Look();
    step_.kernels.push_back({kernel, std::move(tensors)});
    Add(RecordedTask::Kind::kKernel, step_.kernels.size() - 1);
  }
  void Call(const std::string& name, std::vector<int> members, Operation operation, int root) {
    Look();
    GroupInfo group;
    group.name = name;
    group.members = std::move(members);
    RecordedCall call;
    call.group = std::make_shared<const GroupInfo>(std::move(group));
    call.signature.operation = operation;
    call.signature.root = root;
    call.signature.count = kWeight;
    call.label = name;
    step_.calls.push_back(std::move(call));
    Add(RecordedTask::Kind::kCall, step_.calls.size() - 1);
  }
  void CallPeer(Operation operation, int pp) {
    const int low = std::min(pp, pp_);
    Call("stages", {mesh_.RankAt({.pp = low}), mesh_.RankAt({.pp = low + 1})}, operation,
         pp == low ? 0 : 1);
  }
  void Wait() { Add(RecordedTask::Kind::kWait, step_.calls.size() - 1); }

  const MeshShape mesh_;
  const int pp_;
  int64_t live_ = 0;
  RecordedStep step_;
  RecordedStretch stretch_;
};

// `solution` of each stage takes `seconds` steps, and `numbers` on the fullest.
PuzzleSolution Recorded(const char* name, int pp, int dp,
                        const std::function<void(Program&, int pp)>& solution, double seconds,
                        int64_t numbers) {
  auto run = std::make_shared<RecordedRun>();
  run->settings.mesh.pp = pp;
  run->settings.mesh.dp = dp;
  for (int stage = 0; stage < pp; ++stage) {
    Program program(run->settings.mesh, stage);
    solution(program, stage);
    run->steps.push_back(program.Take());
  }
  return {.name = name, .run = std::move(run), .seconds = seconds, .numbers = numbers};
}

// Values and optimizer state of a layer, or of one of its parts.
constexpr int64_t State(int64_t parts = 1) { return 2 * kWeight / parts; }

PuzzleSolution Standard() {
  const auto solution = [](Program& p, int) {
    p.Hold(2 * State() + 4 * kBatch);
    for (int layer = 0; layer < 2; ++layer) {
      p.Forward(4);
      p.Hold(4 * kBatch);
    }
    p.Loss();  // the gradient takes the output's place
    for (int layer = 0; layer < 2; ++layer) {
      p.Backward(4);
      p.Hold(kWeight);
      p.Free(4 * kBatch);  // the input's gradient takes the place of the output's; the input goes
    }
    p.Free(4 * kBatch);
    for (int layer = 0; layer < 2; ++layer) p.Update();
  };
  return Recorded("standard", 1, 1, solution, 17.0, 2621440);
}

PuzzleSolution GradientAccumulation() {
  const auto solution = [](Program& p, int) {
    p.Hold(2 * State());
    for (int batch = 0; batch < 4; ++batch) {
      p.Hold(kBatch);
      for (int layer = 0; layer < 2; ++layer) {
        p.Forward(1);
        p.Hold(kBatch);
      }
      p.Loss();
      for (int layer = 0; layer < 2; ++layer) {
        p.Backward(1);
        if (batch == 0) p.Hold(kWeight);  // later ones are added to it
        p.Free(kBatch);
      }
      p.Free(kBatch);
    }
    for (int layer = 0; layer < 2; ++layer) p.Update();
  };
  return Recorded("gradient accumulation", 1, 1, solution, 17.0, 1966080);
}

PuzzleSolution DistributedDataParallel() {
  const auto solution = [](Program& p, int) {
    p.Hold(2 * State() + kBatch);
    for (int layer = 0; layer < 2; ++layer) {
      p.Forward(1);
      p.Hold(kBatch);
    }
    p.Loss();
    p.Hold(kBatch);  // the output stays
    for (int layer = 0; layer < 2; ++layer) {
      p.Backward(1);
      p.Hold(kWeight);
      p.Free(kBatch);
    }
    for (int layer = 0; layer < 2; ++layer) {
      p.Together(Operation::kAllReduce);
      p.Update();
    }
  };
  return Recorded("distributed data parallel", 1, 4, solution, 5.6, 1835008);
}

// Six layers, of which each of four ranks has a part.
void ForwardOfParts(Program& p) {
  p.Hold(6 * State(4) + kBatch);
  for (int layer = 0; layer < 6; ++layer) {
    p.Together(Operation::kAllGather);
    p.Hold(kWeight);
    p.Forward(1);
    p.Hold(kBatch);
    p.Free(kWeight);
  }
  p.Loss();
}

PuzzleSolution WeightShardedDataParallel() {
  const auto solution = [](Program& p, int) {
    ForwardOfParts(p);
    p.Hold(kBatch);  // the output stays
    for (int layer = 0; layer < 6; ++layer) {
      p.Together(Operation::kAllGather);
      p.Hold(kWeight);
      p.Backward(1);
      p.Hold(kWeight);
      p.Free(kBatch + kWeight);
    }
    for (int layer = 0; layer < 6; ++layer) {
      p.Together(Operation::kAllReduce);
      p.Update(4);
    }
  };
  return Recorded("weight-sharded data parallel", 1, 4, solution, 20.4, 2752512);
}

PuzzleSolution FullyShardedDataParallel() {
  const auto solution = [](Program& p, int) {
    ForwardOfParts(p);
    for (int layer = 0; layer < 6; ++layer) {
      p.Together(Operation::kAllGather);
      p.Hold(kWeight);
      p.Backward(1);
      p.Hold(kWeight + kBatch);
      p.Together(Operation::kReduceScatter);
      p.Free(kWeight - kWeight / 4);
      p.Free(2 * kBatch + kWeight);
    }
    for (int layer = 0; layer < 6; ++layer) p.Update(4);
  };
  return Recorded("fully-sharded data parallel", 1, 4, solution, 20.4, 2359296);
}

PuzzleSolution Pipeline() {
  const auto solution = [](Program& p, int pp) {
    p.Hold(2 * State());
    if (pp > 0) p.Receive(pp - 1);
    p.Hold(4 * kBatch);
    for (int layer = 0; layer < 2; ++layer) {
      p.Forward(4);
      p.Hold(4 * kBatch);
    }
    if (pp < 3) {
      p.Send(pp + 1);
      p.Receive(pp + 1);
    } else {
      p.Loss();
    }
    p.Hold(4 * kBatch);  // the output stays
    for (int layer = 0; layer < 2; ++layer) {
      p.Backward(4);
      p.Hold(kWeight);
      p.Free(4 * kBatch);
    }
    if (pp > 0) p.Send(pp - 1);
    for (int layer = 0; layer < 2; ++layer) p.Update();
  };
  return Recorded("pipeline", 4, 1, solution, 67.4, 3145728);
}

PuzzleSolution GPipe() {
  const auto solution = [](Program& p, int pp) {
    p.Hold(2 * State());
    for (int batch = 0; batch < 4; ++batch) {
      if (pp > 0) p.Receive(pp - 1);
      p.Hold(kBatch);
      for (int layer = 0; layer < 2; ++layer) {
        p.Forward(1);
        p.Hold(kBatch);
      }
      if (pp < 3) p.Send(pp + 1);
    }
    for (int batch = 0; batch < 4; ++batch) {
      if (pp < 3) {
        p.Receive(pp + 1);
      } else {
        p.Loss();
      }
      p.Hold(kBatch);  // output and gradient of the input stay
      for (int layer = 0; layer < 2; ++layer) {
        p.Backward(1);
        p.Hold(kWeight);  // a gradient for each batch
        p.Free(kBatch);
      }
      if (pp > 0) p.Send(pp - 1);
    }
    for (int layer = 0; layer < 2; ++layer) {
      p.Free(3 * kWeight);
      p.Update();
    }
  };
  return Recorded("GPipe", 4, 1, solution, 33.8, 4194304);
}

// All 16 ranks have a part of each of the four layers and gather each together; one stage computes.
PuzzleSolution PipelineOfParts() {
  const auto solution = [](Program& p, int pp) {
    p.Hold(4 * State(16));
    for (int layer = 0; layer < 4; ++layer) {
      if (layer == pp) {
        if (pp > 0) p.Receive(pp - 1);
        p.Hold(kBatch);
      }
      p.Together(Operation::kAllGather);
      p.Hold(kWeight);
      if (layer == pp) {
        p.Forward(1);
        p.Hold(kBatch);
      }
      p.Free(kWeight);
      if (layer == pp && pp < 3) p.Send(pp + 1);
    }
    for (int layer = 3; layer >= 0; --layer) {
      if (layer == pp) {
        if (pp < 3) {
          p.Receive(pp + 1);
        } else {
          p.Loss();
        }
        p.Hold(kBatch);  // the output stays
      }
      p.Together(Operation::kAllGather);
      p.Hold(kWeight);
      if (layer == pp) {
        p.Backward(1);
        p.Hold(kWeight);
        p.Free(kBatch);
      }
      // The other ranks contribute the gradient of an empty batch, which takes no memory.
      p.Together(Operation::kReduceScatter);
      if (layer == pp) p.Free(kWeight);
      p.Hold(kWeight / 16);
      p.Free(kWeight);
      if (layer == pp && pp > 0) p.Send(pp - 1);
    }
    for (int layer = 0; layer < 4; ++layer) {
      p.Update(16);
      p.Hold(State(16));  // beside the old values
    }
  };
  return Recorded("pipeline of parts", 4, 4, solution, 16.0, 966656);
}

}  // namespace

std::vector<PuzzleSolution> PuzzleSolutions() {
  return {Standard(),
          GradientAccumulation(),
          DistributedDataParallel(),
          WeightShardedDataParallel(),
          FullyShardedDataParallel(),
          Pipeline(),
          GPipe(),
          PipelineOfParts()};
}

int64_t MostNumbers(const RecordedRun& run) {
  int64_t most = 0;
  for (size_t stage = 0; stage < run.steps.size(); ++stage) {
    const auto stretches = run.Stretches(static_cast<int>(stage));
    most = std::max(most, MemoryOf(run.steps[stage], stretches).total);
  }
  return most;
}

}  // namespace lockstep
