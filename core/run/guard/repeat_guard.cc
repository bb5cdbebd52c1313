#include "core/run/guard/repeat_guard.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>
#include <iterator>  // std::ssize
#include <set>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "core/base/checksum.h"
#include "core/base/status.h"
#include "core/comm/agree.h"
#include "core/comm/host_numbers.h"
#include "core/run/guard/wrong_bits.h"
#include "core/run/strategy/model_weights.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "repeated step";
constexpr int64_t kBehindBlocks = int64_t{1} << 40;  // of a pass, in a PassOrder

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

}  // namespace

void ObservedStep::Observe(const ProbedTensor& tensor, const Tensor& value) {
  if (next_ != nullptr) next_->Observe(tensor, value);
  const int64_t micro_batch = NumberOf(tensor.micro_batch);
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

void ObservedStep::ObserveGradient(const std::string& parameter, const Tensor& gradient) {
  if (next_ != nullptr) next_->ObserveGradient(parameter, gradient);
  if (!gradient.defined()) return;
  AddBehindBlocks(absl::StrCat("the gradient of '", parameter, "'"), HashOf(gradient, kernels_));
}

void ObservedStep::ObserveHandedOver(const std::string& what, const Tensor& value) {
  if (next_ != nullptr) next_->ObserveHandedOver(what, value);
  AddBehindBlocks(absl::StrCat(what, " handed over"), HashOf(value, kernels_));
}

void ObservedStep::ObserveNumbersHandedOver(const std::string& what,
                                            std::span<const double> numbers) {
  if (next_ != nullptr) next_->ObserveNumbersHandedOver(what, numbers);
  AddBehindBlocks(absl::StrCat(what, " handed over"),
                  ChecksumOf(sizeof(double), 0, std::as_bytes(numbers)));
}

void ObservedStep::AddBehindBlocks(std::string what, uint64_t hash) {
  const int64_t last = std::max<int64_t>(0, std::ssize(micro_batches_) - 1);
  values_.push_back({.order = {1, last, kBehindBlocks, std::ssize(values_)},
                     .what = std::move(what),
                     .hash = hash});
}

int64_t ObservedStep::NumberOf(int64_t micro_batch) {
  return micro_batches_.try_emplace(micro_batch, std::ssize(micro_batches_)).first->second;
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

absl::Status RepeatGuard::HoldToRest(int64_t step, const std::string& since,
                                     RankInLeg& here) const {
  if (at_rest_.empty()) return absl::OkStatus();
  const std::vector<StateTensor> state = here.strategy().State();
  const int64_t changed = FirstDifference(at_rest_, HashesOf(state));
  // What was saved behind the check may have the change, too.
  return sound_.Agree(
      changed < 0 ? absl::OkStatus()
                  : absl::DataLossError(absl::StrCat(
                        "step ", step, ": wrong bits: '", state[static_cast<size_t>(changed)].name,
                        "' on rank ", here.rank().rank, " has changed in memory since ", since,
                        kWrongBitsAdvice)),
      sound_.BehindCheck(), here.ranks());
}

absl::Status RepeatGuard::CheckAtRest(int64_t steps, RankInLeg& here) const {
  return HoldToRest(steps, "that step", here);
}

absl::Status RepeatGuard::CheckFrozen(int64_t step, const Hashes& state, RankInLeg& here) const {
  if (frozen_->empty()) return absl::OkStatus();  // on all ranks
  absl::Status found;
  auto expected = frozen_->begin();
  const std::vector<StateTensor> parts = here.strategy().State();
  for (size_t i = 0; i < parts.size(); ++i) {
    if (!parts[i].is_frozen || *expected++ == state[i] || !found.ok()) continue;
    found = absl::DataLossError(absl::StrCat(
        "step ", step + 1, ": wrong bits: '", parts[i].name, "' on rank ", here.rank().rank,
        ", which no step changes, has changed in memory", kWrongBitsAdvice));
  }
  return sound_.Agree(found, sound_.SinceCheck(), here.ranks());
}

absl::Status RepeatGuard::Begin(int64_t step, RankInLeg& here) {
  if (!schedule_.checks()) return absl::OkStatus();
  LS_RETURN_IF_ERROR(HoldToRest(step + 1, "the step before", here));
  at_rest_.clear();
  const std::vector<StateTensor> state = here.strategy().State();
  if (!frozen_) {  // the first step of the leg
    if (repeat_on_ == RepeatOn::kOtherRank) {
      const bool on_gpus = state.front().tensor.device().type != DeviceType::kCpu;
      LS_RETURN_IF_ERROR(CheckAreAlike(here.leg().settings, on_gpus, here.ranks()));
    }
    frozen_ = HashesOf(FrozenState(state));
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
  if (repeat_on_ == RepeatOn::kOtherRank) {
    if (!exchanged_) {
      LS_ASSIGN_OR_RETURN(ExchangedRanks ranks,
                          ExchangedRanks::Make(here.leg(), here.ranks(), tools_, here.profiles(),
                                               /*shift=*/1));
      exchanged_.emplace(std::move(ranks));
    }
    LS_RETURN_IF_ERROR(exchanged_->Take(here.strategy(), here.ranks()));
  }
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
                   ", from which the step is repeated, has changed in memory", kWrongBitsAdvice));
}

void RepeatGuard::Restore(RankInLeg& here) const {
  const std::vector<StateTensor> state = TrainedState(here.strategy().State());
  for (size_t i = 0; i < state.size(); ++i) {
    kernels_.CopyFromHost(copy_[i].tensor.raw(), state[i].tensor);
  }
  here.strategy().Restored();
}

RepeatGuard::Outcome RepeatGuard::Train(RankInLeg& where, const Again& again) const {
  ObservedStep observed(where.blocks(), kernels_, nullptr);
  where.rank().search = &observed;
  const StepResult result = again(where);
  where.rank().search = nullptr;
  Outcome outcome = OutcomeOf(result, where);
  outcome.observed = observed.values();
  return outcome;
}

RepeatGuard::Outcome RepeatGuard::Repeat(RankInLeg& here, const Again& again) {
  Restore(here);
  return Train(here, again);
}

absl::StatusOr<RepeatGuard::Outcome> RepeatGuard::RepeatElsewhere(ExchangedRanks& ranks,
                                                                  RankInLeg& here,
                                                                  const Outcome& expected,
                                                                  const Again& again) const {
  const Outcome found = Train(ranks.there(), again);
  std::vector<int64_t> numbers = {std::bit_cast<int64_t>(found.loss),
                                  std::bit_cast<int64_t>(found.gradient_norm)};
  for (const uint64_t hash : found.state) numbers.push_back(static_cast<int64_t>(hash));
  for (const auto& value : found.observed) numbers.push_back(static_cast<int64_t>(value.hash));
  LS_ASSIGN_OR_RETURN(const std::vector<int64_t> home, ranks.BringHome(numbers, here.ranks()));
  // The same work: as many numbers, of the same things. What is missing counts as different.
  Outcome outcome = expected;
  size_t next = 0;
  const auto take = [&] { return next < home.size() ? home[next++] : int64_t{0}; };
  outcome.loss = std::bit_cast<double>(take());
  outcome.gradient_norm = std::bit_cast<double>(take());
  for (uint64_t& hash : outcome.state) hash = static_cast<uint64_t>(take());
  for (auto& value : outcome.observed) value.hash = static_cast<uint64_t>(take());
  return outcome;
}

absl::StatusOr<bool> RepeatGuard::Agree(const Outcome& a, const Outcome& b, RankInLeg& here) {
  // A rank that is wrong in its own role may come to the same sums in the role that it repeats, as
  // where it adds the same to a gradient of 0 in both. What its blocks and layers observed differs.
  const bool same = a.state == b.state && SameBits(a.loss, b.loss) &&
                    SameBits(a.gradient_norm, b.gradient_norm) &&
                    std::ranges::equal(a.observed, b.observed, {}, &ObservedStep::Value::hash,
                                       &ObservedStep::Value::hash);
  int64_t agree = same ? 1 : 0;
  LS_RETURN_IF_ERROR(
      AllReduceNumbers(here.ranks(), absl::MakeSpan(&agree, 1), ReduceOp::kMin, kLabel));
  return agree == 1;
}

absl::Status RepeatGuard::End(int64_t step, const StepResult& result, RankInLeg& here,
                              const Again& again) {
  if (!IsDue(step)) return absl::OkStatus();
  here.rank().search = nullptr;
  Outcome first = OutcomeOf(result, here);
  first.observed = first_->values();
  first_.reset();
  LS_RETURN_IF_ERROR(AgreeOnFirst(CheckCopy(step, here), here.ranks()));
  const int rank = here.rank().rank;
  Runs runs = {.first = first, .second = {}, .second_by = rank, .fourth_by = rank};
  if (exchanged_) {
    LS_ASSIGN_OR_RETURN(runs.second, RepeatElsewhere(*exchanged_, here, first, again));
    runs.second_by = exchanged_->StandIn();
  } else {
    runs.second = Repeat(here, again);
  }
  LS_ASSIGN_OR_RETURN(const bool agree, Agree(runs.first, runs.second, here));
  if (!agree) return Decide(step, std::move(runs), here, again);
  LS_RETURN_IF_ERROR(CheckFrozen(step, runs.first.state, here));
  at_rest_ = runs.second.state;
  copy_.clear();
  return absl::OkStatus();
}

absl::Status RepeatGuard::Decide(int64_t step, Runs runs, RankInLeg& here, const Again& again) {
  LS_RETURN_IF_ERROR(AgreeOnFirst(CheckCopy(step, here), here.ranks()));
  runs.third = Repeat(here, again);
  if (exchanged_) {
    // A third processor, where there is one.
    if (here.ranks().size() > 2) {
      exchanged_.reset();
      LS_ASSIGN_OR_RETURN(ExchangedRanks others,
                          ExchangedRanks::Make(here.leg(), here.ranks(), tools_, here.profiles(),
                                               /*shift=*/2));
      exchanged_.emplace(std::move(others));
    }
    Restore(here);
    LS_RETURN_IF_ERROR(exchanged_->Take(here.strategy(), here.ranks()));
    LS_ASSIGN_OR_RETURN(runs.fourth, RepeatElsewhere(*exchanged_, here, runs.first, again));
    runs.fourth_by = exchanged_->StandIn();
  }
  return Explain(step, runs, here);
}

RepeatGuard::Place RepeatGuard::WhereTheyDiffer(const Outcome& a, const Outcome& b) {
  const auto at = std::ranges::mismatch(a.observed, b.observed, {}, &ObservedStep::Value::hash,
                                        &ObservedStep::Value::hash)
                      .in1;
  return {.observed = at == a.observed.end() ? -1 : at - a.observed.begin(),
          .state = FirstDifference(a.state, b.state)};
}

RepeatGuard::Verdict RepeatGuard::Judge(const Runs& runs, const Place& place, int rank) {
  const auto bits = [&](const Outcome& outcome) -> std::array<uint64_t, 2> {
    if (place.observed >= 0) return {outcome.observed[static_cast<size_t>(place.observed)].hash};
    if (place.state >= 0) return {outcome.state[static_cast<size_t>(place.state)]};
    return {std::bit_cast<uint64_t>(outcome.loss), std::bit_cast<uint64_t>(outcome.gradient_norm)};
  };
  const auto first = bits(runs.first), second = bits(runs.second), third = bits(runs.third);
  constexpr char kInStep[] = "in the step, as two repetitions agree";
  constexpr char kInRepetition[] = "in its repetition, as another one agrees with the step";
  constexpr char kEachTime[] = "each time that the step is repeated";
  if (third == second) return {.suspects = {rank}, .when = kInStep};
  if (!runs.fourth) {
    return {.suspects = {rank}, .when = third == first ? kInRepetition : kEachTime};
  }
  const auto fourth = bits(*runs.fourth);
  if (fourth == first) return {.suspects = {runs.second_by}, .when = kInRepetition};
  if (fourth == second && runs.fourth_by != runs.second_by) {
    return {.suspects = {rank}, .when = "each time on that rank, as two other ranks agree"};
  }
  return {.suspects = {rank, runs.second_by},
          .when =
              "on two ranks each time, of which none has a "
              "majority"};
}

absl::Status RepeatGuard::Explain(int64_t step, const Runs& runs, RankInLeg& here) const {
  const Place place = WhereTheyDiffer(runs.first, runs.second);
  const int rank = here.rank().rank;
  const Verdict verdict = Judge(runs, place, rank);
  // When it was observed, the state that differs, and who is suspected.
  using Numbers = std::array<int64_t, 7>;
  Numbers own = {};
  const PassOrder order = place.observed < 0
                              ? kBehindAll
                              : runs.first.observed[static_cast<size_t>(place.observed)].order;
  std::ranges::copy(order, own.begin());
  own[4] = place.state;
  own[5] = verdict.suspects.front();
  own[6] = verdict.suspects.back();
  std::vector<Numbers> all(static_cast<size_t>(here.ranks().size()));
  LS_RETURN_IF_ERROR(GatherNumbers(
      here.ranks(), own, absl::MakeSpan(all.front().data(), own.size() * all.size()), kLabel));
  const auto order_of = [](const Numbers& numbers) {
    return PassOrder{numbers[0], numbers[1], numbers[2], numbers[3]};
  };
  auto speaker = std::ranges::min_element(all, {}, order_of);
  const PassOrder earliest = order_of(*speaker);
  const bool is_observed = earliest != kBehindAll;
  if (!is_observed) {
    speaker = std::ranges::find_if(all, [](const auto& numbers) { return numbers[4] >= 0; });
    if (speaker == all.end()) speaker = all.begin();  // loss or norm alone
  }
  const auto tell = [&](const absl::Status& found) {
    return sound_.Agree(found, sound_.SinceCheck(), here.ranks());
  };
  if (speaker - all.begin() != rank) return tell(absl::OkStatus());
  std::set<int64_t> suspects;
  for (const Numbers& numbers : all) {
    const bool is_here = is_observed ? order_of(numbers) == earliest : numbers[4] >= 0;
    if (is_here) suspects.insert({numbers[5], numbers[6]});
  }
  const std::vector<StateTensor> state = here.strategy().State();
  const bool is_one = suspects.size() == 1;
  const bool is_certain = is_one && !DependOnEachOther(here);
  const std::string where =
      absl::StrCat(is_certain ? "" : ", seen first", is_one ? " on rank " : " on the ranks ",
                   absl::StrJoin(suspects, ", "));
  std::string what;
  if (is_observed) {
    what = absl::StrCat(runs.first.observed[static_cast<size_t>(place.observed)].what, where);
  } else if (place.state < 0) {
    what = "the loss or the norm of the gradients";
  } else {
    what = absl::StrCat("the gradient or the update of '",
                        state[static_cast<size_t>(place.state)].name, "'", where);
  }
  return tell(
      absl::DataLossError(absl::StrCat("step ", step + 1, ": wrong bits: ", what,
                                       " came out differently ", verdict.when, kWrongBitsAdvice)));
}

}  // namespace lockstep
