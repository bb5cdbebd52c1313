#include "core/run/guard/exchanged_ranks.h"

#include <algorithm>
#include <array>
#include <iterator>  // std::ssize
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"
#include "core/comm/nccl_reductions.h"
#include "core/run/leg/mesh_change.h"
#include "core/run/strategy/model_weights.h"
#include "core/tensor/allocator.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "exchanged ranks";

}  // namespace

absl::Status CheckAreAlike(const Settings& settings, bool on_gpus, Communicator& ranks) {
  if (on_gpus) {
    // Two ranks add up in one order only.
    if (settings.nccl_reductions == NcclReductions::kExact || ranks.size() < 3) {
      return absl::OkStatus();
    }
    return absl::FailedPreconditionError(
        "guard.repeat_on is \"other_rank\", but NCCL may add up in another order where ranks have "
        "each other's roles: set comm.nccl_reductions = \"exact\", or guard.repeat_on = "
        "\"same_rank\"");
  }
  const auto own = static_cast<int64_t>(settings.instructions);
  std::array<int64_t, 2> most = {own, -own};
  LS_RETURN_IF_ERROR(AllReduceNumbers(ranks, absl::MakeSpan(most), ReduceOp::kMax, kLabel));
  if (most[0] == -most[1]) return absl::OkStatus();
  return absl::FailedPreconditionError(
      "guard.repeat_on is \"other_rank\", but the processors of the ranks have other vector "
      "instructions, and so other bits in some products: set run.instructions = \"avx2\", or "
      "guard.repeat_on = \"same_rank\"");
}

absl::StatusOr<ExchangedRanks> ExchangedRanks::Make(const TrainingRun& leg, Communicator& ranks,
                                                    const RankTools& tools,
                                                    const std::vector<BlockProfile>& profiles,
                                                    int shift) {
  const int size = ranks.size();
  CHECK(0 < shift && shift < size) << shift << " of " << size;
  LS_ASSIGN_OR_RETURN(
      std::unique_ptr<Communicator> world,
      ranks.SplitBy(
          [=](int rank) { return Communicator::Choice{.color = 0, .key = (rank + shift) % size}; },
          kLabel));
  const RankTools others = {
      .world = *world, .kernels = tools.kernels, .timer = tools.timer, .trace = tools.trace};
  LS_ASSIGN_OR_RETURN(std::unique_ptr<RankInLeg> there, RankInLeg::Make(leg, others, &profiles));
  return ExchangedRanks(std::move(world), std::move(there), shift, ranks.rank(), tools);
}

absl::Status ExchangedRanks::Take(Strategy& here, Communicator& ranks) {
  std::vector<StateTensor> from = here.State(), to = there_->strategy().State();
  if (std::exchange(has_all_, true)) {
    from = TrainedState(from);
    to = TrainedState(to);
  }
  LS_RETURN_IF_ERROR(MoveState({std::move(from)}, to, tools_->kernels, ranks).status());
  there_->strategy().Restored();
  return absl::OkStatus();
}

absl::StatusOr<std::vector<int64_t>> ExchangedRanks::BringHome(const std::vector<int64_t>& found,
                                                               Communicator& ranks) const {
  CpuAllocator allocator;
  const auto exchange = [&](absl::Span<const int64_t> own,
                            int64_t wanted) -> absl::StatusOr<std::vector<int64_t>> {
    const Tensor sent =
        Tensor::Empty(allocator, {std::ssize(own)}, DType::kI64, MemoryClass::kCommunication);
    const Tensor received =
        Tensor::Empty(allocator, {wanted}, DType::kI64, MemoryClass::kCommunication);
    std::ranges::copy(own, sent.data<int64_t>());
    // Whose role this rank has, and who has this rank's.
    std::array<Work, 2> works = {ranks.Recv(received, StandIn(), kLabel),
                                 ranks.Send(sent, there_->rank().rank, kLabel)};
    LS_RETURN_IF_ERROR(WaitAll(absl::MakeSpan(works)));
    const absl::Span<const int64_t> numbers = received.span<int64_t>();
    return std::vector<int64_t>(numbers.begin(), numbers.end());
  };
  const std::array<int64_t, 1> size = {std::ssize(found)};
  LS_ASSIGN_OR_RETURN(const std::vector<int64_t> count, exchange(size, 1));
  return exchange(found, count[0]);
}

}  // namespace lockstep
