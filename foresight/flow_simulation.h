// Computation and flows of bytes on a described platform, in simulated time.
//
//   FlowPlatform platform;
//   platform.nodes = 2;
//   ...
//   // Device 0 computes for a second and sends 1 GB to device 1, which waits for it.
//   LS_ASSIGN_OR_RETURN(std::vector<std::vector<double>> times,
//                       SimulateFlows(platform, {{FlowStep::Compute(1), FlowStep::Begin(7, 1,
//                       1e9)},
//                                                {FlowStep::Wait(7)}}));
//
// SimGrid shares the links among the flows that are under way: max-min fairness, in which a flow
// has the rate of the link that limits it, and no rate can grow but at the cost of a smaller one.

#pragma once

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"

namespace lockstep {

// Switches that hang on one core switch, each with nodes, each with devices. Device d of node n of
// switch s has the number (s x nodes + n) x devices + d. All rates are bytes a second in one
// direction; the directions do not disturb each other.
struct FlowPlatform {
  int switches = 1;
  int nodes = 1;    // of a switch
  int devices = 1;  // of a node

  double device_rate = 0;   // of a device, to all others together
  double message_rate = 0;  // at most, of a message in a node; 0: the device's
  double node_rate = 0;     // of a node to the others, over all of its adapters
  double switch_rate = 0;   // of a switch to the others
  double node_latency = 0;  // seconds between devices of a node
  double latency = 0;       // seconds between nodes

  int size() const { return switches * nodes * devices; }
};

// What a device does next.
struct FlowStep {
  enum class Kind : uint8_t {
    kCompute,  // nothing else for `seconds`
    kBegin,    // starts flow `flow` of `bytes` to device `to`, and goes on at once
    kMessage,  // the same, with the platform's message_rate
    kWait,     // until flow `flow` has ended, whoever began it
  };
  Kind kind = Kind::kCompute;
  int flow = 0;  // numbers of the caller's choice, one a flow
  int to = 0;
  double seconds = 0;
  double bytes = 0;  // rounded to whole bytes, at least one

  static FlowStep Compute(double seconds);
  static FlowStep Begin(int flow, int to, double bytes);
  static FlowStep Message(int flow, int to, double bytes);
  static FlowStep Wait(int flow);

  bool is_flow() const { return kind == Kind::kBegin || kind == Kind::kMessage; }
};

// Lets each device take its steps in order, all from time 0. Returns when each step was over, in
// seconds: [device][step]. A flow ends a latency, and the time of its bytes, after it began.
//
// Flows from one device to another share the link, and do not queue: of two that are under way
// together each has half of the rate. Where a second message stays behind the first, its device
// waits for the first one.
//
// Devices that do the same need not all be there: where each link of the platform carries the flows
// that it would carry in the whole machine, the times are the same. So a ring of nodes is two nodes
// that send to each other.
//
// Takes a child process and its memory for the length of a call, and may be called by any thread.
// InvalidArgument names the device and the step of a flow that begins twice, never begins, or goes
// nowhere, of a quantity that is no finite number, and of a wait without end. Internal, with
// SimGrid's own words, where SimGrid gives up.
absl::StatusOr<std::vector<std::vector<double>>> SimulateFlows(
    const FlowPlatform& platform, const std::vector<std::vector<FlowStep>>& devices);

}  // namespace lockstep
