#include "tools/collectives/demo.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <limits>
#include <map>
#include <memory>
#include <thread>  // std::this_thread
#include <utility>

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

// The counts of a rank's own group.
std::vector<int64_t> CountsOfGroup(const DemoOptions& options, int rank) {
  const std::vector<int64_t> counts = CountsOf(options);
  if (options.groups.empty()) return counts;
  std::vector<int64_t> own;
  for (size_t other = 0; other < counts.size(); ++other) {
    if (options.groups[other] == options.groups[rank]) own.push_back(counts[other]);
  }
  return own;
}

// A barrier adds up arrivals, whatever the options say.
ReduceOp ReduceOpOf(const DemoOptions& options) {
  return Reduces(options.operation) ? options.reduce_op : ReduceOp::kSum;
}

// What a rank brings: numbers that tell where they come from. `place` is the element's place in all
// of the rank's data.
float InitialValue(const DemoOptions& options, int rank, int part, int64_t element, int64_t place) {
  if (options.operation == Operation::kBarrier) return 1;
  if (!options.values.empty()) {
    const int value = options.values[options.operation == Operation::kScatter ? part : rank];
    if (Reduces(options.operation)) return static_cast<float>(value);
    return static_cast<float>(value + static_cast<double>(element) / 10);
  }
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

// The movement of the whole: that of each group, among its ranks.
Movement MovementOfGroups(const DemoOptions& options) {
  const std::vector<int64_t> counts = CountsOf(options);
  Movement whole;
  whole.before.resize(counts.size());
  whole.after.resize(counts.size());
  for (const std::vector<int>& members : options.members()) {
    std::vector<int64_t> own;
    for (const int rank : members) own.push_back(counts[rank]);
    Movement group = MovementOf(options.operation, own, options.root);
    for (size_t i = 0; i < members.size(); ++i) {
      whole.before[members[i]] = std::move(group.before[i]);
      whole.after[members[i]] = std::move(group.after[i]);
    }
    for (Flow& flow : group.flows) {
      for (Cell& cell : flow.from) cell.rank = members[cell.rank];
      flow.to.rank = members[flow.to.rank];
      whole.flows.push_back(std::move(flow));
    }
  }
  std::ranges::sort(whole.flows, {},
                    [](const Flow& flow) { return std::pair(flow.to.rank, flow.to.part); });
  return whole;
}

// One rank's side in its group `comm`; returns what it got. `rank`: among all. `arrived`: how many
// ranks of the group have come to a barrier.
absl::StatusOr<Parts> RunRank(const Demo& demo, int rank, Communicator& comm,
                              std::atomic<int>& arrived) {
  if (demo.options.operation == Operation::kBarrier) {
    std::this_thread::sleep_for(std::chrono::milliseconds(comm.rank()));  // one after another
    ++arrived;
    LS_RETURN_IF_ERROR(comm.Barrier(kLabel).Wait());
    return Parts{{static_cast<float>(arrived.load())}};
  }
  CpuAllocator allocator;
  const Tensor input = TensorOf(demo.before[rank], allocator);
  const bool brings_in_place = demo.options.operation == Operation::kBroadcast && input.defined();
  const Tensor output = brings_in_place ? input : Unwritten(demo.movement.after[rank], allocator);
  LS_RETURN_IF_ERROR(CallOnce(comm, demo.options.operation, input, output, demo.options.reduce_op,
                              demo.options.root, kLabel, CountsOfGroup(demo.options, rank)));
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

std::vector<std::vector<int>> DemoOptions::members() const {
  std::map<int, std::vector<int>> by_number;
  for (int rank = 0; rank < ranks; ++rank) {
    by_number[groups.empty() ? 0 : groups[rank]].push_back(rank);
  }
  std::vector<std::vector<int>> result;
  for (auto& [number, ranks_of_group] : by_number) result.push_back(std::move(ranks_of_group));
  return result;
}

absl::StatusOr<Demo> RunDemo(const DemoOptions& options) {
  CHECK(options.ranks >= 1 && options.ranks <= kMaxDemoRanks) << options.ranks;
  CHECK(options.count >= 1 && options.count <= kMaxDemoCount) << options.count;
  for (const std::vector<int>& members : options.members()) {
    CHECK(options.root >= 0 && options.root < static_cast<int>(members.size())) << options.root;
  }
  CHECK(!options.uneven || AllowsUneven(options.operation)) << Name(options.operation);
  Demo demo;
  demo.options = options;
  demo.movement = MovementOfGroups(options);
  demo.before = InitialData(options, demo.movement);
  demo.after.resize(options.ranks);
  demo.ledgers.resize(options.ranks);

  std::vector<std::atomic<int>> arrived(options.ranks);  // by a group's first rank
  const auto run = [&](RankHandle& handle) -> absl::Status {
    const int rank = handle.rank();  // writes its own places only
    std::unique_ptr<Communicator> group;
    int first = 0;
    if (!options.groups.empty()) {
      const int color = options.groups[rank];
      LS_ASSIGN_OR_RETURN(group, handle.comm().Split(color, rank, "group"));
      first = static_cast<int>(std::ranges::find(options.groups, color) - options.groups.begin());
    }
    Communicator& comm = group == nullptr ? handle.comm() : *group;
    LS_ASSIGN_OR_RETURN(demo.after[rank], RunRank(demo, rank, comm, arrived[first]));
    demo.ledgers[rank] = handle.ledger().Recent();
    std::erase_if(demo.ledgers[rank], [](const LedgerEntry& entry) {
      return entry.signature.operation == Operation::kSplit;
    });
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
