#include "core/report/rank_report.h"

#include <concepts>
#include <cstring>
#include <numeric>
#include <tuple>
#include <type_traits>
#include <utility>

#include "absl/status/status.h"
#include "core/base/byte_stream.h"
#include "core/base/status.h"
#include "core/tensor/allocator.h"
#include "core/tensor/tensor.h"

namespace lockstep {
namespace {

template <typename T, typename Type>
concept Is = std::same_as<std::remove_const_t<T>, Type>;

// References to all members of a value that is no plain memory, in the order of its bytes: the one
// list of them for both directions.
auto Members(Is<TraceEvent> auto& event) {
  return std::tie(event.name, event.track, event.start_nanos, event.duration_nanos,
                  event.micro_batch, event.bytes, event.sequence, event.detail, event.flow,
                  event.flow_end);
}
auto Members(Is<CostPrediction::Traffic> auto& traffic) {
  return std::tie(traffic.operation, traffic.label, traffic.wire_bytes, traffic.often);
}
auto Members(Is<CostPrediction::PerParameter> auto& part) {
  return std::tie(part.what, part.bytes);
}
auto Members(Is<CostPrediction> auto& prediction) {
  return std::tie(prediction.traffic, prediction.memory, prediction.per_parameter,
                  prediction.bubble_fraction);
}
auto Members(Is<MeshChange> auto& change) {
  return std::tie(change.steps, change.from, change.to, change.seconds, change.planned_bytes,
                  change.sent_bytes);
}
template <typename Pair>
auto Members(Pair& pair) -> decltype(std::tie(pair.first, pair.second)) {
  return std::tie(pair.first, pair.second);
}
auto Members(Is<TraceRecord> auto& trace) {
  return std::tie(trace.rank, trace.events, trace.memory);
}
auto Members(Is<CommTotals> auto& totals) {
  return std::tie(totals.by_kind, totals.in_flight_nanos);
}
auto Members(Is<RoutedStep> auto& step) { return std::tie(step.kind, step.numbers); }
auto Members(Is<GuardCosts> auto& costs) { return std::tie(costs.steps, costs.nanos); }
auto Members(Is<RankReport> auto& report) {
  return std::tie(report.trace, report.idle_traces, report.times, report.measured_steps,
                  report.median_step_seconds, report.kernel_nanos, report.memory, report.routed,
                  report.traffic, report.start_traffic, report.steps, report.steps_behind,
                  report.ended_early, report.changes, report.slow_ranks, report.prediction,
                  report.profiles, report.losses, report.loss_scale, report.skipped_steps,
                  report.validation_at_start, report.validation, report.checkpoints, report.guard,
                  report.parameter_hash);
}

template <typename T>
void Put(const T& value, ByteWriter& to) {
  if constexpr (requires { to.Put(value); }) {
    to.Put(value);
  } else if constexpr (requires { value.size(); }) {
    to.Put(value.size());
    for (const auto& element : value) Put(element, to);
  } else {
    std::apply([&to](const auto&... member) { (Put(member, to), ...); }, Members(value));
  }
}

template <typename T>
void Get(ByteReader& from, T& value) {
  if constexpr (requires { from.Get(&value); }) {
    from.Get(&value);
  } else if constexpr (requires { value.size(); }) {
    size_t count = 0;
    from.Get(&count);
    for (size_t i = 0; i < count && from.ok(); ++i) {
      if constexpr (requires { value.emplace_back(); }) {
        Get(from, value.emplace_back());
      } else {  // a map
        std::pair<typename T::key_type, typename T::mapped_type> entry;
        Get(from, entry);
        value.insert(std::move(entry));
      }
    }
  } else {
    std::apply([&from](auto&... member) { (Get(from, member), ...); }, Members(value));
  }
}

}  // namespace

std::vector<std::byte> Encode(const RankReport& report) {
  ByteWriter writer;
  Put(report, writer);
  return writer.Take();
}

absl::StatusOr<RankReport> DecodeRankReport(absl::Span<const std::byte> bytes) {
  RankReport report;
  ByteReader reader(bytes);
  Get(reader, report);
  if (!reader.complete()) return absl::DataLossError("bytes that are no report of a rank");
  return report;
}

absl::StatusOr<std::vector<RankReport>> GatherReports(RankHandle& handle, const RankReport& own) {
  CpuAllocator allocator;
  const auto empty = [&allocator](int64_t elements, DType dtype) {
    return Tensor::Empty(allocator, {elements}, dtype, MemoryClass::kCommunication);
  };
  const std::vector<std::byte> encoded = Encode(own);
  const Tensor size = empty(1, DType::kI64), sizes = empty(handle.size(), DType::kI64);
  size.data<int64_t>()[0] = static_cast<int64_t>(encoded.size());
  LS_RETURN_IF_ERROR(handle.comm().AllGather(size, sizes, "reports").Wait());

  const absl::Span<const int64_t> counts = sizes.span<int64_t>();
  const Tensor bytes = empty(static_cast<int64_t>(encoded.size()), DType::kU8);
  std::memcpy(bytes.raw(), encoded.data(), encoded.size());
  Tensor all;
  if (handle.rank() == 0) {
    all = empty(std::accumulate(counts.begin(), counts.end(), int64_t{0}), DType::kU8);
  }
  LS_RETURN_IF_ERROR(handle.comm().Gather(bytes, all, 0, "reports", counts).Wait());
  std::vector<RankReport> reports;
  if (handle.rank() != 0) return reports;
  const std::byte* at = all.raw();
  for (const int64_t count : counts) {
    LS_ASSIGN_OR_RETURN(RankReport report, DecodeRankReport({at, static_cast<size_t>(count)}));
    reports.push_back(std::move(report));
    at += count;
  }
  return reports;
}

void KeepLastLeg(int ranks, std::vector<RankReport>& reports) {
  for (size_t rank = static_cast<size_t>(ranks); rank < reports.size(); ++rank) {
    TraceRecord& trace = reports[rank].trace;
    if (!trace.events.empty()) reports[0].idle_traces.push_back(std::move(trace));
  }
  reports.resize(static_cast<size_t>(ranks));
}

}  // namespace lockstep
