// What token leaves cost attention on the CPU: the kernel by leaves against the plain one, on the
// same operands, in turn.
//
//   ./bazelw run //tools/bench:attention -- --leaves 2,4
//
// The defaults are the benchmark's GPT: a micro-batch of 8, six heads of 64, time 256.

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/numbers.h"
#include "core/base/clock.h"
#include "core/base/flags.h"
#include "core/base/parallel.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/kernels/cpu/cpu_kernels.h"

ABSL_FLAG(int, batch, 8, "samples");
ABSL_FLAG(int, time, 256, "tokens of a sample");
ABSL_FLAG(int, heads, 6, "heads");
ABSL_FLAG(int, key_heads, 0, "heads of keys and values; 0: as many as heads");
ABSL_FLAG(int, head_width, 64, "elements of a head");
ABSL_FLAG(int, threads, 1, "threads");
ABSL_FLAG(int, rounds, 40, "measurements of each figure, of which the best counts");
ABSL_FLAG(double, dropout, 0, "probability of dropout");
ABSL_FLAG(std::vector<std::string>, leaves, {"2"}, "numbers of token leaves");

namespace lockstep {
namespace {

// Milliseconds of a forward and of a backward pass.
struct Times {
  double forward = 1e9, backward = 1e9;

  double sum() const { return forward + backward; }
};

// The operands of one call; with one leaf, of the plain kernels.
class Operands {
 public:
  Operands(Kernels& kernels, DType dtype, int64_t leaves) : kernels_(kernels), leaves_(leaves) {
    attention_.heads = attention_.total_heads = absl::GetFlag(FLAGS_heads);
    attention_.head_width = absl::GetFlag(FLAGS_head_width);
    attention_.key_heads = absl::GetFlag(FLAGS_key_heads);
    attention_.dropout.probability = static_cast<float>(absl::GetFlag(FLAGS_dropout));
    const int64_t rows = absl::GetFlag(FLAGS_batch) * leaves,
                  time = absl::GetFlag(FLAGS_time) / leaves;
    qkv_ = Normal({rows, time, attention_.packed_width()}, dtype, 1);
    dy_ = Normal({rows, time, attention_.query_width()}, dtype, 2);
    y_ = kernels.EmptyLike(dy_);
    dqkv_ = kernels.EmptyLike(qkv_);
    log_sum_exp_ = kernels.Empty({rows, attention_.heads, time});
  }

  void Measure() {
    Time(best_.forward, [&] {
      if (leaves_ == 1) return kernels_.AttentionForward(attention_, qkv_, y_, log_sum_exp_);
      kernels_.AttentionForwardByTokenLeaves(attention_, leaves_, qkv_, y_, log_sum_exp_);
    });
    Time(best_.backward, [&] {
      if (leaves_ == 1) {
        return kernels_.AttentionBackward(attention_, qkv_, y_, log_sum_exp_, dy_, dqkv_);
      }
      kernels_.AttentionBackwardByTokenLeaves(attention_, leaves_, qkv_, y_, log_sum_exp_, dy_,
                                              dqkv_);
    });
  }
  const Times& best() const { return best_; }
  int64_t leaves() const { return leaves_; }

 private:
  Tensor Normal(const Shape& shape, DType dtype, uint64_t stream) {
    const Tensor drawn = kernels_.Empty(shape);
    Philox(stream).FillNormal({drawn.data<float>(), static_cast<size_t>(drawn.elements())}, 0, 0,
                              1);
    const Tensor x = kernels_.Empty(shape, dtype);
    kernels_.Cast(drawn, x);
    return x;
  }
  static void Time(double& best, const std::function<void()>& run) {
    const int64_t begin = NowNanos();
    run();
    best = std::min(best, static_cast<double>(NowNanos() - begin) * 1e-6);
  }

  Kernels& kernels_;
  int64_t leaves_;
  Attention attention_;
  Tensor qkv_, dy_, y_, dqkv_, log_sum_exp_;
  Times best_;
};

// The numbers of token leaves that the flags ask for, each of which divides the time.
absl::StatusOr<std::vector<int64_t>> Leaves() {
  std::vector<int64_t> numbers;
  for (const std::string& text : absl::GetFlag(FLAGS_leaves)) {
    int64_t leaves = 0;
    if (!absl::SimpleAtoi(text, &leaves) || leaves < 1 || absl::GetFlag(FLAGS_time) % leaves != 0) {
      return InvalidArgument("--leaves ", text, ": give numbers that divide --time");
    }
    numbers.push_back(leaves);
  }
  return numbers;
}

absl::Status CheckFlags() {
  LS_RETURN_IF_ERROR(CheckRange("batch", absl::GetFlag(FLAGS_batch), 1, 1 << 16));
  LS_RETURN_IF_ERROR(CheckRange("time", absl::GetFlag(FLAGS_time), 1, 1 << 20));
  LS_RETURN_IF_ERROR(CheckRange("heads", absl::GetFlag(FLAGS_heads), 1, 4096));
  LS_RETURN_IF_ERROR(CheckRange("head_width", absl::GetFlag(FLAGS_head_width), 1, 4096));
  LS_RETURN_IF_ERROR(CheckRange("threads", absl::GetFlag(FLAGS_threads), 1, 4096));
  LS_RETURN_IF_ERROR(CheckRange("rounds", absl::GetFlag(FLAGS_rounds), 1, 1'000'000));
  const int heads = absl::GetFlag(FLAGS_heads), key_heads = absl::GetFlag(FLAGS_key_heads);
  LS_RETURN_IF_ERROR(CheckRange("key_heads", key_heads, 0, heads));
  if (key_heads > 0 && heads % key_heads != 0) {
    return InvalidArgument("--key_heads ", key_heads, ": give a divisor of --heads ", heads);
  }
  const double dropout = absl::GetFlag(FLAGS_dropout);
  if (!(dropout >= 0 && dropout < 1)) {
    return InvalidArgument("--dropout ", dropout, ": give a number from 0 on and below 1");
  }
  return absl::OkStatus();
}

absl::StatusOr<int> RunBenchmark() {
  LS_RETURN_IF_ERROR(CheckFlags());
  LS_ASSIGN_OR_RETURN(const std::vector<int64_t> numbers_of_leaves, Leaves());
  SetThreads(absl::GetFlag(FLAGS_threads));
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  std::printf("%-6s %6s %12s %12s %12s %8s\n", "dtype", "leaves", "forward ms", "backward ms",
              "both ms", "ratio");
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    std::vector<Operands> all;
    all.emplace_back(kernels, dtype, 1);
    for (const int64_t leaves : numbers_of_leaves) all.emplace_back(kernels, dtype, leaves);
    for (int round = 0; round < absl::GetFlag(FLAGS_rounds); ++round) {
      for (Operands& operands : all) operands.Measure();
    }
    for (const Operands& operands : all) {
      const Times& best = operands.best();
      std::printf("%-6s %6d %12.3f %12.3f %12.3f %8.3f\n", std::string(Name(dtype)).c_str(),
                  static_cast<int>(operands.leaves()), best.forward, best.backward, best.sum(),
                  best.sum() / all[0].best().sum());
    }
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Times attention over token leaves against the plain kernel; see "
                "docs/benchmarks.md.",
       .files = {__FILE__}},
      [](const auto&) { return lockstep::RunBenchmark(); });
}
