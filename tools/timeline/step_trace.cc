#include "tools/timeline/step_trace.h"

#include <algorithm>
#include <limits>
#include <set>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::json;

struct Event {
  int rank;
  bool communicates;
  std::string name;
  double begin, end;  // microseconds
  int64_t micro_batch, bytes;
};

struct Counter {
  int rank;
  double at;  // microseconds
  std::map<std::string, double> bytes;
};

// Those of all ranks: what lasts, and what is live.
struct Events {
  std::vector<Event> lasting;
  std::vector<Counter> memory;
};

// The lines of communication, by rank and line. Throws as below.
std::set<std::pair<int, int>> CommunicationLines(const Json& events) {
  std::set<std::pair<int, int>> lines;
  for (const Json& event : events) {
    if (event.at("ph") != "M" || event.at("name") != "thread_name") continue;
    const std::string name = event.at("args").at("name");
    if (name.starts_with("communication")) lines.emplace(event.at("pid"), event.at("tid"));
  }
  return lines;
}

// Throws nlohmann's exceptions where the text is no trace.
Events ReadEvents(const std::string& text) {
  const Json document = Json::parse(text);
  const Json& all = document.at("traceEvents");
  const std::set<std::pair<int, int>> communication = CommunicationLines(all);
  Events events;
  for (const Json& event : all) {
    const std::string kind = event.at("ph");
    if (kind == "C" && event.at("name") == "memory") {
      events.memory.push_back(
          {.rank = event.at("pid"), .at = event.at("ts"), .bytes = event.at("args")});
    }
    if (kind != "X") continue;
    const double begin = event.at("ts");
    const Json& arguments = event.at("args");
    events.lasting.push_back(
        {.rank = event.at("pid"),
         .communicates = communication.contains({event.at("pid"), event.at("tid")}),
         .name = event.at("name"),
         .begin = begin,
         .end = begin + event.at("dur").get<double>(),
         .micro_batch = arguments.value("micro_batch", int64_t{-1}),
         .bytes = arguments.value("bytes", int64_t{0})});
  }
  return events;
}

// Of an event that spans a step, its number.
std::optional<int64_t> StepOf(const Event& event) {
  absl::string_view text = event.name;
  int64_t step = 0;
  if (!absl::ConsumePrefix(&text, "step ") || !absl::SimpleAtoi(text, &step)) return std::nullopt;
  return step;
}

}  // namespace

absl::StatusOr<StepTrace> ReadStepTrace(const std::string& json, const std::string& name,
                                        std::optional<int64_t> step) {
  Events events;
  try {
    events = ReadEvents(json);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is no trace of a run: ", error.what(),
                     "; a run with trace.steps > 0 leaves one, trace.json"));
  }
  std::set<int64_t> steps;
  for (const Event& event : events.lasting) {
    if (const auto number = StepOf(event)) steps.insert(*number);
  }
  if (steps.empty()) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " has no step; trace.first_step and trace.steps say which a run keeps"));
  }
  StepTrace trace = {.step = step.value_or(*steps.rbegin()), .ranks = {}};
  if (!steps.contains(trace.step)) {
    return absl::InvalidArgumentError(absl::StrCat(name, " does not have step ", trace.step,
                                                   ", but ", absl::StrJoin(steps, ", ")));
  }
  std::map<int, Event> spans;  // the step, by rank
  double origin = std::numeric_limits<double>::max();
  for (const Event& event : events.lasting) {
    if (StepOf(event) != trace.step) continue;
    spans[event.rank] = event;
    origin = std::min(origin, event.begin);
  }
  trace.ranks.resize(spans.rbegin()->first + 1);
  for (const auto& [rank, span] : spans) {
    trace.seconds = std::max(trace.seconds, (span.end - origin) * 1e-6);
  }
  const auto within = [&spans](int rank, double begin, double end) {
    const auto span = spans.find(rank);
    return span != spans.end() && begin >= span->second.begin && end <= span->second.end;
  };
  const auto seconds = [origin](double micros) { return (micros - origin) * 1e-6; };
  for (const Event& event : events.lasting) {
    if (!within(event.rank, event.begin, event.end)) continue;
    StepTrace::Rank& rank = trace.ranks[event.rank];
    if (event.communicates) {
      rank.calls.push_back({.name = event.name,
                            .bytes = event.bytes,
                            .begin = seconds(event.begin),
                            .end = seconds(event.end)});
      continue;
    }
    for (const Work* work : StepTrace::kWork) {
      if (event.name != work->name) continue;
      rank.phases.push_back({.work = work,
                             .micro_batch = event.micro_batch,
                             .begin = seconds(event.begin),
                             .end = seconds(event.end)});
    }
  }
  for (const Counter& counter : events.memory) {
    if (!within(counter.rank, counter.at, counter.at)) continue;
    trace.ranks[counter.rank].memory.push_back(
        {.seconds = seconds(counter.at), .bytes = counter.bytes});
  }
  for (StepTrace::Rank& rank : trace.ranks) {
    std::ranges::sort(rank.phases, {}, &StepTrace::Phase::begin);
    std::ranges::sort(rank.calls, {}, &StepTrace::Call::begin);
  }
  return trace;
}

std::string LabelOf(const StepTrace::Phase& phase) {
  if (phase.micro_batch < 0) return phase.work->name;
  return absl::StrCat(phase.work->name, " of micro-batch ", phase.micro_batch);
}

}  // namespace lockstep
