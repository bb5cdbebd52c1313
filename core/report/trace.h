// What one rank did and when, for the steps that somebody wants to look at.
//
//   trace.Add({.name = "load", .track = TraceTrack::kData, .start_nanos = begin, ...});
//
// WriteChromeTrace (chrome_trace.h) makes a picture of all ranks from it.

#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "core/config/trace_window.h"
#include "core/tensor/memory.h"

namespace lockstep {

// The line of a rank that an event is drawn on.
enum class TraceTrack { kCompute, kCommunication, kData };

// Where the arrows of a flow leave and arrive.
enum class FlowEnd {
  kMember,  // of a collective: arrows lead from each member that began to the next one
  kSource,  // sends a message
  kTarget,  // receives it
};

// Something that took time. Times are those of NowNanos.
struct TraceEvent {
  std::string name;  // "forward", "all_reduce"
  TraceTrack track = TraceTrack::kCompute;
  int64_t start_nanos = 0;
  int64_t duration_nanos = 0;

  // Shown when not negative, or not empty.
  int64_t micro_batch = -1;
  int64_t bytes = -1;
  int64_t sequence = -1;    // of a collective or message
  std::string detail = {};  // the group, the layer, ...

  // Events of one collective or transfer carry the same text here, on whatever rank, and arrows are
  // drawn between them: "dp [0, 2] 11". Empty: no arrows.
  std::string flow = {};
  FlowEnd flow_end = FlowEnd::kMember;
};

// What a trace has kept.
struct TraceRecord {
  int rank = 0;
  std::vector<TraceEvent> events = {};    // in the order of their adding
  std::vector<MemorySample> memory = {};  // oldest first
};

// The events of one rank, and the memory that it had meanwhile. Outside its window of steps it
// records nothing, takes no memory, and costs one relaxed load. Thread-safe: the rank's threads for
// compute, communication and data all add.
class Trace {
 public:
  Trace(int rank, TraceWindow window) : window_(window), record_{.rank = rank} {}
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  // Step `step` begins: from here to the next call, events are kept if it lies in the window.
  void BeginStep(int64_t step);

  // Whether events are kept now.
  bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

  // Keeps the event if enabled().
  void Add(TraceEvent event);

  // Keeps what an allocator noted during a step, later than what was added before, if enabled().
  void AddMemory(const std::vector<MemorySample>& samples);

  // All that was kept so far.
  TraceRecord Record() const;

 private:
  const TraceWindow window_;
  std::atomic<bool> enabled_ = false;
  mutable std::mutex mutex_;
  TraceRecord record_;
};

}  // namespace lockstep
