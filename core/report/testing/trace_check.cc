#include "core/report/testing/trace_check.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::json;
using Thread = std::pair<int64_t, int64_t>;  // process and thread

constexpr char kCommunication[] = "communication";

// What stops the check.
struct Fault {
  std::string text;
};

[[noreturn]] void Fail(const Json& event, const std::string& what) {
  throw Fault{absl::StrCat(what, ": ", event.dump())};
}

void Require(bool holds, const Json& event, const char* what) {
  if (!holds) Fail(event, what);
}

// As Perfetto reads microseconds.
int64_t Nanos(const Json& event, const char* name) {
  Require(event.contains(name) && event.at(name).is_number(), event, "no time");
  const double micros = event.at(name);
  Require(micros >= 0, event, "negative time");
  return static_cast<int64_t>(micros * 1000);
}

// As chrome://tracing rounds them.
int64_t Micros(int64_t nanos) { return (nanos + 500) / 1000; }

struct Slice {
  std::string name, category;
  int64_t begin, end;
};

struct ArrowEnd {
  Json event;
  std::string call;  // that it touches
};

class TraceCheck {
 public:
  void Check(const Json& document) {
    for (const Json& event : document.at("traceEvents")) {
      const std::string phase = event.at("ph");
      Require(event.at("pid").is_number_integer() && event.at("tid").is_number_integer(), event,
              "no process and thread");
      Require(event.at("name").is_string() && event.at("name") != "", event, "no name");
      if (phase == "M") {
        AddName(event);
        continue;
      }
      has_events_ = true;
      Require(event.at("cat").is_string() && event.at("cat") != "", event, "no category");
      Require(processes_.contains(event.at("pid")), event, "a process without a name");
      Require(threads_.contains(ThreadOf(event)), event, "a thread without a name");
      if (phase == "X") {
        AddSlice(event);
      } else if (phase == "C") {
        AddSample(event);
      } else if (phase == "s" || phase == "t" || phase == "f") {
        arrows_[{event.at("cat"), event.at("id").dump()}].push_back(
            {.event = event, .call = CallAround(event)});
      } else {
        Fail(event, "an unknown kind of event");
      }
    }
    for (const auto& entry : arrows_) CheckArrow(entry.second);
  }

 private:
  static Thread ThreadOf(const Json& event) { return {event.at("pid"), event.at("tid")}; }

  void AddName(const Json& event) {
    Require(!has_events_, event, "a name behind events");
    const std::string what = event.at("name");
    if (what == "process_name") {
      Require(processes_.insert(ThreadOf(event).first).second, event, "a process with two names");
    } else if (what == "thread_name") {
      Require(threads_.insert(ThreadOf(event)).second, event, "a thread with two names");
      Require(thread_numbers_.insert(ThreadOf(event).second).second, event,
              "a thread's number in two processes");
    } else {
      Require(what == "process_sort_index" || what == "thread_sort_index", event,
              "an unknown kind of metadata");
      Require(event.at("args").at("sort_index").is_number_integer(), event, "no sort_index");
      return;
    }
    Require(event.at("args").at("name").is_string(), event, "no name");
  }

  void AddSlice(const Json& event) {
    const int64_t begin = Nanos(event, "ts"), end = begin + Nanos(event, "dur");
    Require(event.at("args").is_object(), event, "args are no object");
    std::vector<Slice>& slices = slices_[ThreadOf(event)];
    std::vector<int64_t>& open = open_[ThreadOf(event)];  // where those around it end
    Require(slices.empty() || slices.back().begin <= begin, event, "before an earlier event");
    while (!open.empty() && open.back() <= begin) open.pop_back();
    Require(open.empty() || end <= open.back(), event, "overlaps another event of its thread");
    Require(event.at("cat") != kCommunication || slices.empty() ||
                Micros(slices.back().end) < Micros(begin),
            event, "no microsecond behind another call");
    open.push_back(end);
    slices.push_back(
        {.name = event.at("name"), .category = event.at("cat"), .begin = begin, .end = end});
  }

  void AddSample(const Json& event) {
    std::set<std::string> series;
    for (const auto& [name, value] : event.at("args").items()) {
      Require(value.is_number() && value >= 0, event, "a series that is no amount");
      series.insert(name);
    }
    const int64_t at = Nanos(event, "ts");
    const auto last = counters_
                          .try_emplace(std::pair(event.at("pid").get<int64_t>(),
                                                 event.at("name").get<std::string>()),
                                       std::pair(at, series))
                          .first;
    Require(last->second.first <= at, event, "before an earlier sample");
    Require(last->second.second == series, event, "other series than before");
    last->second.first = at;
  }

  std::string CallAround(const Json& event) {
    const int64_t at = Nanos(event, "ts");
    const std::vector<Slice>& slices = slices_[ThreadOf(event)];
    const auto around = std::find_if(slices.rbegin(), slices.rend(), [at](const Slice& slice) {
      return slice.begin <= at && at <= slice.end;
    });
    Require(around != slices.rend(), event, "an arrow that touches no event");
    Require(around->category == kCommunication, event, "an arrow to what is no communication");
    return around->name;
  }

  static void CheckArrow(const std::vector<ArrowEnd>& ends) {
    Require(ends.size() > 1, ends[0].event, "an arrow without start or end");
    std::set<int64_t> processes;
    std::set<std::string> calls;
    for (size_t i = 0; i < ends.size(); ++i) {
      const Json& event = ends[i].event;
      const char* phase = i == 0 ? "s" : i + 1 < ends.size() ? "t" : "f";
      Require(event.at("ph") == phase, event, "an arrow without start or end, or with two");
      Require(i == 0 || Nanos(ends[i - 1].event, "ts") <= Nanos(event, "ts"), event,
              "an arrow back in time");
      processes.insert(event.at("pid").get<int64_t>());
      calls.insert(ends[i].call);
    }
    const Json& last = ends.back().event;
    Require(last.value("bp", "") == "e", last, "an arrow that ends in the next event");
    Require(processes.size() == ends.size(), last, "an arrow within a process");
    const bool is_message = ends.size() == 2 && ends[0].call.starts_with("send ") &&
                            ends[1].call == "recv " + ends[0].call.substr(sizeof("send ") - 1);
    Require(calls.size() == 1 || is_message, last, "an arrow between different calls");
    Require(is_message || !calls.begin()->starts_with("send "), last, "a message to nobody");
  }

  bool has_events_ = false;
  std::set<int64_t> processes_, thread_numbers_;
  std::set<Thread> threads_;
  std::map<Thread, std::vector<Slice>> slices_;
  std::map<Thread, std::vector<int64_t>> open_;
  // The time of each counter's last sample, and its series.
  std::map<std::pair<int64_t, std::string>, std::pair<int64_t, std::set<std::string>>> counters_;
  std::map<std::pair<std::string, std::string>, std::vector<ArrowEnd>> arrows_;  // category, id
};

}  // namespace

std::string TraceFault(const std::string& json) {
  try {
    TraceCheck().Check(Json::parse(json));
  } catch (const Fault& fault) {
    return fault.text;
  } catch (const Json::exception& error) {
    return error.what();
  }
  return "";
}

}  // namespace lockstep
