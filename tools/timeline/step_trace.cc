#include "tools/timeline/step_trace.h"

#include <algorithm>
#include <limits>
#include <map>
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

// As core/train/step_timer.h names phases.
std::optional<StepTrace::Kind> KindOf(const std::string& name) {
  static const auto& kinds =
      *new std::map<std::string, StepTrace::Kind>{{"forward", StepTrace::Kind::kForward},
                                                  {"backward", StepTrace::Kind::kBackward},
                                                  {"optimizer", StepTrace::Kind::kOptimizer},
                                                  {"bubble", StepTrace::Kind::kBubble}};
  const auto found = kinds.find(name);
  if (found == kinds.end()) return std::nullopt;
  return found->second;
}

struct Event {
  int rank;
  std::string name;
  double begin, end;  // microseconds
  int64_t micro_batch;
};

// Those of all ranks that last. Throws nlohmann's exceptions where the text is no trace.
std::vector<Event> Events(const std::string& text) {
  const Json document = Json::parse(text);
  std::vector<Event> events;
  for (const Json& event : document.at("traceEvents")) {
    if (event.at("ph") != "X") continue;
    const double begin = event.at("ts");
    events.push_back({.rank = event.at("pid"),
                      .name = event.at("name"),
                      .begin = begin,
                      .end = begin + event.at("dur").get<double>(),
                      .micro_batch = event.at("args").value("micro_batch", int64_t{-1})});
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
  std::vector<Event> events;
  try {
    events = Events(json);
  } catch (const Json::exception& error) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is no trace of a run: ", error.what(),
                     "; a run with trace.steps > 0 leaves one, trace.json"));
  }
  std::set<int64_t> steps;
  for (const Event& event : events) {
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
  for (const Event& event : events) {
    if (StepOf(event) != trace.step) continue;
    spans[event.rank] = event;
    origin = std::min(origin, event.begin);
  }
  trace.ranks.resize(spans.rbegin()->first + 1);
  for (const auto& [rank, span] : spans) {
    trace.seconds = std::max(trace.seconds, (span.end - origin) * 1e-6);
  }
  for (const Event& event : events) {
    const auto kind = KindOf(event.name);
    const auto span = spans.find(event.rank);
    if (!kind || span == spans.end()) continue;
    if (event.begin < span->second.begin || event.end > span->second.end) continue;
    trace.ranks[event.rank].push_back({.kind = *kind,
                                       .micro_batch = event.micro_batch,
                                       .begin = (event.begin - origin) * 1e-6,
                                       .end = (event.end - origin) * 1e-6});
  }
  for (auto& rank : trace.ranks) {
    std::sort(rank.begin(), rank.end(),
              [](const auto& a, const auto& b) { return a.begin < b.begin; });
  }
  return trace;
}

}  // namespace lockstep
