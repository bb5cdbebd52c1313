#include "foresight/flow_simulation.h"

#include <sys/mman.h>  // memfd_create, mmap
#include <sys/wait.h>  // waitpid
#include <unistd.h>    // dup2, fork, lseek, read

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <exception>
#include <limits>
#include <map>
#include <set>
#include <simgrid/s4u.hpp>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

namespace s4u = simgrid::s4u;
using NetPoint = simgrid::kernel::routing::NetPoint;
using Links = std::vector<s4u::LinkInRoute>;

// How many operations a device computes in a second: a step of t seconds is t * kSpeed operations.
// The number is large because SimGrid ends work when a fraction of an operation remains.
constexpr double kSpeed = 1e9;
// Computation and the latencies of flows go on side by side on a device, each on a core.
constexpr int kCores = 1 << 20;

// A link that no flow takes may have no rate.
Links MakeLink(s4u::NetZone* zone, const std::string& name, double rate) {
  return {s4u::LinkInRoute(zone->create_link(name, rate > 0 ? rate : 1)->seal())};
}

// A member of a zone, a host or another zone, sends over `up` and receives over `down`. `gateway`:
// where flows enter a zone; null for hosts.
void Connect(s4u::NetZone* zone, NetPoint* member, NetPoint* gateway, const Links& up,
             const Links& down) {
  zone->add_route(member, nullptr, gateway, nullptr, up, false);
  zone->add_route(nullptr, member, nullptr, gateway, down, false);
}

// The two hosts that stand for a device.
struct Hosts {
  s4u::Host* device;    // computes; its flows begin and end here
  s4u::Host* messages;  // messages within the node begin here, and pass one more link
};

// Links have no latency here: SimGrid would give flows of longer latency less of a link, as TCP
// does. Latencies are work of their own before each flow.
std::vector<Hosts> BuildPlatform(const FlowPlatform& platform) {
  std::vector<Hosts> hosts;
  s4u::NetZone* core = s4u::create_star_zone("core");
  for (int s = 0; s < platform.switches; ++s) {
    const std::string of_switch = absl::StrCat("switch", s);
    s4u::NetZone* zone = s4u::create_star_zone(of_switch)->set_parent(core);
    // A zone of its own: from a gateway that stands beside zones, SimGrid finds no way into them.
    s4u::NetZone* entry = s4u::create_star_zone(of_switch + "_entry")->set_parent(zone);
    NetPoint* gateway = entry->create_router(of_switch + "_gateway");
    entry->seal();
    Connect(zone, entry->get_netpoint(), gateway, {}, {});
    for (int n = 0; n < platform.nodes; ++n) {
      const std::string of_node = absl::StrCat(of_switch, "_node", n);
      s4u::NetZone* node = s4u::create_star_zone(of_node)->set_parent(zone);
      NetPoint* node_gateway = node->create_router(of_node + "_gateway");
      for (int d = 0; d < platform.devices; ++d) {
        const std::string name = absl::StrCat(of_node, "_device", d);
        s4u::Host* host = node->create_host(name, kSpeed)->set_core_count(kCores)->seal();
        Links up = MakeLink(node, name + "_up", platform.device_rate);
        const Links down = MakeLink(node, name + "_down", platform.device_rate);
        Connect(node, host->get_netpoint(), nullptr, up, down);
        hosts.push_back({host, host});
        if (platform.message_rate > 0) {
          // Bounds each flow; flows do not share it.
          up.emplace_back(node->create_link(name + "_message", platform.message_rate)
                              ->set_sharing_policy(s4u::Link::SharingPolicy::FATPIPE)
                              ->seal());
          hosts.back().messages = node->create_host(name + "_messages", kSpeed)->seal();
          Connect(node, hosts.back().messages->get_netpoint(), nullptr, up, down);
        }
      }
      node->seal();
      Connect(zone, node->get_netpoint(), node_gateway,
              MakeLink(zone, of_node + "_up", platform.node_rate),
              MakeLink(zone, of_node + "_down", platform.node_rate));
    }
    zone->seal();
    Connect(core, zone->get_netpoint(), gateway,
            MakeLink(core, of_switch + "_up", platform.switch_rate),
            MakeLink(core, of_switch + "_down", platform.switch_rate));
  }
  core->seal();
  return hosts;
}

// The steps of all devices as tasks, of which each starts when those before it have ended: without
// SimGrid's actors, and so without their stacks. SimGrid knows of a task only while it runs: it
// looks for one that ends among all that it knows.
class Tasks {
 public:
  Tasks(const FlowPlatform& platform, const std::vector<std::vector<FlowStep>>& devices)
      : platform_(platform), devices_(devices), hosts_(BuildPlatform(platform)) {
    for (size_t device = 0; device < devices_.size(); ++device) {
      for (const FlowStep& step : devices_[device]) {
        if (step.is_flow()) flows_[step.flow] = AddFlow(static_cast<int>(device), step);
      }
    }
    for (size_t device = 0; device < devices_.size(); ++device) Order(static_cast<int>(device));
  }

  // Writes when each step was over, device by device; NaN where that never came.
  void Run(const s4u::Engine& engine, double* over) {
    s4u::Activity::on_completion_cb([this](const s4u::Activity& activity) {
      Task& task = *activity.get_data<Task>();
      task.end = s4u::Engine::get_clock();
      for (const size_t next : task.next) {
        if (--tasks_[next].unmet == 0) Start(tasks_[next]);
      }
    });
    std::vector<Task*> first;
    for (Task& task : tasks_) {
      if (task.unmet == 0) first.push_back(&task);
    }
    for (Task* task : first) Start(*task);
    engine.run();

    auto work = work_.begin();
    for (const std::vector<FlowStep>& steps : devices_) {
      double now = 0;
      for (const FlowStep& step : steps) {
        if (step.kind == FlowStep::Kind::kWait) {
          const double end = tasks_[flows_.at(step.flow)].end;
          now = std::isnan(end) ? end : std::max(now, end);  // of a NaN: now
        } else if (step.kind == FlowStep::Kind::kCompute && step.seconds > 0) {
          now = tasks_[*work++].end;
        }
        *over++ = now;
      }
    }
  }

 private:
  struct Task {
    s4u::Host* from = nullptr;
    s4u::Host* to = nullptr;  // of a flow; null: work
    double amount = 0;        // bytes, or seconds
    int unmet = 0;            // tasks before it that have not ended
    std::vector<size_t> next;
    double end = std::numeric_limits<double>::quiet_NaN();
    s4u::ActivityPtr activity;
  };

  bool InNode(int device, int other) const {
    return device / platform_.devices == other / platform_.devices;
  }

  size_t Add(s4u::Host* from, s4u::Host* to, double amount) {
    Task task;
    task.from = from;
    task.to = to;
    task.amount = amount;
    tasks_.push_back(std::move(task));
    return tasks_.size() - 1;
  }

  size_t AddFlow(int device, const FlowStep& step) {
    const bool message = step.kind == FlowStep::Kind::kMessage && InNode(device, step.to);
    return Add(message ? hosts_[device].messages : hosts_[device].device, hosts_[step.to].device,
               std::max(1., std::round(step.bytes)));
  }

  void Follow(size_t first, size_t second) {
    tasks_[first].next.push_back(second);
    ++tasks_[second].unmet;
  }

  // Each step of the device behind those that it must await.
  void Order(int device) {
    std::vector<size_t> awaited;
    const auto follow = [&](size_t task) {
      for (const size_t before : awaited) Follow(before, task);
    };
    for (const FlowStep& step : devices_[device]) {
      if (step.kind == FlowStep::Kind::kWait) {
        awaited.push_back(flows_.at(step.flow));
      } else if (step.is_flow()) {
        const size_t flow = flows_.at(step.flow);
        const double latency = InNode(device, step.to) ? platform_.node_latency : platform_.latency;
        if (latency > 0) {
          const size_t on_the_way = Add(hosts_[device].device, nullptr, latency);
          follow(on_the_way);
          Follow(on_the_way, flow);
        } else {
          follow(flow);
        }
      } else if (step.seconds > 0) {
        work_.push_back(Add(hosts_[device].device, nullptr, step.seconds));
        follow(work_.back());
        awaited = {work_.back()};
      }
    }
  }

  static void Start(Task& task) {
    if (task.to != nullptr) {
      const s4u::CommPtr flow = s4u::Comm::sendto_init(task.from, task.to);
      flow->set_payload_size(static_cast<uint64_t>(task.amount));
      task.activity = flow;
    } else {
      const s4u::ExecPtr work = s4u::Exec::init();
      work->set_flops_amount(task.amount * kSpeed);
      work->set_host(task.from);
      task.activity = work;
    }
    task.activity->set_data(&task);
    task.activity->vetoable_start();
  }

  const FlowPlatform& platform_;
  const std::vector<std::vector<FlowStep>>& devices_;
  std::vector<Hosts> hosts_;
  std::vector<Task> tasks_;
  std::map<int, size_t> flows_;  // their tasks
  std::vector<size_t> work_;     // what devices compute, device by device, in order
};

void Simulate(const FlowPlatform& platform, const std::vector<std::vector<FlowStep>>& devices,
              double* over) {
  std::string arguments[] = {
      "simulation", "--log=root.thresh:critical",
      // Flows have the bandwidth that is described; the default model takes some for TCP's headers.
      "--cfg=network/model:CM02",
      "--cfg=network/crosstraffic:0",  // no acknowledgements on the way back
      "--cfg=surf/precision:1e-9",     // seconds
      "--cfg=maxmin/precision:1e-9",   // of a link's rate
  };
  std::vector<char*> argv;
  for (std::string& argument : arguments) argv.push_back(argument.data());
  int argc = static_cast<int>(argv.size());
  const s4u::Engine engine(&argc, argv.data());
  Tasks(platform, devices).Run(engine, over);
}

// What a child process wrote to its standard error, for a message.
std::string LastWords(int file) {
  std::string words(2000, '\0');
  const off_t size = lseek(file, 0, SEEK_END);
  const ssize_t count = pread(file, words.data(), words.size(), std::max<off_t>(0, size - 2000));
  words.resize(static_cast<size_t>(std::max<ssize_t>(0, count)));
  return words;
}

// Simulates in a child process. SimGrid is made for one simulation a process, and ends the process
// where it meets an error; what it prints, and the signals that it takes over, stay there too.
absl::Status SimulateInChild(const FlowPlatform& platform,
                             const std::vector<std::vector<FlowStep>>& devices, double* over) {
  const int words = memfd_create("simulation", MFD_CLOEXEC);
  if (words < 0) return absl::ErrnoToStatus(errno, "cannot simulate the network");
  const pid_t child = fork();
  if (child == 0) {
    dup2(words, STDOUT_FILENO);
    dup2(words, STDERR_FILENO);
    for (const int number : {SIGABRT, SIGSEGV, SIGBUS, SIGFPE, SIGILL}) signal(number, SIG_DFL);
    try {
      Simulate(platform, devices, over);
    } catch (const std::exception& error) {
      dprintf(STDERR_FILENO, "%s\n", error.what());
      _exit(1);
    }
    _exit(0);  // without the parent's atexit handlers, and its buffers
  }
  absl::Status status;
  int ended = 0;
  if (child < 0) {
    status = absl::ErrnoToStatus(errno, "cannot simulate the network: no child process");
  } else {
    while (waitpid(child, &ended, 0) < 0) PCHECK(errno == EINTR) << "waitpid";
    if (ended != 0) {
      status = absl::InternalError(
          absl::StrCat("SimGrid gave up on a simulation of the network: ", LastWords(words)));
    }
  }
  close(words);
  return status;
}

bool IsTime(double value) { return std::isfinite(value) && value >= 0; }

absl::Status CheckPlatform(const FlowPlatform& platform) {
  if (platform.switches < 1 || platform.nodes < 1 || platform.devices < 1) {
    return InvalidArgument("a platform needs at least one switch, node and device");
  }
  const auto rate = [](const char* name, bool used, double value) {
    return !used || (std::isfinite(value) && value > 0)
               ? absl::OkStatus()
               : InvalidArgument("the ", name, " rate of a platform is ", value,
                                 " bytes/s; it must be finite and above zero");
  };
  LS_RETURN_IF_ERROR(rate("device", platform.size() > 1, platform.device_rate));
  LS_RETURN_IF_ERROR(rate("node", platform.nodes > 1 || platform.switches > 1, platform.node_rate));
  LS_RETURN_IF_ERROR(rate("switch", platform.switches > 1, platform.switch_rate));
  LS_RETURN_IF_ERROR(rate("message", platform.message_rate != 0, platform.message_rate));
  if (!IsTime(platform.node_latency) || !IsTime(platform.latency)) {
    return InvalidArgument("a platform's latencies must be finite and not below zero");
  }
  return absl::OkStatus();
}

absl::Status CheckSteps(const FlowPlatform& platform,
                        const std::vector<std::vector<FlowStep>>& devices) {
  if (static_cast<int>(devices.size()) != platform.size()) {
    return InvalidArgument("steps of ", devices.size(), " devices for a platform of ",
                           platform.size());
  }
  std::set<int> begun;
  const auto visit = [&](auto check) -> absl::Status {
    for (size_t device = 0; device < devices.size(); ++device) {
      for (size_t i = 0; i < devices[device].size(); ++i) {
        const std::string problem = check(static_cast<int>(device), devices[device][i]);
        if (!problem.empty()) {
          return InvalidArgument("device ", device, ", step ", i, ": ", problem);
        }
      }
    }
    return absl::OkStatus();
  };
  LS_RETURN_IF_ERROR(visit([&](int device, const FlowStep& step) -> std::string {
    if (!IsTime(step.seconds) || !IsTime(step.bytes) || step.bytes > 1e18) {
      return absl::StrCat("seconds ", step.seconds, " and bytes ", step.bytes,
                          " must be finite and not below zero, bytes at most 1e18");
    }
    if (!step.is_flow()) return "";
    if (step.to < 0 || step.to >= platform.size() || step.to == device) {
      return absl::StrCat("flow ", step.flow, " goes to device ", step.to,
                          ", which must be another one of the platform's ", platform.size());
    }
    if (!begun.insert(step.flow).second) {
      return absl::StrCat("flow ", step.flow, " begins a second time");
    }
    return "";
  }));
  return visit([&](int, const FlowStep& step) -> std::string {
    if (step.kind != FlowStep::Kind::kWait || begun.count(step.flow) > 0) return "";
    return absl::StrCat("waits for flow ", step.flow, ", which nobody begins");
  });
}

}  // namespace

FlowStep FlowStep::Compute(double seconds) {
  FlowStep step;
  step.seconds = seconds;
  return step;
}

FlowStep FlowStep::Begin(int flow, int to, double bytes) {
  FlowStep step;
  step.kind = Kind::kBegin;
  step.flow = flow;
  step.to = to;
  step.bytes = bytes;
  return step;
}

FlowStep FlowStep::Message(int flow, int to, double bytes) {
  FlowStep step = Begin(flow, to, bytes);
  step.kind = Kind::kMessage;
  return step;
}

FlowStep FlowStep::Wait(int flow) {
  FlowStep step;
  step.kind = Kind::kWait;
  step.flow = flow;
  return step;
}

absl::StatusOr<std::vector<std::vector<double>>> SimulateFlows(
    const FlowPlatform& platform, const std::vector<std::vector<FlowStep>>& devices) {
  LS_RETURN_IF_ERROR(CheckPlatform(platform));
  LS_RETURN_IF_ERROR(CheckSteps(platform, devices));
  size_t steps = 0;
  for (const std::vector<FlowStep>& of_device : devices) steps += of_device.size();
  std::vector<std::vector<double>> times(devices.size());
  if (steps == 0) return times;

  // The child writes its results where the parent reads them.
  const size_t bytes = steps * sizeof(double);
  void* memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) return absl::ErrnoToStatus(errno, "cannot simulate the network");
  double* over = static_cast<double*>(memory);
  const absl::Status status = SimulateInChild(platform, devices, over);
  const double* next = over;
  for (size_t device = 0; device < devices.size(); ++device) {
    times[device].assign(next, next + devices[device].size());
    next += devices[device].size();
  }
  munmap(memory, bytes);
  LS_RETURN_IF_ERROR(status);
  for (size_t device = 0; device < devices.size(); ++device) {
    for (size_t i = 0; i < times[device].size(); ++i) {
      if (std::isfinite(times[device][i])) continue;
      return InvalidArgument("device ", device, ", step ", i,
                             ": waits for ever, for a flow that in the end waits for this device");
    }
  }
  return times;
}

}  // namespace lockstep
