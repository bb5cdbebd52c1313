#include "tools/bench/sweep.h"

#include <algorithm>  // std::max

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"

// Numbers are texts first where a list may stand.
ABSL_FLAG(std::vector<std::string>, operations, {},
          "of all_reduce, reduce_scatter, all_gather, broadcast, reduce, gather, scatter, "
          "all_to_all, send_recv; empty: all of them");
ABSL_FLAG(std::vector<std::string>, ranks, {"2"}, "numbers of ranks, each at least 2");
ABSL_FLAG(int64_t, min_bytes, 4, "the smallest payload");
ABSL_FLAG(int64_t, max_bytes, int64_t{256} << 20, "the largest payload");
ABSL_FLAG(int64_t, factor, 8, "from one payload to the next");
ABSL_FLAG(std::string, dtype, "f32", "f32, f64, i32 or i64");
ABSL_FLAG(bool, in_place, false, "outputs lie in inputs, or inputs in outputs");
ABSL_FLAG(double, seconds, 0.3, "that each measurement may take, more where three batches need it");

namespace lockstep {
namespace {

// More than any machine has; sums of a few of them are still numbers.
constexpr int kMostRanks = 1024;
constexpr int64_t kMostBytes = int64_t{1} << 50;

}  // namespace

absl::StatusOr<Sweep> SweepFromFlags() {
  Sweep sweep{.min_bytes = absl::GetFlag(FLAGS_min_bytes),
              .max_bytes = absl::GetFlag(FLAGS_max_bytes),
              .factor = absl::GetFlag(FLAGS_factor),
              .in_place = absl::GetFlag(FLAGS_in_place),
              .seconds = absl::GetFlag(FLAGS_seconds)};
  for (const std::string& name : absl::GetFlag(FLAGS_operations)) {
    LS_ASSIGN_OR_RETURN(const Operation operation, TimedOperation(name));
    sweep.operations.push_back(operation);
  }
  if (sweep.operations.empty()) sweep.operations = TimedOperations();
  for (const std::string& text : absl::GetFlag(FLAGS_ranks)) {
    int ranks = 0;
    if (!absl::SimpleAtoi(text, &ranks) || ranks < 2 || ranks > kMostRanks) {
      return InvalidArgument("--ranks: '", text, "' is not a whole number from 2 to ", kMostRanks);
    }
    sweep.ranks.push_back(ranks);
  }
  LS_ASSIGN_OR_RETURN(sweep.dtype, TimedDType(absl::GetFlag(FLAGS_dtype)));
  if (sweep.min_bytes < 1 || sweep.max_bytes < sweep.min_bytes || sweep.max_bytes > kMostBytes) {
    return InvalidArgument(
        "--min_bytes=", sweep.min_bytes, " --max_bytes=", sweep.max_bytes,
        ": the first must be at least 1, the second at least the first and at most 2^50");
  }
  if (sweep.factor < 2) {
    return InvalidArgument("--factor=", sweep.factor, ": must be at least 2");
  }
  if (!(sweep.seconds > 0)) {
    return InvalidArgument("--seconds=", sweep.seconds, ": must be positive");
  }
  return sweep;
}

std::vector<std::string> SweepArguments(const Sweep& sweep, int ranks) {
  return {absl::StrCat("--operations=", absl::StrJoin(sweep.operations, ",",
                                                      [](std::string* out, Operation operation) {
                                                        out->append(TimedName(operation));
                                                      })),
          absl::StrCat("--ranks=", ranks),
          absl::StrCat("--min_bytes=", sweep.min_bytes),
          absl::StrCat("--max_bytes=", sweep.max_bytes),
          absl::StrCat("--factor=", sweep.factor),
          absl::StrCat("--dtype=", Name(sweep.dtype)),
          absl::StrCat("--in_place=", sweep.in_place ? "true" : "false"),
          absl::StrCat("--seconds=", sweep.seconds)};
}

std::vector<TimedCall> CallsOf(const Sweep& sweep, int ranks) {
  std::vector<TimedCall> calls;
  for (const Operation operation : sweep.operations) {
    int64_t last = 0;
    const auto add = [&](int64_t bytes) {
      const TimedCall call = CallOfSize(operation, sweep.dtype, ranks, bytes, sweep.in_place);
      if (call.elements == last) return;
      last = call.elements;
      calls.push_back(call);
    };
    // Divided, as the product may be more than there are numbers.
    for (int64_t bytes = sweep.min_bytes; bytes < sweep.max_bytes;
         bytes = bytes <= sweep.max_bytes / sweep.factor ? bytes * sweep.factor : sweep.max_bytes) {
      add(bytes);
    }
    add(sweep.max_bytes);
  }
  return calls;
}

int64_t MostElements(const std::vector<TimedCall>& calls) {
  int64_t most = 0;
  for (const TimedCall& call : calls) most = std::max(most, call.elements);
  return most;
}

}  // namespace lockstep
