#include <memory>

#include "core/comm/conformance/suite.h"
#include "core/comm/launch.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

class LocalBackend final : public BackendUnderTest {
 public:
  int max_ranks() const override { return 8; }
  absl::Status Run(int ranks, absl::Duration timeout, const RankBody& body) override {
    return RunRanks(ranks, {.timeout = timeout}, [&](RankHandle& handle) {
      HostMemory memory;
      RankUnderTest rank(handle.comm(), memory);
      return body(rank);
    });
  }
};

std::unique_ptr<BackendUnderTest> MakeLocalBackend() { return std::make_unique<LocalBackend>(); }

INSTANTIATE_TEST_SUITE_P(Local, CommConformance, testing::Values(&MakeLocalBackend));

}  // namespace
}  // namespace lockstep
