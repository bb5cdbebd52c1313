#include "core/comm/folded_communicator.h"

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/comm/mesh.h"
#include "core/comm/quiet_communicator.h"
#include "core/tensor/allocator.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

// A mesh of 48 ranks, of which three are there, one for each place along pp: groups have the
// members that they would have, and those along pp meet.
TEST(FoldedCommunicatorTest, MakesTheGroupsOfAWholeMesh) {
  const MeshShape shape = {.pp = 3, .replicas = 2, .dp = 4, .tp = 2};
  std::vector<int> present;
  for (int pp = 0; pp < shape.pp; ++pp) present.push_back(shape.RankAt({.pp = pp}));
  const absl::Status status = RunRanks(3, {}, [&](RankHandle& handle) -> absl::Status {
    const auto world = FoldedCommunicator::World(handle.comm(), shape.ranks(), present);
    EXPECT_EQ(world->rank(), present[handle.rank()]);
    LS_ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Create(shape, *world));
    EXPECT_EQ(mesh.coordinate(), (MeshCoordinate{.pp = handle.rank()}));
    const int own = world->rank();
    EXPECT_EQ(mesh.tp().members(), (std::vector<int>{own, own + 1}));
    EXPECT_EQ(mesh.dp().members(), (std::vector<int>{own, own + 2, own + 4, own + 6}));
    EXPECT_EQ(mesh.replicas().members(), (std::vector<int>{own, own + 8}));
    EXPECT_EQ(mesh.data().size(), 8);
    EXPECT_EQ(mesh.pp().members(), (std::vector<int>{0, 16, 32}));
    EXPECT_EQ(mesh.pp().rank(), handle.rank());

    CpuAllocator allocator;
    const Tensor number = Tensor::Empty(allocator, {1}, DType::kI64, MemoryClass::kWorkspace);
    number.data<int64_t>()[0] = 7 + handle.rank();
    LS_RETURN_IF_ERROR(mesh.pp().Broadcast(number, 2, "choice").Wait());
    EXPECT_EQ(number.data<int64_t>()[0], 9);
    LS_RETURN_IF_ERROR(world->Broadcast(number, 32, "choice").Wait());
    // Absent members send nothing, and nobody waits for them.
    LS_RETURN_IF_ERROR(mesh.dp().Broadcast(number, 3, "choice").Wait());
    const Tensor all = Tensor::Empty(allocator, {4}, DType::kI64, MemoryClass::kWorkspace);
    LS_RETURN_IF_ERROR(mesh.dp().AllGather(number, all, "sizes").Wait());
    EXPECT_EQ(all.data<int64_t>()[3], 9);
    LS_RETURN_IF_ERROR(world->AllReduce(number, number, ReduceOp::kMin, "agreement").Wait());
    EXPECT_EQ(number.data<int64_t>()[0], 9);

    if (handle.rank() == 0) return mesh.pp().Send(number, 1, "shapes").Wait();
    if (handle.rank() == 1) return mesh.pp().Recv(number, 0, "shapes").Wait();
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

struct Calls final : CallObserver {
  std::vector<std::string> seen;

  int64_t OnCall(const std::shared_ptr<const GroupInfo>& group, const Signature& signature,
                 const std::string& label) override {
    seen.push_back(group->ToString() + " " + Name(signature.operation) + " " + label);
    return static_cast<int64_t>(seen.size());
  }
  void OnWait(int64_t call) override { seen.push_back("wait " + std::to_string(call)); }
};

// One rank of four, under a group that keeps its numbers back and tells of its calls.
TEST(FoldedCommunicatorTest, CarriesAQuietGroup) {
  const absl::Status status = RunRanks(1, {}, [](RankHandle& handle) -> absl::Status {
    const auto folded = FoldedCommunicator::World(handle.comm(), 4, {0});
    Calls calls;
    QuietCommunicator world(*folded, {.observer = &calls});
    LS_ASSIGN_OR_RETURN(const Mesh mesh, Mesh::Create({.dp = 4}, world));
    CpuAllocator allocator;
    const Tensor x = Tensor::Empty(allocator, {4}, DType::kF32, MemoryClass::kWorkspace);
    Work sum = mesh.dp().AllReduce(x, x, ReduceOp::kSum, "gradients");
    EXPECT_EQ(calls.seen, (std::vector<std::string>{"'dp' [0, 1, 2, 3] all_reduce gradients"}));
    LS_RETURN_IF_ERROR(sum.Wait());
    LS_RETURN_IF_ERROR(sum.Wait());
    EXPECT_EQ(calls.seen.size(), 2u);
    EXPECT_EQ(calls.seen.back(), "wait 1");
    EXPECT_FALSE(world.Split(0, 0, "unknown").ok());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
}

}  // namespace
}  // namespace lockstep
