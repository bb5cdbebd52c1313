#include "core/report/chrome_trace.h"

#include <algorithm>  // std::max, std::min, std::sort
#include <cmath>      // std::nextafter
#include <cstddef>
#include <cstdint>
#include <limits>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// The lines of a rank, in their order. Data comes last, after however many lines communication
// takes.
constexpr int kComputeLine = 0;
constexpr int kCommunicationLine = 1;
constexpr int kDataLine = 1000;

constexpr int kMostRanks = 1'000'000;

// chrome://tracing rounds to microseconds, and takes what then lies within another event of its
// line for a part of it, to which no arrow leads: so far apart are calls on a line.
constexpr int64_t kLeastGapNanos = 1000;

constexpr char kMemory[] = "memory";
constexpr char kFlow[] = "flow";

// An event and the line that it stands on.
struct Placed {
  TraceEvent event;
  int rank = 0;
  int line = 0;
};

// Sorts the events of one rank by start, the longer first, and gives each its line.
std::vector<Placed> Place(const Trace& trace) {
  std::vector<Placed> placed;
  for (TraceEvent& event : trace.Events()) placed.push_back({std::move(event), trace.rank()});
  std::ranges::stable_sort(placed, {}, [](const Placed& place) {
    return std::make_tuple(place.event.start_nanos, -place.event.duration_nanos);
  });
  std::vector<int64_t> lane_ends;  // of communication: when each line is free
  for (Placed& place : placed) {
    switch (place.event.track) {
      case TraceTrack::kCompute:
        place.line = kComputeLine;
        break;
      case TraceTrack::kData:
        place.line = kDataLine;
        break;
      case TraceTrack::kCommunication: {
        size_t lane = 0;
        while (lane < lane_ends.size() &&
               lane_ends[lane] + kLeastGapNanos > place.event.start_nanos) {
          ++lane;
        }
        if (lane == lane_ends.size()) lane_ends.emplace_back();
        lane_ends[lane] = place.event.start_nanos + place.event.duration_nanos;
        place.line = kCommunicationLine + static_cast<int>(lane);
        break;
      }
    }
  }
  return placed;
}

const char* Name(TraceTrack track) {
  constexpr const char* kNames[] = {"compute", "communication", "data"};
  return kNames[static_cast<int>(track)];
}

std::string LineName(int line) {
  if (line == kComputeLine) return Name(TraceTrack::kCompute);
  if (line == kDataLine) return Name(TraceTrack::kData);
  const char* communication = Name(TraceTrack::kCommunication);
  if (line == kCommunicationLine) return communication;
  return absl::StrCat(communication, " ", line - kCommunicationLine + 1);
}

// The format's number of a thread. Perfetto may know threads by it alone, so no two of a file are
// alike; and takes the one with the process's number, here that of compute, for its main thread.
int ThreadId(int rank, int line) { return line * kMostRanks + rank; }

// The format's microseconds. Readers multiply them by 1000 and cut what is behind the point: the
// nearest double below a nanosecond would become the one before it, and events that only touch each
// other would overlap, for which Perfetto drops one of them.
double Micros(int64_t nanos) {
  double micros = static_cast<double>(nanos) / 1000;
  while (micros * 1000 < static_cast<double>(nanos)) {
    micros = std::nextafter(micros, std::numeric_limits<double>::infinity());
  }
  return micros;
}

// Writes the members of a JSON array, one a line.
class EventWriter {
 public:
  EventWriter(AtomicFileWriter& file, int64_t origin_nanos) : file_(file), origin_(origin_nanos) {}

  // What the process of a rank is called, and where it stands.
  absl::Status Process(int rank) {
    LS_RETURN_IF_ERROR(
        Metadata("process_name", rank, kComputeLine, {{"name", absl::StrCat("rank ", rank)}}));
    return Metadata("process_sort_index", rank, kComputeLine, {{"sort_index", rank}});
  }

  // The same of one of its threads.
  absl::Status Thread(int rank, int line) {
    LS_RETURN_IF_ERROR(Metadata("thread_name", rank, line, {{"name", LineName(line)}}));
    return Metadata("thread_sort_index", rank, line, {{"sort_index", line}});
  }

  absl::Status Complete(const Placed& placed) {
    const TraceEvent& event = placed.event;
    Json args = Json::object();
    if (event.micro_batch >= 0) args["micro_batch"] = event.micro_batch;
    if (event.bytes >= 0) args["bytes"] = event.bytes;
    if (event.sequence >= 0) args["sequence"] = event.sequence;
    if (!event.detail.empty()) args["detail"] = event.detail;
    return Write({{"ph", "X"},
                  {"name", event.name},
                  {"cat", Name(event.track)},
                  {"pid", placed.rank},
                  {"tid", ThreadId(placed.rank, placed.line)},
                  {"ts", Micros(event.start_nanos - origin_)},
                  {"dur", Micros(event.duration_nanos)},
                  {"args", args}});
  }

  // Live bytes by class, from here to the next sample.
  absl::Status Memory(int rank, const MemorySample& sample) {
    Json args = Json::object();
    for (int i = 0; i < kMemoryClasses; ++i) {
      args[Name(static_cast<MemoryClass>(i))] = sample.live_bytes[i];
    }
    return Write({{"ph", "C"},
                  {"name", kMemory},
                  {"cat", kMemory},
                  {"pid", rank},
                  {"tid", ThreadId(rank, kComputeLine)},
                  {"ts", Micros(sample.nanos - origin_)},
                  {"args", args}});
  }

  // One end of an arrow. `phase`: "s" starts a flow, "t" passes it on, "f" ends it. It binds to the
  // event on that line at that time.
  absl::Status Flow(const char* phase, int64_t id, const Placed& placed, int64_t nanos) {
    Json json = {{"ph", phase},
                 {"name", kFlow},
                 {"cat", kFlow},
                 {"id", id},
                 {"pid", placed.rank},
                 {"tid", ThreadId(placed.rank, placed.line)},
                 {"ts", Micros(nanos - origin_)}};
    if (phase[0] == 'f') json["bp"] = "e";  // the enclosing event, not the next one
    return Write(json);
  }

 private:
  absl::Status Metadata(const char* what, int rank, int line, const Json& args) {
    return Write({{"ph", "M"},
                  {"name", what},
                  {"pid", rank},
                  {"tid", ThreadId(rank, line)},
                  {"args", args}});
  }

  absl::Status Write(const Json& json) {
    const std::string text =
        json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace);
    LS_RETURN_IF_ERROR(file_.Append(is_first_ ? "\n" : ",\n"));
    is_first_ = false;
    return file_.Append(text);
  }

  AtomicFileWriter& file_;
  const int64_t origin_;
  bool is_first_ = true;
};

// Where an arrow touches an event: a message leaves when its sending begins and arrives when its
// receiving ends, still inside the event; members of a collective are joined where they begin.
int64_t Anchor(const TraceEvent& event) {
  if (event.flow_end != FlowEnd::kTarget) return event.start_nanos;
  return event.start_nanos + std::max<int64_t>(event.duration_nanos - 1, 0);
}

absl::Status WriteFlow(std::vector<const Placed*> ends, int64_t id, EventWriter* writer) {
  if (ends.size() < 2) return absl::OkStatus();  // its partners lie outside the window
  const auto order = [](const Placed* placed) {
    const FlowEnd end = placed->event.flow_end;
    const int role = end == FlowEnd::kSource ? 0 : end == FlowEnd::kMember ? 1 : 2;
    return std::make_tuple(role, placed->event.start_nanos, placed->rank);
  };
  std::ranges::sort(ends, {}, order);
  for (size_t i = 0; i < ends.size(); ++i) {
    const char* phase = i == 0 ? "s" : i + 1 < ends.size() ? "t" : "f";
    LS_RETURN_IF_ERROR(writer->Flow(phase, id, *ends[i], Anchor(ends[i]->event)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status WriteChromeTrace(const std::string& path, std::span<const Trace* const> traces) {
  std::vector<std::vector<Placed>> ranks;
  int64_t origin = std::numeric_limits<int64_t>::max();
  for (const Trace* trace : traces) {
    ranks.push_back(Place(*trace));
    if (!ranks.back().empty()) origin = std::min(origin, ranks.back().front().event.start_nanos);
    const std::vector<MemorySample> memory = trace->Memory();
    if (!memory.empty()) origin = std::min(origin, memory.front().nanos);
  }

  LS_ASSIGN_OR_RETURN(AtomicFileWriter file, AtomicFileWriter::Open(path));
  LS_RETURN_IF_ERROR(file.Append("{\"displayTimeUnit\":\"ms\",\"traceEvents\":["));
  EventWriter writer(file, origin);
  // All names before the first event, so that no reader has to guess one.
  for (size_t i = 0; i < ranks.size(); ++i) {
    const int rank = traces[i]->rank();
    LS_RETURN_IF_ERROR(writer.Process(rank));
    std::set<int> lines = {kComputeLine};  // which memory hangs on
    for (const Placed& placed : ranks[i]) lines.insert(placed.line);
    for (const int line : lines) LS_RETURN_IF_ERROR(writer.Thread(rank, line));
  }
  std::map<std::string, std::vector<const Placed*>> flows;
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (const Placed& placed : ranks[i]) {
      LS_RETURN_IF_ERROR(writer.Complete(placed));
      if (!placed.event.flow.empty()) flows[placed.event.flow].push_back(&placed);
    }
    for (const MemorySample& sample : traces[i]->Memory()) {
      LS_RETURN_IF_ERROR(writer.Memory(traces[i]->rank(), sample));
    }
  }
  int64_t id = 0;
  for (const auto& flow : flows) LS_RETURN_IF_ERROR(WriteFlow(flow.second, ++id, &writer));
  LS_RETURN_IF_ERROR(file.Append("\n]}\n"));
  return file.Commit();
}

}  // namespace lockstep
