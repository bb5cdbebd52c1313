#include "core/report/rank_report.h"

#include <cstring>
#include <numeric>
#include <utility>

#include "absl/status/status.h"
#include "core/base/byte_stream.h"
#include "core/base/status.h"
#include "core/tensor/allocator.h"
#include "core/tensor/tensor.h"

namespace lockstep {
namespace {

void Put(const CommTotals& totals, ByteWriter* to) {
  to->Put(totals.in_flight_nanos);
  to->Put(static_cast<int64_t>(totals.by_kind.size()));
  for (const auto& [kind, total] : totals.by_kind) {
    to->Put(kind.first);
    to->Put(kind.second);
    to->Put(total);
  }
}

void Get(ByteReader* from, CommTotals* totals) {
  int64_t kinds = 0;
  from->Get(&totals->in_flight_nanos);
  from->Get(&kinds);
  for (int64_t i = 0; i < kinds && from->ok(); ++i) {
    std::pair<Operation, std::string> kind;
    from->Get(&kind.first);
    from->Get(&kind.second);
    from->Get(&totals->by_kind[kind]);
  }
}

void Put(const CostPrediction& prediction, ByteWriter* to) {
  to->Put(static_cast<int64_t>(prediction.traffic.size()));
  for (const CostPrediction::Traffic& traffic : prediction.traffic) {
    to->Put(traffic.operation);
    to->Put(traffic.label);
    to->Put(traffic.wire_bytes);
    to->Put(traffic.often);
  }
  to->Put(prediction.memory);
  to->Put(static_cast<int64_t>(prediction.per_parameter.size()));
  for (const CostPrediction::PerParameter& part : prediction.per_parameter) {
    to->Put(part.what);
    to->Put(part.bytes);
  }
  to->Put(prediction.bubble_fraction);
}

void Get(ByteReader* from, CostPrediction* prediction) {
  int64_t kinds = 0;
  from->Get(&kinds);
  for (int64_t i = 0; i < kinds && from->ok(); ++i) {
    CostPrediction::Traffic& traffic = prediction->traffic.emplace_back();
    from->Get(&traffic.operation);
    from->Get(&traffic.label);
    from->Get(&traffic.wire_bytes);
    from->Get(&traffic.often);
  }
  from->Get(&prediction->memory);
  from->Get(&kinds);
  for (int64_t i = 0; i < kinds && from->ok(); ++i) {
    CostPrediction::PerParameter& part = prediction->per_parameter.emplace_back();
    from->Get(&part.what);
    from->Get(&part.bytes);
  }
  from->Get(&prediction->bubble_fraction);
}

void Put(const Trace& trace, ByteWriter* to) {
  const std::vector<TraceEvent> events = trace.Events();
  to->Put(trace.rank());
  to->Put(static_cast<int64_t>(events.size()));
  for (const TraceEvent& event : events) {
    to->Put(event.name);
    to->Put(event.track);
    to->Put(event.start_nanos);
    to->Put(event.duration_nanos);
    to->Put(event.micro_batch);
    to->Put(event.bytes);
    to->Put(event.sequence);
    to->Put(event.detail);
    to->Put(event.flow);
    to->Put(event.flow_end);
  }
  to->Put(trace.Memory());
}

void Get(ByteReader* from, std::unique_ptr<Trace>* trace) {
  int rank = 0;
  int64_t count = 0;
  std::vector<TraceEvent> events;
  from->Get(&rank);
  from->Get(&count);
  for (int64_t i = 0; i < count && from->ok(); ++i) {
    TraceEvent& event = events.emplace_back();
    from->Get(&event.name);
    from->Get(&event.track);
    from->Get(&event.start_nanos);
    from->Get(&event.duration_nanos);
    from->Get(&event.micro_batch);
    from->Get(&event.bytes);
    from->Get(&event.sequence);
    from->Get(&event.detail);
    from->Get(&event.flow);
    from->Get(&event.flow_end);
  }
  std::vector<MemorySample> memory;
  from->Get(&memory);
  *trace = std::make_unique<Trace>(rank, std::move(events), std::move(memory));
}

}  // namespace

std::vector<std::byte> Encode(const RankReport& report) {
  ByteWriter writer;
  Put(*report.trace, &writer);
  writer.Put(report.times);
  writer.Put(report.measured_steps);
  writer.Put(report.median_step_seconds);
  writer.Put(report.kernel_nanos);
  writer.Put(report.memory);
  Put(report.traffic, &writer);
  writer.Put(report.steps);
  Put(report.prediction, &writer);
  writer.Put(report.profiles);
  writer.Put(report.losses);
  writer.Put(report.loss_scale);
  writer.Put(report.skipped_steps);
  writer.Put(report.validation_at_start);
  writer.Put(report.validation);
  writer.Put(report.parameter_hash);
  return writer.Take();
}

absl::StatusOr<RankReport> DecodeRankReport(absl::Span<const std::byte> bytes) {
  RankReport report;
  ByteReader reader(bytes);
  Get(&reader, &report.trace);
  reader.Get(&report.times);
  reader.Get(&report.measured_steps);
  reader.Get(&report.median_step_seconds);
  reader.Get(&report.kernel_nanos);
  reader.Get(&report.memory);
  Get(&reader, &report.traffic);
  reader.Get(&report.steps);
  Get(&reader, &report.prediction);
  reader.Get(&report.profiles);
  reader.Get(&report.losses);
  reader.Get(&report.loss_scale);
  reader.Get(&report.skipped_steps);
  reader.Get(&report.validation_at_start);
  reader.Get(&report.validation);
  reader.Get(&report.parameter_hash);
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

}  // namespace lockstep
