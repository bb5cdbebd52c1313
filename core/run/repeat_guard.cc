#include "core/run/repeat_guard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <iterator>  // std::ssize
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "core/base/checksum.h"
#include "core/base/status.h"
#include "core/comm/agree.h"
#include "core/comm/host_numbers.h"
#include "core/run/model_weights.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "repeated step";

constexpr char kAdvice[] =
    ". The run stops before it saves anything: test the memory and the processor of that rank's "
    "machine, and --resume from the newest checkpoint, elsewhere if they fail";

uint64_t HashOf(const Tensor& tensor, Kernels& kernels) {
  std::vector<std::byte> copy;
  std::span<const std::byte> bytes(tensor.raw(), static_cast<size_t>(tensor.bytes()));
  if (tensor.device().type != DeviceType::kCpu) {
    copy.resize(bytes.size());
    kernels.CopyToHost(tensor, copy.data());
    bytes = copy;
  }
  return ChecksumOf(SizeOf(tensor.dtype()), 0, bytes);
}

bool SameBits(double a, double b) {
  return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b);
}

// The first index at which hashes differ; -1: nowhere.
int64_t FirstDifference(const std::vector<uint64_t>& a, const std::vector<uint64_t>& b) {
  const auto at = std::ranges::mismatch(a, b).in1;
  return at == a.end() ? -1 : at - a.begin();
}

// Whether ranks hold parts of weights, which they may have to send each other.
bool SendsWeights(const std::vector<StateTensor>& state) {
  return std::ranges::any_of(state, [](const StateTensor& part) {
    return !IsOptimizerState(part.name) && part.tensor.elements() != part.full_shape.elements();
  });
}

}  // namespace

void ObservedStep::Observe(const ProbedTensor& tensor, const Tensor& value) {
  if (next_ != nullptr) next_->Observe(tensor, value);
  const int64_t micro_batch =
      micro_batches_.try_emplace(tensor.micro_batch, std::ssize(micro_batches_)).first->second;
  Tensor own = value;
  const int64_t padding = tensor.features ? tensor.features->padding : 0;
  if (padding != 0) {  // has no defined bits
    const int64_t held = value.shape()[-1] - padding;
    own = kernels_.Empty({value.elements() / value.shape()[-1], held}, value.dtype());
    kernels_.CopyColumns(value, 0, held, own, 0);
  }
  values_.push_back({.order = OrderOf(tensor, blocks_, micro_batch, std::ssize(values_)),
                     .what = InWords(tensor),
                     .hash = HashOf(own, kernels_)});
}

RepeatGuard::Hashes RepeatGuard::HashesOf(const std::vector<StateTensor>& state) const {
  Hashes hashes;
  for (const StateTensor& part : state) hashes.push_back(HashOf(part.tensor, kernels_));
  return hashes;
}

RepeatGuard::Outcome RepeatGuard::OutcomeOf(const StepResult& result, RankInLeg& here) const {
  return {.state = HashesOf(here.strategy().State()),
          .loss = result.loss,
          .gradient_norm = result.gradient_norm,
          .observed = {}};
}

absl::Status RepeatGuard::Begin(int64_t step, RankInLeg& here) {
  if (every_ == 0) return absl::OkStatus();
  const std::vector<StateTensor> state = here.strategy().State();
  if (!at_rest_.empty()) {
    const int64_t changed = FirstDifference(at_rest_, HashesOf(state));
    at_rest_.clear();
    LS_RETURN_IF_ERROR(AgreeOnFirst(
        changed < 0 ? absl::OkStatus()
                    : absl::DataLossError(absl::StrCat(
                          "step ", step + 1, ": wrong bits: '",
                          state[static_cast<size_t>(changed)].name, "' on rank ", here.rank().rank,
                          " has changed in memory since the step before", kAdvice)),
        here.ranks()));
  }
  if (!IsDue(step)) return absl::OkStatus();
  copy_ = TrainedState(state);
  for (StateTensor& part : copy_) {
    const Tensor copy =
        Tensor::Empty(host_, part.tensor.shape(), part.tensor.dtype(), MemoryClass::kCheckpoint);
    kernels_.CopyToHost(part.tensor, copy.raw());
    part.tensor = copy;
  }
  copied_ = HashesOf(copy_);
  first_.emplace(here.blocks(), kernels_, RunProbeOf(here.rank()));
  here.rank().search = &*first_;
  return absl::OkStatus();
}

absl::Status RepeatGuard::CheckCopy(int64_t step, RankInLeg& here) const {
  const int64_t changed = FirstDifference(copied_, HashesOf(copy_));
  if (changed < 0) return absl::OkStatus();
  return absl::DataLossError(
      absl::StrCat("step ", step + 1, ": wrong bits: the copy of '",
                   copy_[static_cast<size_t>(changed)].name, "' on rank ", here.rank().rank,
                   ", from which the step is repeated, has changed in memory", kAdvice));
}

RepeatGuard::Outcome RepeatGuard::Repeat(RankInLeg& here,
                                         const std::function<StepResult()>& again) {
  const std::vector<StateTensor> state = TrainedState(here.strategy().State());
  for (size_t i = 0; i < state.size(); ++i) {
    kernels_.CopyFromHost(copy_[i].tensor.raw(), state[i].tensor);
  }
  here.strategy().Restored();
  ObservedStep observed(here.blocks(), kernels_, nullptr);
  here.rank().search = &observed;
  const StepResult result = again();
  here.rank().search = nullptr;
  Outcome outcome = OutcomeOf(result, here);
  outcome.observed = observed.values();
  return outcome;
}

absl::Status RepeatGuard::End(int64_t step, const StepResult& result, RankInLeg& here,
                              const std::function<StepResult()>& again) {
  if (!IsDue(step)) return absl::OkStatus();
  here.rank().search = nullptr;
  Outcome first = OutcomeOf(result, here);
  first.observed = first_->values();
  first_.reset();
  LS_RETURN_IF_ERROR(AgreeOnFirst(CheckCopy(step, here), here.ranks()));
  const Outcome second = Repeat(here, again);
  const auto same = [](const Outcome& a, const Outcome& b) {
    return a.state == b.state && SameBits(a.loss, b.loss) &&
           SameBits(a.gradient_norm, b.gradient_norm);
  };
  int64_t agree = same(first, second) ? 1 : 0;
  LS_RETURN_IF_ERROR(
      AllReduceNumbers(here.ranks(), absl::MakeSpan(&agree, 1), ReduceOp::kMin, kLabel));
  if (agree == 1) {
    at_rest_ = second.state;
    copy_.clear();
    return absl::OkStatus();
  }
  LS_RETURN_IF_ERROR(AgreeOnFirst(CheckCopy(step, here), here.ranks()));
  const Outcome third = Repeat(here, again);
  std::array<int64_t, 2> votes = {same(first, third) ? 1 : 0, same(second, third) ? 1 : 0};
  LS_RETURN_IF_ERROR(AllReduceNumbers(here.ranks(), absl::MakeSpan(votes), ReduceOp::kMin, kLabel));
  if (votes[1] == 1) {
    return Explain(step, first, third, "in the step, as two repetitions agree", here);
  }
  if (votes[0] == 1) {
    return Explain(step, second, third, "in its repetition, as another one agrees with the step",
                   here);
  }
  return Explain(step, first, second, "each time that the step is repeated", here);
}

absl::Status RepeatGuard::Explain(int64_t step, const Outcome& wrong, const Outcome& right,
                                  const std::string& verdict, RankInLeg& here) const {
  // The first that differs on this rank; its state, if it differs.
  const auto at = std::ranges::mismatch(wrong.observed, right.observed, {},
                                        &ObservedStep::Value::hash, &ObservedStep::Value::hash)
                      .in1;
  const bool is_observed = at != wrong.observed.end();
  const PassOrder order = is_observed ? at->order : kBehindAll;
  std::array<int64_t, 5> own = {};
  std::ranges::copy(order, own.begin());
  own[4] = FirstDifference(wrong.state, right.state);
  std::vector<std::array<int64_t, 5>> all(static_cast<size_t>(here.ranks().size()));
  LS_RETURN_IF_ERROR(GatherNumbers(
      here.ranks(), own, absl::MakeSpan(all.front().data(), own.size() * all.size()), kLabel));
  const auto order_of = [](const std::array<int64_t, 5>& numbers) {
    return PassOrder{numbers[0], numbers[1], numbers[2], numbers[3]};
  };
  auto speaker = std::ranges::min_element(all, {}, order_of);
  const bool is_anywhere_observed = order_of(*speaker) != kBehindAll;
  std::vector<int64_t> parted;
  for (int64_t rank = 0; rank < std::ssize(all); ++rank) {
    if (all[static_cast<size_t>(rank)][4] >= 0) parted.push_back(rank);
  }
  if (!is_anywhere_observed) {
    speaker = std::ranges::find_if(all, [](const auto& numbers) { return numbers[4] >= 0; });
    if (speaker == all.end()) speaker = all.begin();  // loss or norm alone
  }
  absl::Status error = absl::OkStatus();
  if (speaker - all.begin() == here.rank().rank) {
    const std::vector<StateTensor> state = here.strategy().State();
    std::vector<int64_t> first_seen;
    for (int64_t rank = 0; rank < std::ssize(all); ++rank) {
      if (order_of(all[static_cast<size_t>(rank)]) == order_of(*speaker)) {
        first_seen.push_back(rank);
      }
    }
    std::string what;
    if (is_anywhere_observed) {
      // A wrong weight shows wherever it was sent, not only where it lies.
      const bool is_certain = first_seen.size() == 1 && !SendsWeights(state);
      what = absl::StrCat(at->what, is_certain ? "" : ", seen first",
                          first_seen.size() == 1 ? " on rank " : " on the ranks ",
                          absl::StrJoin(first_seen, ", "));
    } else if (own[4] < 0) {
      what = "the loss or the norm of the gradients";
    } else {
      what =
          absl::StrCat("the gradient or the update of '", state[static_cast<size_t>(own[4])].name,
                       parted.size() == 1 ? "' on rank " : "' on one of the ranks ",
                       absl::StrJoin(parted, ", "));
    }
    error = absl::DataLossError(absl::StrCat("step ", step + 1, ": wrong bits: ", what,
                                             " came out differently ", verdict, kAdvice));
  }
  return AgreeOnFirst(error, here.ranks());
}

}  // namespace lockstep
