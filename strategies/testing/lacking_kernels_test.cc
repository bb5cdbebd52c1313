// A backend that lacks kernels: runs that call them are refused before ranks start, all others
// train.

#include <filesystem>
#include <memory>
#include <set>
#include <string>

#include "absl/status/status.h"
#include "core/base/status.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/run/device/rank_device.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "strategies/ddp/ddp.h"
#include "strategies/layerwise/layerwise.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// The CPU's kernels without attention.
class KernelsWithoutAttention final : public CpuKernels {
 public:
  using CpuKernels::CpuKernels;
  void AttentionForward(const Attention&, const Tensor&, const Tensor&, const Tensor&) override {
    Lack();
  }
  void AttentionBackward(const Attention&, const Tensor&, const Tensor&, const Tensor&,
                         const Tensor&, const Tensor&) override {
    Lack();
  }
};

class Device final : public RankDevice {
 public:
  explicit Device(Communicator& world) : world_(world) {}
  Kernels& kernels() override { return kernels_; }
  Communicator& world() override { return world_; }

 private:
  Communicator& world_;
  CpuAllocator allocator_;
  KernelsWithoutAttention kernels_{allocator_};
};

class Devices final : public RankDevices {
 public:
  std::set<std::string> lacking_kernels() const override {
    return {"AttentionBackward", "AttentionForward"};
  }
  absl::StatusOr<std::unique_ptr<RankDevice>> Make(Communicator& world, const Options&) override {
    return std::make_unique<Device>(world);
  }
};

TEST(LackingKernelsTest, ARunThatCallsThemIsRefusedAtTheStart) {
  // Also where only another rank than the first calls them.
  for (const StrategyDefinition& strategy :
       {SingleStrategy(), DdpStrategy(), LayerwiseStrategy()}) {
    SCOPED_TRACE(strategy.name);
    Assignments mesh;
    if (strategy.name == "ddp") mesh = {"mesh.dp=2"};
    if (strategy.name == "layerwise") mesh = {"mesh.pp=2", "pipeline.balance=[1, 3]"};
    const absl::Status status =
        FailStrategy(strategy, MakeModel, SmallGptConfig(), mesh, std::make_shared<Devices>());
    EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
    EXPECT_THAT(status.message(), AllOf(HasSubstr("this run calls kernels that --device cpu lacks: "
                                                  "AttentionBackward, AttentionForward; "),
                                        Not(HasSubstr("rank "))));
    EXPECT_FALSE(std::filesystem::exists(RunFolder() + "/losses.csv"));
  }
}

// Devices that have all kernels, but whose attention knows no documents.
class DevicesWithoutDocuments final : public RankDevices {
 public:
  bool masks_documents() const override { return false; }
  absl::StatusOr<std::unique_ptr<RankDevice>> Make(Communicator& world, const Options&) override {
    return std::make_unique<Device>(world);
  }
};

TEST(LackingKernelsTest, DocumentsThatCannotBeMaskedAreRefusedAtTheStart) {
  const absl::Status status = FailStrategy(DdpStrategy(), MakeModel, SmallGptConfig(),
                                           {"mesh.dp=2", "data.document_tokens=5"},
                                           std::make_shared<DevicesWithoutDocuments>());
  EXPECT_TRUE(absl::IsUnimplemented(status)) << status;
  EXPECT_THAT(status.message(),
              AllOf(HasSubstr("the data packs documents, whose masks attention on --device cpu"),
                    HasSubstr("data.document_tokens"), Not(HasSubstr("rank "))));
  EXPECT_FALSE(std::filesystem::exists(RunFolder() + "/losses.csv"));
}

TEST(LackingKernelsTest, AllOtherRunsTrain) {
  const Assignments assignments = {"train.steps=1"};
  const auto ran = RunStrategy(SingleStrategy(), MakeModel, SmallResNetConfig(), assignments,
                               std::make_shared<Devices>());
  ExpectSameBits(ran, RunStrategy(SingleStrategy(), MakeModel, SmallResNetConfig(), assignments));
}

// What a backend does with a kernel that it forgot to name.
TEST(LackingKernelsTest, ACallNamesTheKernel) {
  CpuAllocator allocator;
  KernelsWithoutAttention kernels(allocator);
  try {
    kernels.AttentionForward({}, {}, {}, {});
    FAIL() << "it is there";
  } catch (const StatusException& error) {
    EXPECT_EQ(error.status(), absl::UnimplementedError("the kernels of cpu lack AttentionForward"));
  }
}

}  // namespace
}  // namespace lockstep
