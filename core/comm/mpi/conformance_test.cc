// Every process of an mpirun runs this program, so that all go through the same tests in step.

#include <mpi.h>

#include <cstdio>
#include <memory>
#include <string>

#include "core/comm/conformance/suite.h"
#include "core/comm/mpi/launch.h"
#include "core/comm/mpi/process.h"
#include "glog/logging.h"
#include "gtest/gtest.h"

namespace lockstep::mpi {
namespace {

// MPI can be started once: the tests share the process. Set by main, before any test.
Process* g_process = nullptr;

class MpiBackend final : public BackendUnderTest {
 public:
  int max_ranks() const override { return g_process->size(); }

  absl::Status Run(int ranks, absl::Duration timeout, const RankBody& body) override {
    // No timeout of one run counts what others still do in the run before.
    MPI_Barrier(MPI_COMM_WORLD);
    const auto run = [&](RankHandle& handle) {
      HostMemory memory;
      RankUnderTest rank(handle.comm(), memory);
      return body(rank);
    };
    const absl::Status status = RunRank(*g_process, ranks, {.timeout = timeout}, run).status;
    // Processes that were no rank take rank 0's word.
    char message[4096] = {};
    int code = static_cast<int>(status.code());
    std::snprintf(message, sizeof(message), "%s", std::string(status.message()).c_str());
    MPI_Bcast(&code, 1, MPI_INT, 0, MPI_COMM_WORLD);
    MPI_Bcast(message, sizeof(message), MPI_CHAR, 0, MPI_COMM_WORLD);
    if (g_process->rank() < ranks) return status;
    return absl::Status(static_cast<absl::StatusCode>(code), message);
  }
};

std::unique_ptr<BackendUnderTest> MakeMpiBackend() { return std::make_unique<MpiBackend>(); }

INSTANTIATE_TEST_SUITE_P(Mpi, CommConformance, testing::Values(&MakeMpiBackend));

}  // namespace
}  // namespace lockstep::mpi

int main(int argc, char** argv) {
  testing::InitGoogleTest(&argc, argv);
  auto process = lockstep::mpi::Process::Start();
  CHECK(process.ok()) << process.status();
  CHECK_GT((*process)->size(), 1) << "this test is to be run by mpirun";
  lockstep::mpi::g_process = process->get();
  // One report for all; the others show what fails.
  if ((*process)->rank() > 0) {
    testing::GTEST_FLAG(output) = "";
    testing::GTEST_FLAG(brief) = true;
  }
  return RUN_ALL_TESTS();
}
