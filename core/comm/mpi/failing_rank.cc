// A rank of a world in which rank 1 fails in a chosen way, for failing_rank_test.cc:
//
//   failing_rank how [timeout in seconds] [folder for post-mortems] [timeout of MPI's start and
//   stop]
//
// "sends too much" has it send bytes that no call has asked for, before all calls;
// "behind the last call: stop" has it fail when the others have left, "at the end: stop" when it
// has left itself, too.

#include <signal.h>
#include <unistd.h>

#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "core/base/status.h"
#include "core/comm/mpi/launch.h"
#include "core/comm/mpi/process.h"
#include "core/comm/mpi/transport.h"
#include "core/tensor/allocator.h"
#include "core/tensor/tensor.h"
#include "glog/logging.h"

namespace lockstep::mpi {
namespace {

void Fail(const std::string& how) {
  if (how == "kill") raise(SIGKILL);
  if (how == "exit") _exit(0);
  if (how == "throw") throw std::runtime_error("no convergence");
  if (how == "stay away") pause();
  if (how == "is told to stop, and computes") {
    kill(getpid(), SIGTERM);
    sleep(30);
    return;
  }
  if (how == "compute") {
    sleep(4);
    return;
  }
  if (how == "stop") {  // mpirun wakes it up when the others have ended
    raise(SIGSTOP);
    return;
  }
  LOG(FATAL) << "rank 1 cannot fail like this: " << how;
}

// The exit code of a rank that cannot go on without the others.
constexpr int kLostExitCode = 69;

constexpr char kBehind[] = "behind the last call: ";
constexpr char kAtTheEnd[] = "at the end: ";
constexpr char kSendsTooMuch[] = "sends too much";

// Three all-reduces that go well, and a fourth that does not.
absl::Status Work(RankHandle& handle, const std::string& how) {
  constexpr int64_t kElements = 300'000;
  CpuAllocator allocator;
  const Tensor x = Tensor::Empty(allocator, {kElements}, DType::kF32, MemoryClass::kWorkspace);
  for (float& element : x.span<float>()) element = 0;
  for (int call = 0; call < 3; ++call) {
    LS_RETURN_IF_ERROR(handle.comm().AllReduce(x, x, ReduceOp::kSum, "gradients").Wait());
  }
  // Rank 1 goes on after a failure that it wakes up from.
  const std::string amid = "amid a call: ";
  const bool is_amid = how.starts_with(amid);
  const bool is_later =
      how.starts_with(kBehind) || how.starts_with(kAtTheEnd) || how == kSendsTooMuch;
  if (handle.rank() == 1 && !is_amid && !is_later) Fail(how);
  lockstep::Work last = handle.comm().AllReduce(x, x, ReduceOp::kSum, "gradients");
  if (handle.rank() == 1 && is_amid) Fail(how.substr(amid.size()));
  // The data on its way to or from rank 1 never arrives whole.
  LS_RETURN_IF_ERROR(last.Wait());
  LS_RETURN_IF_ERROR(handle.comm().Barrier("end").Wait());
  if (handle.rank() == 1 && how.starts_with(kBehind)) Fail(how.substr(sizeof(kBehind) - 1));
  return absl::OkStatus();
}

// Sends rank 0 more than it will expect as the first data of a call of the world.
void SendTooMuch() {
  constexpr size_t kBytes = 10'000'000;
  Transport transport;
  transport.Post({.rank = 0, .context = 0, .channel = Transport::Channel::kData},
                 std::vector<std::byte>(kBytes));
}

int RunMain(int argc, char** argv) {
  CHECK_GE(argc, 2) << "usage: failing_rank HOW [TIMEOUT] [FOLDER] [TIMEOUT OF MPI]";
  LaunchOptions options;
  double seconds = 60, mpi_seconds = 60;
  if (argc > 2) CHECK(absl::SimpleAtod(argv[2], &seconds)) << argv[2];
  options.timeout = absl::Seconds(seconds);
  if (argc > 3) options.post_mortem = [argv] { return std::string(argv[3]); };
  if (argc > 4) CHECK(absl::SimpleAtod(argv[4], &mpi_seconds)) << argv[4];
  const auto process = Process::Start({.start = absl::Seconds(mpi_seconds),
                                       .stop = absl::Seconds(mpi_seconds),
                                       .lost_exit_code = kLostExitCode});
  CHECK(process.ok()) << process.status();
  const auto say = [&](const Outcome& outcome) {
    std::fprintf(stderr, "survivor %d: %s\n", (*process)->rank(),
                 std::string(outcome.status.message()).c_str());
    if (outcome.is_told_here) std::fprintf(stderr, "told by rank %d\n", (*process)->rank());
  };
  const std::string how = argv[1];
  const auto work = [&](RankHandle& handle) { return Work(handle, how); };
  if ((*process)->rank() == 1 && how == kSendsTooMuch) SendTooMuch();
  const Outcome outcome = RunRank(**process, (*process)->size(), options, work, say);
  if (outcome.status.ok()) {
    if ((*process)->rank() == 1 && how.starts_with(kAtTheEnd)) {
      Fail(how.substr(sizeof(kAtTheEnd) - 1));
    }
    return 0;
  }
  (*process)->Abandon();
  return 1;
}

}  // namespace
}  // namespace lockstep::mpi

int main(int argc, char** argv) { return lockstep::mpi::RunMain(argc, argv); }
