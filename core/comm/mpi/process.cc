#include "core/comm/mpi/process.h"

#include <mpi.h>
#include <sched.h>
#include <signal.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <thread>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

namespace lockstep::mpi {
namespace {

// How long a rank leaves it to each lower one to tell what MPI did not do, and to how many.
constexpr absl::Duration kTurn = absl::Seconds(2);
constexpr int kMostTurns = 3;

// Ends the process unless this object is gone in time: MPI's start and its stop wait for ever for a
// process that was stopped meanwhile, and hear no signals of ours.
class Watch {
 public:
  // `late`: what has not happened, "MPI has not started".
  Watch(const char* late, absl::Duration timeout, int exit_code)
      : late_(late), timeout_(timeout), exit_code_(exit_code), thread_([this] { Run(); }) {}
  ~Watch() {
    {
      std::lock_guard lock(mutex_);
      is_over_ = true;
    }
    changed_.notify_one();
    thread_.join();
  }

 private:
  void Run() {
    std::unique_lock lock(mutex_);
    const char* rank = std::getenv("OMPI_COMM_WORLD_RANK");
    // The ranks cannot agree on who tells. The launcher ends all of them a second after the first
    // has ended, so the lowest rank that is not stopped itself is heard alone.
    const int turn = rank == nullptr ? 0 : std::min(std::atoi(rank), kMostTurns);
    // Looks are counted, not the time: a process that was stopped itself and is woken up when it is
    // too late has nothing to tell.
    constexpr absl::Duration kLook = absl::Milliseconds(50);
    for (absl::Duration left = timeout_ + turn * kTurn; left > absl::ZeroDuration();
         left -= kLook) {
      const auto look = absl::ToChronoNanoseconds(std::min(left, kLook));
      if (changed_.wait_for(lock, look, [this] { return is_over_; })) return;
    }
    std::fprintf(stderr,
                 "rank %s: %s within %s: a process of this run is stopped or cannot be reached; "
                 "look at what the launcher has started, or raise run.timeout_seconds\n",
                 rank == nullptr ? "?" : rank, late_, absl::FormatDuration(timeout_).c_str());
    std::fflush(stdout);
    _exit(exit_code_);
  }

  const char* const late_;
  const absl::Duration timeout_;
  const int exit_code_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool is_over_ = false;
  std::thread thread_;  // the last member: it uses the others
};

}  // namespace

absl::StatusOr<bool> Process::IsLaunched() {
  // Set for each process by mpirun (Open MPI), by srun with PMIx, and by launchers that speak PMI.
  for (const char* name : {"OMPI_COMM_WORLD_RANK", "PMIX_RANK", "PMI_RANK"}) {
    if (std::getenv(name) != nullptr) return true;
  }
  const char* tasks = std::getenv("SLURM_STEP_NUM_TASKS");
  if (tasks != nullptr && std::atoi(tasks) > 1) {
    return absl::FailedPreconditionError(
        absl::StrCat("srun has started ", tasks,
                     " tasks without the means for MPI to bring them together; use srun "
                     "--mpi=pmix, or -n 1 for ranks that are threads"));
  }
  return false;
}

absl::StatusOr<std::unique_ptr<Process>> Process::Start(const ProcessLimits& limits) {
  auto process = std::unique_ptr<Process>(new Process(limits));
  sigset_t signals;
  sigemptyset(&signals);
  sigaddset(&signals, SIGTERM);
  PCHECK(pthread_sigmask(SIG_BLOCK, &signals, nullptr) == 0);
  process->signals_ = signalfd(-1, &signals, SFD_NONBLOCK | SFD_CLOEXEC);
  PCHECK(process->signals_ >= 0) << "signalfd";

  // Over one TCP connection, Open MPI 4.1 moves data both ways hardly faster than one after the
  // other (0.57 of a full-duplex link for 64 MiB each way; 0.95 over two).
  setenv("OMPI_MCA_btl_tcp_links", "2", /*overwrite=*/0);
  int provided = 0;
  const Watch watch("MPI has not started", limits.start, limits.lost_exit_code);
  const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_SERIALIZED, &provided);
  if (error != MPI_SUCCESS) {
    process->Abandon();
    return absl::UnavailableError(absl::StrCat("MPI does not start: error ", error));
  }
  if (provided < MPI_THREAD_SERIALIZED) {
    return absl::UnavailableError(
        "this MPI library cannot be called from several threads (MPI_THREAD_SERIALIZED); use one "
        "that can, such as Debian's Open MPI");
  }
  MPI_Comm_rank(MPI_COMM_WORLD, &process->rank_);
  MPI_Comm_size(MPI_COMM_WORLD, &process->size_);
  MPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);

  MPI_Comm host = MPI_COMM_NULL;
  MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &host);
  MPI_Comm_size(host, &process->ranks_here_);
  MPI_Comm_free(&host);
  process->has_own_core_ = process->ranks_here_ <= sysconf(_SC_NPROCESSORS_ONLN);
  return process;
}

Process::~Process() {
  if (!abandoned_) {
    const Watch watch("has done its work, but MPI has not stopped", limits_.stop,
                      limits_.lost_exit_code);
    MPI_Finalize();
  }
  if (signals_ >= 0) close(signals_);
}

bool Process::Stopped() {
  signalfd_siginfo info;
  if (!stopped_ && read(signals_, &info, sizeof(info)) == sizeof(info)) stopped_ = true;
  return stopped_;
}

}  // namespace lockstep::mpi
