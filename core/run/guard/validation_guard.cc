#include "core/run/guard/validation_guard.h"

#include <array>
#include <bit>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"
#include "core/run/guard/wrong_bits.h"

namespace lockstep {
namespace {

bool SameBits(ValidationPart a, ValidationPart b) {
  using Bits = std::array<uint64_t, sizeof(ExactSum) / sizeof(uint64_t)>;
  return std::bit_cast<Bits>(a.sums.loss.bins()) == std::bit_cast<Bits>(b.sums.loss.bins()) &&
         a.sums.correct == b.sums.correct && a.targets == b.targets;
}

// Another validation, of whose routing nobody takes notes.
ValidationPart Again(RankInLeg& here) {
  Rank& rank = here.rank();
  RoutedSteps* const routing = std::exchange(rank.routing, nullptr);
  const ValidationPart part = EvaluatePart(here.leg(), rank, here.strategy());
  rank.routing = routing;
  return part;
}

}  // namespace

absl::Status ValidationGuard::Check(int64_t steps, const ValidationPart& first,
                                    RankInLeg& here) const {
  if (!schedule_.IsDueBehind(steps)) return absl::OkStatus();
  const ValidationPart second = Again(here);
  const bool is_same = SameBits(first, second);
  int64_t differ = is_same ? 0 : 1;
  LS_RETURN_IF_ERROR(AllReduceNumbers(here.ranks(), absl::MakeSpan(&differ, 1), ReduceOp::kMax,
                                      "repeated validation"));
  if (differ == 0) return absl::OkStatus();
  const ValidationPart third = Again(here);
  absl::Status found;
  if (!is_same) {
    const char* when = SameBits(second, third) ? "at first, as two repetitions agree"
                       : SameBits(first, third)
                           ? "in its repetition, as another one agrees with the first"
                           : "each time that it was repeated";
    found = absl::DataLossError(
        absl::StrCat("step ", steps, ": wrong bits: the validation behind it",
                     DependOnEachOther(here) ? ", seen first" : "", " on rank ", here.rank().rank,
                     " came out differently ", when, kWrongBitsAdvice));
  }
  return sound_.Agree(found, sound_.SinceCheck(), here.ranks());
}

}  // namespace lockstep
