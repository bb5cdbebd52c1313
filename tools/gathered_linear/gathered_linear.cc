// Tensor parallelism in one layer: a linear layer whose weight is split by column, and whose
// outputs all ranks gather.
//
//   ./bazelw run //tools/gathered_linear
//   ./bazelw run //tools/gathered_linear -- --ranks 4 --rows 8 --in 300 --out 500

#include <cstdio>
#include <string>
#include <vector>

#include "absl/flags/flag.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "tools/gathered_linear/demo.h"

ABSL_FLAG(int, ranks, 2, "how many ranks, 1 to 16");
ABSL_FLAG(int64_t, rows, 32, "rows of x: the batch, 1 to 4096");
ABSL_FLAG(int64_t, in, 1000, "features of x, 1 to 8192");
ABSL_FLAG(int64_t, out, 1000, "features of y, from the number of ranks to 8192");
ABSL_FLAG(uint64_t, seed, 1, "seed of x, of the gradient of y, and of the layer's initial values");

namespace lockstep {
namespace {

absl::StatusOr<int> Run(const std::vector<std::string>& /*words*/) {
  const GatheredLinearOptions options = {.ranks = absl::GetFlag(FLAGS_ranks),
                                         .rows = absl::GetFlag(FLAGS_rows),
                                         .in = absl::GetFlag(FLAGS_in),
                                         .out = absl::GetFlag(FLAGS_out),
                                         .seed = absl::GetFlag(FLAGS_seed)};
  LS_RETURN_IF_ERROR(CheckRange("ranks", options.ranks, 1, 16));
  LS_RETURN_IF_ERROR(CheckRange("rows", options.rows, 1, 4096));
  LS_RETURN_IF_ERROR(CheckRange("in", options.in, 1, 8192));
  LS_RETURN_IF_ERROR(CheckRange("out", options.out, options.ranks, 8192));
  LS_ASSIGN_OR_RETURN(const GatheredLinear demo, RunGatheredLinear(options));
  std::fputs(TextOf(demo).c_str(), stdout);
  if (!demo.IsAsExpected()) {
    return absl::InternalError("the divided layer is not what the undivided one and theory say");
  }
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Runs one linear layer forward and backward on ranks that are threads. Each holds\n"
                "some of the weight's rows and gathers the outputs of all. Prints the shapes and\n"
                "the traffic of each rank, and compares with the undivided layer bit by bit.\n\n"
                "  gathered_linear [options]",
       .files = {__FILE__}},
      lockstep::Run);
}
