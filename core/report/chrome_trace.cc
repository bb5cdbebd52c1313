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
  const TraceEvent* event;
  int rank = 0;
  int line = 0;
};

// The first line of communication that is free when an event begins, which it then takes until it
// ends. `ends`: when each line is free.
int FreeLine(const TraceEvent& event, std::vector<int64_t>& ends) {
  const auto free = std::ranges::find_if(
      ends, [&](int64_t end) { return end + kLeastGapNanos <= event.start_nanos; });
  const auto line = static_cast<int>(free - ends.begin());
  if (free == ends.end()) ends.emplace_back();
  ends[line] = event.start_nanos + event.duration_nanos;
  return kCommunicationLine + line;
}

// Sorts the events of one rank by start, the longer first, and gives each its line.
std::vector<Placed> Place(const TraceRecord& trace) {
  std::vector<Placed> placed;
  for (const TraceEvent& event : trace.events) placed.push_back({&event, trace.rank});
  std::ranges::stable_sort(placed, {}, [](const Placed& place) {
    return std::make_tuple(place.event->start_nanos, -place.event->duration_nanos);
  });
  std::vector<int64_t> ends;
  for (Placed& place : placed) {
    const TraceTrack track = place.event->track;
    place.line = track == TraceTrack::kCompute ? kComputeLine
                 : track == TraceTrack::kData  ? kDataLine
                                               : FreeLine(*place.event, ends);
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

// Gathers the text of the file: an event a line.
class EventText {
 public:
  explicit EventText(int64_t origin_nanos) : origin_(origin_nanos) {}

  // What the process of a rank is called, and where it stands.
  void AddProcess(int rank) {
    AddMetadata("process_name", rank, kComputeLine, {{"name", absl::StrCat("rank ", rank)}});
    AddMetadata("process_sort_index", rank, kComputeLine, {{"sort_index", rank}});
  }

  // What a thread of that process is called, and where it stands.
  void AddThread(int rank, int line) {
    AddMetadata("thread_name", rank, line, {{"name", LineName(line)}});
    AddMetadata("thread_sort_index", rank, line, {{"sort_index", line}});
  }

  void AddComplete(const Placed& placed) {
    const TraceEvent& event = *placed.event;
    Json args = Json::object();
    if (event.micro_batch >= 0) args["micro_batch"] = event.micro_batch;
    if (event.bytes >= 0) args["bytes"] = event.bytes;
    if (event.sequence >= 0) args["sequence"] = event.sequence;
    if (!event.detail.empty()) args["detail"] = event.detail;
    Add({{"ph", "X"},
         {"name", event.name},
         {"cat", Name(event.track)},
         {"pid", placed.rank},
         {"tid", ThreadId(placed.rank, placed.line)},
         {"ts", Micros(event.start_nanos - origin_)},
         {"dur", Micros(event.duration_nanos)},
         {"args", args}});
  }

  // Live bytes by class, from here to the next sample.
  void AddMemory(int rank, const MemorySample& sample) {
    Json args = Json::object();
    for (int i = 0; i < kMemoryClasses; ++i) {
      args[Name(static_cast<MemoryClass>(i))] = sample.live_bytes[i];
    }
    Add({{"ph", "C"},
         {"name", kMemory},
         {"cat", kMemory},
         {"pid", rank},
         {"tid", ThreadId(rank, kComputeLine)},
         {"ts", Micros(sample.nanos - origin_)},
         {"args", args}});
  }

  // Arrows between events of one flow, which get a number of their own.
  void AddFlow(std::vector<Placed> ends);

  std::string Take() && {
    return "{\"displayTimeUnit\":\"ms\",\"traceEvents\":[" + text_ + "\n]}\n";
  }

 private:
  void AddMetadata(const char* what, int rank, int line, const Json& args) {
    Add({{"ph", "M"},
         {"name", what},
         {"pid", rank},
         {"tid", ThreadId(rank, line)},
         {"args", args}});
  }

  void Add(const Json& json) {
    absl::StrAppend(&text_, text_.empty() ? "\n" : ",\n",
                    json.dump(-1, ' ', /*ensure_ascii=*/false, Json::error_handler_t::replace));
  }

  const int64_t origin_;
  int64_t flows_ = 0;
  std::string text_;
};

// Where an arrow touches an event: a message leaves when its sending begins and arrives when its
// receiving ends, still inside the event; members of a collective are joined where they begin.
int64_t Anchor(const TraceEvent& event) {
  if (event.flow_end != FlowEnd::kTarget) return event.start_nanos;
  return event.start_nanos + std::max<int64_t>(event.duration_nanos - 1, 0);
}

void EventText::AddFlow(std::vector<Placed> ends) {
  ++flows_;
  if (ends.size() < 2) return;  // its partners lie outside the window
  std::ranges::sort(ends, {}, [](const Placed& placed) {
    const FlowEnd end = placed.event->flow_end;
    const int role = end == FlowEnd::kSource ? 0 : end == FlowEnd::kMember ? 1 : 2;
    return std::make_tuple(role, placed.event->start_nanos, placed.rank);
  });
  for (size_t i = 0; i < ends.size(); ++i) {
    const bool is_last = i + 1 == ends.size();
    // Binds to the event on that line at that time.
    Json arrow = {{"ph", i == 0    ? "s"
                         : is_last ? "f"
                                   : "t"},
                  {"name", kFlow},
                  {"cat", kFlow},
                  {"id", flows_},
                  {"pid", ends[i].rank},
                  {"tid", ThreadId(ends[i].rank, ends[i].line)},
                  {"ts", Micros(Anchor(*ends[i].event) - origin_)}};
    if (is_last) arrow["bp"] = "e";  // the enclosing event, not the next one
    Add(arrow);
  }
}

}  // namespace

absl::Status WriteChromeTrace(const std::string& path, std::span<const TraceRecord* const> traces) {
  std::vector<std::vector<Placed>> ranks;
  int64_t origin = std::numeric_limits<int64_t>::max();
  for (const TraceRecord* trace : traces) {
    ranks.push_back(Place(*trace));
    if (!ranks.back().empty()) origin = std::min(origin, ranks.back().front().event->start_nanos);
    if (!trace->memory.empty()) origin = std::min(origin, trace->memory.front().nanos);
  }
  EventText text(origin);
  // All names before the first event, so that no reader has to guess one.
  for (size_t i = 0; i < ranks.size(); ++i) {
    text.AddProcess(traces[i]->rank);
    std::set<int> lines = {kComputeLine};  // which memory hangs on
    for (const Placed& placed : ranks[i]) lines.insert(placed.line);
    for (const int line : lines) text.AddThread(traces[i]->rank, line);
  }
  std::map<std::string, std::vector<Placed>> flows;
  for (size_t i = 0; i < ranks.size(); ++i) {
    for (const Placed& placed : ranks[i]) {
      text.AddComplete(placed);
      if (!placed.event->flow.empty()) flows[placed.event->flow].push_back(placed);
    }
    for (const MemorySample& sample : traces[i]->memory) text.AddMemory(traces[i]->rank, sample);
  }
  for (auto& [name, ends] : flows) text.AddFlow(std::move(ends));
  return WriteFileAtomically(path, std::move(text).Take());
}

}  // namespace lockstep
