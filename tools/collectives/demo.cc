#include "tools/collectives/demo.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <thread>  // std::this_thread

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/comm/communicator.h"
#include "core/comm/launch.h"
#include "core/comm/rank_handle.h"
#include "core/tensor/allocator.h"
#include "core/tensor/tensor.h"
#include "glog/logging.h"
#include "tools/collectives/call_once.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "demo";

std::vector<int64_t> CountsOf(const DemoOptions& options) {
  if (options.operation == Operation::kBarrier) return std::vector<int64_t>(options.ranks, 1);
  std::vector<int64_t> counts(options.ranks, options.count);
  if (options.uneven) {
    for (int rank = 0; rank < options.ranks; ++rank) counts[rank] += rank % 3;
  }
  return counts;
}

// A barrier adds up arrivals, whatever the options say.
ReduceOp ReduceOpOf(const DemoOptions& options) {
  return Reduces(options.operation) ? options.reduce_op : ReduceOp::kSum;
}

// What a rank brings: numbers that tell where they come from. `place` is the element's place in all
// of the rank's data.
float InitialValue(const DemoOptions& options, int rank, int part, int64_t element, int64_t place) {
  if (options.operation == Operation::kBarrier) return 1;
  if (Reduces(options.operation)) {
    // Small for products, so that those of 16 ranks are exact.
    return static_cast<float>(options.reduce_op == ReduceOp::kProduct ? 1 + (rank + place) % 3
                                                                      : (rank + 1) * (place + 1));
  }
  int whole = rank;
  if (options.operation == Operation::kScatter) whole = part + 1;
  if (options.operation == Operation::kAllToAll) {
    whole = rank * (options.ranks > 10 ? 100 : 10) + part;
  }
  return static_cast<float>(whole + static_cast<double>(element) / 10);
}

RankData InitialData(const DemoOptions& options, const Movement& movement) {
  RankData data(options.ranks);
  for (int rank = 0; rank < options.ranks; ++rank) {
    int64_t place = 0;
    for (int part = 0; part < static_cast<int>(movement.before[rank].size()); ++part) {
      std::vector<float>& elements = data[rank].emplace_back();
      for (int64_t element = 0; element < movement.before[rank][part]; ++element) {
        elements.push_back(InitialValue(options, rank, part, element, place++));
      }
    }
  }
  return data;
}

// The parts one after the other; undefined where there is none.
Tensor TensorOf(const Parts& parts, Allocator& allocator) {
  if (parts.empty()) return Tensor();
  std::vector<float> all;
  for (const auto& part : parts) all.insert(all.end(), part.begin(), part.end());
  const Tensor tensor = Tensor::Empty(allocator, {static_cast<int64_t>(all.size())}, DType::kF32,
                                      MemoryClass::kWorkspace);
  std::copy(all.begin(), all.end(), tensor.data<float>());
  return tensor;
}

// Parts of these sizes, not yet written; undefined for none.
Tensor Unwritten(const std::vector<int64_t>& sizes, Allocator& allocator) {
  Parts parts;
  for (const int64_t size : sizes) {
    parts.emplace_back(size, std::numeric_limits<float>::quiet_NaN());
  }
  return TensorOf(parts, allocator);
}

Parts PartsOf(const Tensor& tensor, const std::vector<int64_t>& sizes) {
  Parts parts;
  const float* next = sizes.empty() ? nullptr : tensor.data<float>();
  for (const int64_t size : sizes) {
    parts.emplace_back(next, next + size);
    next += size;
  }
  return parts;
}

// One rank's side; returns what it got. `arrived`: how many ranks have come to a barrier.
absl::StatusOr<Parts> RunRank(const Demo& demo, Communicator& comm, std::atomic<int>& arrived) {
  if (demo.options.operation == Operation::kBarrier) {
    std::this_thread::sleep_for(std::chrono::milliseconds(comm.rank()));  // one after another
    ++arrived;
    LS_RETURN_IF_ERROR(comm.Barrier(kLabel).Wait());
    return Parts{{static_cast<float>(arrived.load())}};
  }
  const int rank = comm.rank();
  CpuAllocator allocator;
  const Tensor input = TensorOf(demo.before[rank], allocator);
  const bool brings_in_place = demo.options.operation == Operation::kBroadcast && input.defined();
  const Tensor output = brings_in_place ? input : Unwritten(demo.movement.after[rank], allocator);
  LS_RETURN_IF_ERROR(CallOnce(comm, demo.options.operation, input, output, demo.options.reduce_op,
                              demo.options.root, kLabel, CountsOf(demo.options)));
  return PartsOf(output, demo.movement.after[rank]);
}

float Combine(ReduceOp op, float a, float b) {
  if (op == ReduceOp::kProduct) return a * b;
  if (op == ReduceOp::kMin) return std::min(a, b);
  if (op == ReduceOp::kMax) return std::max(a, b);
  return a + b;  // an average is divided in the end
}

std::vector<float> Expected(const Flow& flow, ReduceOp op, const RankData& before) {
  std::vector<float> result = before[flow.from[0].rank][flow.from[0].part];
  for (size_t source = 1; source < flow.from.size(); ++source) {
    const std::vector<float>& more = before[flow.from[source].rank][flow.from[source].part];
    for (size_t i = 0; i < result.size(); ++i) result[i] = Combine(op, result[i], more[i]);
  }
  if (flow.from.size() > 1 && op == ReduceOp::kAverage) {
    for (float& x : result) x /= static_cast<float>(flow.from.size());
  }
  return result;
}

}  // namespace

absl::StatusOr<Demo> RunDemo(const DemoOptions& options) {
  CHECK(options.ranks >= 1 && options.ranks <= kMaxDemoRanks) << options.ranks;
  CHECK(options.count >= 1 && options.count <= kMaxDemoCount) << options.count;
  CHECK(options.root >= 0 && options.root < options.ranks) << options.root;
  CHECK(!options.uneven || AllowsUneven(options.operation)) << Name(options.operation);
  Demo demo;
  demo.options = options;
  demo.movement = MovementOf(options.operation, CountsOf(options), options.root);
  demo.before = InitialData(options, demo.movement);
  demo.after.resize(options.ranks);
  demo.ledgers.resize(options.ranks);

  std::atomic<int> arrived = 0;
  const auto run = [&](RankHandle& handle) -> absl::Status {
    const int rank = handle.rank();  // writes its own places only
    LS_ASSIGN_OR_RETURN(demo.after[rank], RunRank(demo, handle.comm(), arrived));
    demo.ledgers[rank] = handle.ledger().Recent();
    return absl::OkStatus();
  };
  LS_RETURN_IF_ERROR(RunRanks(options.ranks, {}, run));
  LS_RETURN_IF_ERROR(
      Annotate(CheckData(demo.movement, ReduceOpOf(options), demo.before, demo.after),
               Name(options.operation)));
  return demo;
}

absl::Status CheckData(const Movement& movement, ReduceOp reduce_op, const RankData& before,
                       const RankData& after) {
  for (const Flow& flow : movement.flows) {
    const std::vector<float> expected = Expected(flow, reduce_op, before);
    const std::vector<float>& actual = after[flow.to.rank][flow.to.part];
    if (actual == expected) continue;
    return absl::InternalError(absl::StrCat(
        "rank ", flow.to.rank, " has [", absl::StrJoin(actual, ", "), "] as part ", flow.to.part,
        ", but a serial computation gives [", absl::StrJoin(expected, ", "), "]"));
  }
  return absl::OkStatus();
}

}  // namespace lockstep
