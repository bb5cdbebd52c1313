// Batches on their way to a GPU that is behind: its stream is held until the test says so.

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "core/base/status.h"
#include "core/base/token_order.h"
#include "core/comm/communicator.h"
#include "core/comm/ledger.h"
#include "core/comm/local/local_world.h"
#include "core/comm/mesh.h"
#include "core/cuda/allocator.h"
#include "core/cuda/context.h"
#include "core/cuda/emulation/hold.h"
#include "core/data/dataset.h"
#include "core/data/prefetch.h"
#include "core/data/sampler.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/kernels/cuda/cuda_kernels.h"
#include "core/report/step_timer.h"
#include "core/report/trace.h"
#include "core/run/leg/batches.h"
#include "core/run/leg/training_run.h"
#include "core/run/strategy/rank.h"
#include "core/tensor/allocator.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr int64_t kTime = 64, kSteps = 6, kMicroBatches = 2;

// Token j of sample i is i * kTime + j.
class NumberedTokens final : public Dataset {
 public:
  std::string Describe() const override { return "numbered"; }
  Task task() const override { return Task::kLanguageModel; }
  Shape input_shape() const override { return {kTime}; }
  Shape target_shape() const override { return {kTime}; }
  DType input_dtype() const override { return DType::kI32; }
  int64_t classes() const override { return kTime * size(Split::kTrain); }
  int64_t size(Split) const override { return 100; }
  absl::Status Fill(Split, absl::Span<const SampleKey> keys, const Batch& batch) const override {
    int32_t* input = batch.inputs.data<int32_t>();
    int32_t* target = batch.targets.data<int32_t>();
    for (const SampleKey& key : keys) {
      for (int64_t j = 0; j < kTime; ++j) {
        *input++ = static_cast<int32_t>(key.index * kTime + j);
        *target++ = static_cast<int32_t>(key.index * kTime + j + 1);
      }
    }
    return absl::OkStatus();
  }
};

class GpuBatchesTest : public testing::Test {
 protected:
  // The batches of a run as a rank gets them, still on their way where that is on a GPU.
  std::vector<Batch> Deliver(Kernels& kernels, const TokenOrder& tokens) {
    HostBatches host(kernels, tokens);
    const Sampler sampler =
        Sampler::Create(*dataset_, {.seed = 2, .global_batch = 6, .micro_batches = kMicroBatches})
            .value();
    Prefetcher prefetcher(dataset_, sampler, host.allocator(),
                          {.end_step = kSteps, .micro_batches = {0, 1}});
    std::vector<Batch> batches;
    for (int64_t i = 0; i < kSteps * kMicroBatches; ++i) {
      batches.push_back(host.Deliver(prefetcher.Next().value().batch));
    }
    return batches;
  }
  static std::vector<int32_t> Elements(Kernels& kernels, const Tensor& x) {
    std::vector<int32_t> elements(static_cast<size_t>(x.elements()));
    kernels.CopyToHost(x, elements.data());
    return elements;
  }

  const std::shared_ptr<const Dataset> dataset_ = std::make_shared<NumberedTokens>();
  CpuAllocator host_;
  CpuKernels cpu_{host_};
  const std::unique_ptr<CudaContext> context_ = CudaContext::Create(0).value();
  CudaAllocator allocator_{*context_};
  CudaKernels gpu_{*context_, allocator_};
};

TEST_F(GpuBatchesTest, AreDeliveredWhileTheGpuIsBehind) {
  for (const int64_t leaves : {1, 2}) {
    const TokenOrder tokens = {.leaves = leaves};
    const std::vector<Batch> expected = Deliver(cpu_, tokens);
    emulation::Hold kernels(context_->stream());
    const std::vector<Batch> batches = Deliver(gpu_, tokens);  // would not return
    EXPECT_TRUE(emulation::ComesToItsEnd(context_->copy_stream()));
    EXPECT_FALSE(emulation::ComesToItsEnd(context_->stream()));
    // All is there while kernels stand still: the host can read what an emulated GPU has.
    for (size_t i = 0; i < batches.size(); ++i) {
      EXPECT_EQ(batches[i].inputs.span<int32_t>(), expected[i].inputs.span<int32_t>()) << i;
      EXPECT_EQ(batches[i].targets.span<int32_t>(), expected[i].targets.span<int32_t>()) << i;
    }
    kernels.Release();
    for (size_t i = 0; i < batches.size(); ++i) {
      EXPECT_EQ(batches[i].inputs.shape(), expected[i].inputs.shape());
      EXPECT_EQ(Elements(gpu_, batches[i].inputs), Elements(cpu_, expected[i].inputs)) << i;
      EXPECT_EQ(Elements(gpu_, batches[i].targets), Elements(cpu_, expected[i].targets)) << i;
    }
  }
}

// As predictions have it: batches are activations, and nothing beside them is the rank's.
TEST_F(GpuBatchesTest, AreBookedAsOnTheCpu) {
  const std::vector<Batch> expected = Deliver(cpu_, TokenOrder()), batches = Deliver(gpu_, {});
  EXPECT_EQ(allocator_.books().live(MemoryClass::kActivations),
            host_.books().live(MemoryClass::kActivations));
  EXPECT_EQ(allocator_.books().live_total(), allocator_.books().live(MemoryClass::kActivations));
  EXPECT_EQ(gpu_.host_allocator().books().live_total(), 0);
}

// What a step has taken is not taken again, and the end of the data is the next step's to hear of.
TEST_F(GpuBatchesTest, TheNextStepsFirstIsOnItsWayBeforeThisStepIsOver) {
  TrainingRun run;
  run.dataset = dataset_;
  constexpr int64_t kFew = 2;
  run.sampler = std::make_shared<const Sampler>(
      Sampler::Create(*dataset_, {.seed = 2, .global_batch = 6, .micro_batches = kMicroBatches})
          .value());
  LocalWorld world(1);
  Ledger ledger(0);
  const std::unique_ptr<Communicator> alone = world.Join(0, ledger);
  Mesh mesh = Mesh::Create({}, *alone).value();
  Trace trace(0, TraceWindow{});
  StepTimer timer({});
  std::vector<std::vector<std::vector<int32_t>>> inputs;  // on the CPU, and on the GPU
  for (Kernels* const kernels : {static_cast<Kernels*>(&cpu_), static_cast<Kernels*>(&gpu_)}) {
    run.device = kernels->allocator().device().type;
    const bool is_gpu = run.device == DeviceType::kCuda;
    Rank rank(*kernels, mesh, timer, trace);
    PrefetchedBatches batches(run, rank, 0, kFew, {0, 1});
    const auto live = [&] { return kernels->allocator().books().live(MemoryClass::kActivations); };
    std::vector<std::vector<int32_t>>& taken = inputs.emplace_back();
    for (int64_t step = 0; step < kFew; ++step) {
      for (int64_t i = 0; i < kMicroBatches; ++i) {
        taken.push_back(Elements(*kernels, batches.Next().inputs));
        EXPECT_EQ(live(), 0) << "the batch is given back, and no other is here";
      }
      batches.FetchAhead();
      const bool has_next = step + 1 < kFew;
      const int64_t bytes = 3 * 2 * kTime * static_cast<int64_t>(sizeof(int32_t));
      EXPECT_EQ(live(), is_gpu && has_next ? bytes : 0);
    }
    EXPECT_THROW(batches.Next(), StatusException);
  }
  EXPECT_EQ(inputs[1], inputs[0]);
}

TEST_F(GpuBatchesTest, OnTheCpuNothingIsCopied) {
  Batch batch = EmptyBatch(*dataset_, 1, cpu_.host_allocator(), MemoryClass::kActivations);
  const Batch delivered = HostBatches(cpu_, TokenOrder()).Deliver(batch);
  EXPECT_TRUE(delivered.inputs.same_storage(batch.inputs));
  EXPECT_TRUE(delivered.targets.same_storage(batch.targets));
}

}  // namespace
}  // namespace lockstep
