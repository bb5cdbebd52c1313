#include "tools/timeline/step_trace.h"

#include <algorithm>
#include <iterator>  // std::prev
#include <limits>
#include <set>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "core/base/json.h"
#include "core/base/status.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::json;

// Microseconds.
struct Span {
  double begin, end;
};

[[noreturn]] void Refuse(const Json& event, const char* member, const char* rule) {
  throw StatusException(InvalidArgument("the event \"", event.value("name", ""), "\" has ", member,
                                        " ", event.at(member).dump(), ", ", rule));
}

// The rank that an event belongs to. Throws StatusException for what is none.
int RankOf(const Json& event) {
  constexpr int64_t kMostRanks = 1 << 16;
  const Json& pid = event.at("pid");
  const int64_t rank = pid.is_number_integer() ? pid.get<int64_t>() : -1;
  if (rank < 0 || rank >= kMostRanks) Refuse(event, "pid", "which is no rank");
  return static_cast<int>(rank);
}

// A time in microseconds, as an event says it. Throws StatusException for what no run can have.
double Micros(const Json& event, const char* member, double least) {
  constexpr double kMost = 1e15;  // 30 years
  const double micros = event.at(member);
  if (!(micros >= least && micros <= kMost)) Refuse(event, member, "which is no time of a run");
  return micros;
}

// When each rank began and ended each step, by step and rank. Throws as below.
std::map<int64_t, std::map<int, Span>> SpansOfSteps(const Json& events) {
  std::map<int64_t, std::map<int, Span>> spans;
  for (const Json& event : events) {
    if (event.at("ph") != "X") continue;
    const std::string name = event.at("name");
    absl::string_view number = name;
    int64_t step = 0;
    if (!absl::ConsumePrefix(&number, "step ") || !absl::SimpleAtoi(number, &step)) continue;
    // A step that took no time cannot be drawn to scale.
    const double begin = Micros(event, "ts", 0), duration = Micros(event, "dur", 1e-3);
    spans[step][RankOf(event)] = {begin, begin + duration};
  }
  return spans;
}

// The lines of communication, by rank and line. Throws as below.
std::set<std::pair<int, int>> CommunicationLines(const Json& events) {
  std::set<std::pair<int, int>> lines;
  for (const Json& event : events) {
    if (event.at("ph") != "M" || event.at("name") != "thread_name") continue;
    const std::string name = event.at("args").at("name");
    if (name.starts_with("communication")) lines.emplace(RankOf(event), event.at("tid"));
  }
  return lines;
}

// What lies within the spans, which are one step's, by rank. Throws nlohmann's exceptions, or
// StatusException, where the events are no trace.
StepTrace TraceWithin(const std::map<int, Span>& spans, const Json& events) {
  double origin = std::numeric_limits<double>::max();
  for (const auto& [rank, span] : spans) origin = std::min(origin, span.begin);
  const auto seconds = [origin](double micros) { return (micros - origin) * 1e-6; };
  StepTrace trace;
  for (const auto& [rank, span] : spans) trace.seconds = std::max(trace.seconds, seconds(span.end));
  trace.ranks.resize(spans.rbegin()->first + 1);
  const std::set<std::pair<int, int>> communication = CommunicationLines(events);
  for (const Json& event : events) {
    const std::string kind = event.at("ph"), name = event.at("name");
    const bool lasts = kind == "X";
    if (!lasts && !(kind == "C" && name == "memory")) continue;
    const auto span = spans.find(RankOf(event));
    if (span == spans.end()) continue;
    const double first = Micros(event, "ts", 0);
    const double last = first + (lasts ? Micros(event, "dur", 0) : 0);
    if (first < span->second.begin || last > span->second.end) continue;
    StepTrace::Rank& rank = trace.ranks[span->first];
    const double begin = seconds(first), end = seconds(last);
    const Json& arguments = event.at("args");
    if (!lasts) {
      rank.memory.push_back({.seconds = begin, .bytes = arguments});
    } else if (communication.contains({span->first, event.at("tid")})) {
      const auto bytes = arguments.value("bytes", int64_t{0});
      rank.calls.push_back({.name = name, .bytes = bytes, .begin = begin, .end = end});
    } else if (const auto* work = std::ranges::find(StepTrace::kWork, name, &WorkKind::name);
               work != std::end(StepTrace::kWork)) {
      const auto micro_batch = arguments.value("micro_batch", int64_t{-1});
      rank.phases.push_back(
          {.work = *work, .micro_batch = micro_batch, .begin = begin, .end = end});
    }
  }
  for (StepTrace::Rank& rank : trace.ranks) {
    std::ranges::sort(rank.phases, {}, &StepTrace::Phase::begin);
    std::ranges::sort(rank.calls, {}, &StepTrace::Call::begin);
  }
  return trace;
}

}  // namespace

absl::StatusOr<StepTrace> ReadStepTrace(const std::string& json, const std::string& name,
                                        std::optional<int64_t> step) try {
  const auto document = ParseJson<Json>(json);
  if (document.is_discarded()) {
    return InvalidArgument(name,
                           " is no trace of a run: it is no JSON; a run with trace.steps > 0 "
                           "leaves one, trace.json");
  }
  const Json& events = document.at("traceEvents");
  const auto spans = SpansOfSteps(events);
  if (spans.empty()) {
    return InvalidArgument(name,
                           " has no step; trace.first_step and trace.steps say which a run keeps");
  }
  const auto wanted = step ? spans.find(*step) : std::prev(spans.end());
  if (wanted == spans.end()) {
    const auto number = [](std::string* out, const auto& of) { absl::StrAppend(out, of.first); };
    return InvalidArgument(name, " does not have step ", *step, ", but ",
                           absl::StrJoin(spans, ", ", number));
  }
  StepTrace trace = TraceWithin(wanted->second, events);
  trace.step = wanted->first;
  return trace;
} catch (const Json::exception& error) {
  return InvalidArgument(name, " is no trace of a run: ", error.what(),
                         "; a run with trace.steps > 0 leaves one, trace.json");
} catch (const StatusException& error) {
  return Annotate(error.status(), absl::StrCat(name, " is no trace of a run"));
}

std::string LabelOf(const StepTrace::Phase& phase) {
  if (phase.micro_batch < 0) return phase.work->name;
  return absl::StrCat(phase.work->name, " of micro-batch ", phase.micro_batch);
}

}  // namespace lockstep
