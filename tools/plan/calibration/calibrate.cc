// Measures this machine and writes its cluster file, by which every run then predicts the time of
// its step:
//
//   ./bazelw run //tools/plan:calibrate
//
// Takes at most 90 s: on a machine that is busy, or slow, fewer models are measured in that time.
// Nothing else should compute meanwhile: what does is seen and reported.

#include <sys/resource.h>  // getrusage
#include <unistd.h>        // sysconf

#include <algorithm>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/clock.h"
#include "core/base/file.h"
#include "core/base/flags.h"
#include "core/base/parallel.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/comm/mpi/process.h"
#include "foresight/cluster.h"
#include "foresight/machine_file.h"
#include "tools/bench/core_binding.h"
#include "tools/experiment/outputs.h"
#include "tools/experiment/paths.h"
#include "tools/plan/calibration/fastest_kernels.h"
#include "tools/plan/calibration/timed_calls.h"
#include "tools/plan/calibration/timed_training.h"

ABSL_FLAG(std::string, out, "", "the file to write; empty: where runs look for it");

namespace lockstep {
namespace {

constexpr double kSecondsOfCalls = 4;     // for each kind of ranks and number of them
constexpr double kSecondsOfMemory = 0.5;  // of three
constexpr double kSecondsOfVisits = 76;   // and a model that is begun then is brought to its end
constexpr double kSecondsOfSuspects = 8;  // for models that were disturbed
// How often each model is measured. What disturbs a machine often lasts a few seconds: the visits
// lie farther apart.
constexpr int kVisits = 2;

// Models whose sizes span those of our experiments, as far apart as rates change little.
std::vector<std::vector<std::string>> Models() {
  std::vector<std::vector<std::string>> models;
  const auto gpt = [&](int width, int heads, int context, int batch, int vocabulary,
                       const std::vector<std::string>& more = {}) {
    models.push_back({"model.kind=transformer", absl::StrCat("model.layers=", width < 400 ? 2 : 1),
                      absl::StrCat("model.heads=", heads), absl::StrCat("model.width=", width),
                      "data.kind=markov", absl::StrCat("data.vocabulary=", vocabulary),
                      "data.order=1", absl::StrCat("data.context=", context),
                      absl::StrCat("batch.size=", batch), "optimizer.kind=adamw",
                      "schedule.learning_rate=1e-4", "train.clip_norm=1.0"});
    models.back().insert(models.back().end(), more.begin(), more.end());
  };
  const auto resnet = [&](int width, int batch, const std::vector<std::string>& more = {}) {
    models.push_back({"model.kind=resnet", "model.depth=18", "model.stem=cifar",
                      absl::StrCat("model.width=", width), "data.kind=shapes",
                      absl::StrCat("batch.size=", batch), "optimizer.kind=sgd",
                      "optimizer.momentum=0.9", "schedule.learning_rate=0.01"});
    models.back().insert(models.back().end(), more.begin(), more.end());
  };
  const auto llama = [&](int width, int heads, int context, int batch, int vocabulary,
                         const std::vector<std::string>& more = {}) {
    models.push_back(
        {"model.kind=llama", "model.layers=1", absl::StrCat("model.heads=", heads),
         absl::StrCat("model.key_heads=", heads / 2), absl::StrCat("model.width=", width),
         "data.kind=markov", absl::StrCat("data.vocabulary=", vocabulary), "data.order=1",
         absl::StrCat("data.context=", context), absl::StrCat("batch.size=", batch),
         "optimizer.kind=adamw", "schedule.learning_rate=1e-4", "train.clip_norm=1.0"});
    models.back().insert(models.back().end(), more.begin(), more.end());
  };
  gpt(32, 2, 32, 8, 32);
  gpt(64, 8, 64, 4, 64);
  gpt(64, 4, 64, 16, 16);
  gpt(64, 2, 128, 4, 256);
  gpt(128, 4, 64, 8, 64);
  gpt(128, 8, 128, 12, 512);
  gpt(256, 4, 128, 4, 64);
  gpt(256, 8, 64, 12, 128);
  gpt(384, 6, 256, 2, 64);
  gpt(512, 16, 64, 8, 256);
  const std::vector<std::string> leaves = {"cut.features=2", "cut.tokens=2"};
  gpt(64, 4, 64, 8, 16, leaves);
  gpt(128, 4, 64, 8, 64, leaves);
  gpt(256, 8, 64, 8, 128, leaves);
  gpt(128, 4, 64, 12, 64, {"lora.rank=4", "lora.layers=['*']"});
  gpt(256, 4, 64, 8, 64, {"lora.rank=8", "lora.layers=['*']"});
  llama(64, 4, 64, 8, 32);
  llama(128, 4, 128, 8, 64);
  llama(256, 8, 64, 8, 256);
  llama(384, 6, 256, 2, 64);
  llama(64, 8, 64, 16, 16, leaves);
  llama(192, 4, 64, 8, 64, leaves);
  const auto experts = [](int count, int width) {
    return std::vector<std::string>{absl::StrCat("model.experts.count=", count),
                                    "model.experts.top_k=2",
                                    absl::StrCat("model.experts.width=", width)};
  };
  llama(64, 4, 64, 16, 32, experts(8, 96));
  llama(128, 4, 64, 8, 64, experts(4, 192));
  llama(256, 8, 64, 8, 128, experts(2, 512));
  resnet(8, 4);
  resnet(8, 32);
  resnet(12, 12);
  resnet(16, 8);
  resnet(16, 32);
  resnet(24, 16);
  resnet(20, 12);
  resnet(32, 4);
  resnet(32, 16);
  resnet(40, 12);
  resnet(64, 4);
  resnet(16, 16, {"cut.features=2"});
  resnet(24, 16, {"lora.rank=4", "lora.layers=['*']"});
  return models;
}

// Who computes at the same time: ranks and threads of each, at both ends of what a run may choose.
std::vector<std::pair<int, int>> Placements(int cores) {
  if (cores == 1) return {{1, 1}};
  return {{1, cores}, {1, 1}, {cores, 1}};
}

// Progress on a line that is drawn again; nothing where nobody watches.
void Show(const std::string& text, double share) {
  if (isatty(STDERR_FILENO) == 0) return;
  std::fprintf(stderr, "\r\033[K%3.0f %%  %s", 100 * share, text.c_str());
  if (share >= 1) std::fputs("\n", stderr);
}

// Seconds that all processors were busy since the machine started; negative if it does not say.
double BusySeconds() {
  std::ifstream file("/proc/stat");
  std::string word;
  double user = 0, nice = 0, system = 0;
  if (!(file >> word >> user >> nice >> system) || word != "cpu") return -1;
  return (user + nice + system) / static_cast<double>(sysconf(_SC_CLK_TCK));
}
// Those that this process was, and the processes that it has started.
double OwnSeconds() {
  double seconds = 0;
  for (const auto who : {RUSAGE_SELF, RUSAGE_CHILDREN}) {
    rusage usage = {};
    getrusage(who, &usage);
    for (const timeval& time : {usage.ru_utime, usage.ru_stime}) {
      seconds += static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
    }
  }
  return seconds;
}

// Notices what else computes.
class Neighbours {
 public:
  // Cores that others have kept busy since the object was made.
  double cores() const {
    const double busy = BusySeconds() - busy_, own = OwnSeconds() - own_;
    return std::max(0.0, busy - own) / std::max(0.01, SecondsSince(begin_));
  }

 private:
  const double busy_ = BusySeconds(), own_ = OwnSeconds();
  const int64_t begin_ = NowNanos();
};

// Bytes a second that all cores together read and write, copying memory far beyond the caches.
double MemoryBandwidth(int cores) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  std::vector<char> from(kBytes, 1), to(kBytes, 2);
  SetThreads(cores);
  double best = 0;
  const int64_t begin = NowNanos();
  do {
    const int64_t copy = NowNanos();
    ParallelFor(kBytes, 4096, [&](int64_t first, int64_t last) {
      std::memcpy(to.data() + first, from.data() + first, static_cast<size_t>(last - first));
    });
    best = std::max(best, 2 * static_cast<double>(kBytes) / SecondsSince(copy));
  } while (SecondsSince(begin) < kSecondsOfMemory);
  return best;
}

// What the models of time without measurements need, from what was measured.
void Describe(const std::vector<MeasuredKernel>& kernels, int cores, Cluster& machine) {
  for (const MeasuredKernel& row : kernels) {
    const bool is_product = row.kernel == "Linear" || row.kernel == "GeluMlp";
    if (!is_product || row.threads > 1) continue;
    double& peak = machine.device.peak[row.dtype];
    peak = std::max(peak, row.work / row.seconds);
  }
  machine.node.devices = cores;
  for (const MeasuredCall& call : machine.measured.calls) {
    if (call.operation != Operation::kSend || call.transport != Transport::kThreads) continue;
    const double rate = call.bytes / call.seconds;
    machine.node.link_bandwidth = std::max(machine.node.link_bandwidth, rate);
    double& latency = machine.node.link_latency;
    latency = latency == 0 ? call.seconds : std::min(latency, call.seconds);
  }
  if (cores == 1) machine.node.link_bandwidth = machine.device.bandwidth;
}

// Whether ranks may divide the model's layers: adapters and leaves are measured undivided.
bool MayBeDivided(const std::vector<std::string>& model) {
  return std::none_of(model.begin(), model.end(), [](const std::string& assignment) {
    return assignment.starts_with("lora.") || assignment.starts_with("cut.");
  });
}

// Every model in every placement, and those that ranks may divide among one rank a core, in an
// order in which any first part of them spans the sizes, and in which a machine that grows warm
// favours no size.
std::vector<TrainingToTime> Trainings(int cores) {
  std::vector<TrainingToTime> trainings;
  for (const std::vector<std::string>& model : Models()) {
    for (const auto& [ranks, threads] : Placements(cores)) {
      for (const bool together : {false, true}) {
        if (together && (ranks == 1 || !MayBeDivided(model))) continue;
        for (const char* compute : {"fp32", "bf16"}) {
          TrainingToTime& training = trainings.emplace_back(TrainingToTime{
              .assignments = model, .ranks = ranks, .threads = threads, .together = together});
          training.assignments.push_back(absl::StrCat("precision.compute=", compute));
        }
      }
    }
  }
  std::shuffle(trainings.begin(), trainings.end(), std::mt19937_64());
  return trainings;
}

struct Calibration {
  Cluster machine;
  double visits = 0;       // of each model, on average: less than kVisits where time ran out
  int calls_left_out = 0;  // because they took too long
};

absl::StatusOr<Calibration> Measure() {
  const int64_t begin = NowNanos();
  const int cores = AvailableCores();
  Calibration calibration;
  Cluster& machine = calibration.machine;
  machine.name = "this machine";
  machine.device.memory = static_cast<double>(sysconf(_SC_PHYS_PAGES)) *
                          static_cast<double>(sysconf(_SC_PAGESIZE)) / cores;
  machine.device.launch = 1e-6;
  Show("memory", 0);
  machine.device.bandwidth = MemoryBandwidth(cores) / cores;
  const auto add = [&](const Measurements& measured) {
    calibration.calls_left_out += CallsToTime() - static_cast<int>(measured.calls.size());
    std::vector<MeasuredCall>& calls = machine.measured.calls;
    std::vector<MeasuredWait>& waits = machine.measured.waits;
    calls.insert(calls.end(), measured.calls.begin(), measured.calls.end());
    waits.insert(waits.end(), measured.waits.begin(), measured.waits.end());
  };
  const std::string mpirun = FindOnPath("mpirun");
  for (int ranks = 2; ranks <= cores; ranks *= 2) {
    Show(absl::StrCat("communication of ", ranks, " threads"), 0.02);
    LS_ASSIGN_OR_RETURN(Measurements measured, TimeCallsOfThreads(ranks, kSecondsOfCalls));
    add(measured);
    if (mpirun.empty()) continue;
    Show(absl::StrCat("communication of ", ranks, " processes"), 0.06);
    LS_ASSIGN_OR_RETURN(measured, TimeCallsOfProcesses(mpirun, ranks));
    add(measured);
  }
  if (mpirun.empty() && cores > 1) {
    std::fputs("no mpirun on PATH: runs under MPI take the times of threads\n", stderr);
  }
  const std::vector<TrainingToTime> trainings = Trainings(cores);
  const auto planned = static_cast<int>(kVisits * trainings.size());
  FastestKernels kernels;
  const auto take = [&](size_t index, double seconds) -> absl::Status {
    const auto rows = TimeTraining(trainings[index], seconds);
    // Not every model can be divided among as many ranks as there are cores.
    if (trainings[index].together && absl::IsInvalidArgument(rows.status())) {
      return absl::OkStatus();
    }
    LS_RETURN_IF_ERROR(rows.status());
    kernels.Add(index, *rows);
    return absl::OkStatus();
  };
  for (int visit = 0; visit < planned; ++visit) {
    const double left = kSecondsOfVisits - SecondsSince(begin);
    if (left < 0) break;
    Show(absl::StrFormat("kernels: model %d of %d", visit + 1, planned),
         0.1 + 0.8 * visit / planned);
    LS_RETURN_IF_ERROR(take(visit % trainings.size(), left / (planned - visit)));
    calibration.visits = (visit + 1.) / static_cast<double>(trainings.size());
  }
  const std::vector<size_t> suspects = kernels.Suspects();
  const int64_t again = NowNanos();
  for (size_t i = 0; i < suspects.size() && SecondsSince(again) < kSecondsOfSuspects; ++i) {
    const double done = static_cast<double>(i) / static_cast<double>(suspects.size());
    Show(absl::StrFormat("kernels that others make doubtful: model %d of %d",
                         static_cast<int>(i) + 1, static_cast<int>(suspects.size())),
         0.9 + 0.1 * done);
    LS_RETURN_IF_ERROR(
        take(suspects[i], kSecondsOfSuspects / static_cast<double>(suspects.size())));
  }
  machine.measured.kernels = kernels.Rows();
  Describe(machine.measured.kernels, cores, machine);
  Show("done", 1);
  return calibration;
}

absl::StatusOr<int> Run() {
  LS_ASSIGN_OR_RETURN(const bool is_launched, mpi::Process::IsLaunched());
  if (is_launched) {
    LS_RETURN_IF_ERROR(TimeCallsOfProcess(kSecondsOfCalls));
    return 0;
  }
  std::string path = absl::GetFlag(FLAGS_out);
  if (path.empty()) {
    LS_ASSIGN_OR_RETURN(path, MachineFile());
  } else {
    path = UserPath(path);
  }
  LS_RETURN_IF_ERROR(CheckOutputs({{.path = path,
                                    .kind = "a machine's description",
                                    .is_of_kind = [](std::string_view contents) {
                                      return contents.starts_with("name = \"") &&
                                             contents.find("\n[device]\n") != contents.npos;
                                    }}}));
  // Nobody should wait 90 s to learn that the file cannot be written.
  constexpr char kAdvice[] = "no place for this machine's description, choose another with --out";
  LS_RETURN_IF_ERROR(Annotate(MakeDirectories(std::filesystem::path(path).parent_path()), kAdvice));
  absl::StatusOr<AtomicFileWriter> writer = AtomicFileWriter::Open(path);
  LS_RETURN_IF_ERROR(Annotate(writer.status(), kAdvice));
  const int64_t begin = NowNanos();
  const Neighbours neighbours;
  LS_ASSIGN_OR_RETURN(const Calibration calibration, Measure());
  const Cluster& machine = calibration.machine;
  LS_RETURN_IF_ERROR(writer->Append(ToToml(machine)));
  LS_RETURN_IF_ERROR(writer->Commit());
  std::printf("%s: %d kernels, %d calls, %s\n", path.c_str(),
              static_cast<int>(machine.measured.kernels.size()),
              static_cast<int>(machine.measured.calls.size()),
              FormatDuration(SecondsSince(begin)).c_str());
  if (calibration.calls_left_out > 0) {
    std::printf(
        "no time for %d calls: those of the largest sizes are estimated from smaller ones\n",
        calibration.calls_left_out);
  }
  if (calibration.visits < 1) {
    std::printf("the time sufficed for %.0f %% of the models: predictions may be coarse\n",
                100 * calibration.visits);
  }
  if (const double cores = neighbours.cores(); cores > 0.1) {
    std::printf("other programs kept %.1f cores busy meanwhile; measure again when they are over\n",
                cores);
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Measures this machine, for runs to predict the time of their steps; see "
                "docs/planning.md.",
       .files = {__FILE__, lockstep::kOverwriteFlagFile}},
      [](const auto&) { return lockstep::Run(); });
}
