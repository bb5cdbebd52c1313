#include "tools/bench/sweep.h"

#include <algorithm>  // std::max

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep {
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
