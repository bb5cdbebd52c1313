// What ranks do together, shown.
//
//   ./bazelw run //tools/collectives -- all_reduce --ranks 4
//   ./bazelw run //tools/collectives -- --all

#include <algorithm>
#include <cstdio>
#include <cstdlib>  // std::abs
#include <optional>
#include <string>
#include <tuple>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/flags.h"
#include "core/base/nearest.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "tools/collectives/catalogue.h"
#include "tools/collectives/demo.h"
#include "tools/collectives/picture.h"
#include "tools/collectives/text.h"
#include "tools/experiment/outputs.h"
#include "tools/experiment/paths.h"

ABSL_FLAG(bool, all, false, "all operations on one HTML page; the flags apply where they can");
ABSL_FLAG(std::optional<int>, count, std::nullopt, "elements of each part, 1 to 8; default 1");
ABSL_FLAG(std::optional<std::string>, op, std::nullopt,
          "sum, product, min, max or average, where it reduces; default sum");
ABSL_FLAG(std::string, out, "collectives",
          "the file to write (.svg, with --all .html), or the folder for it");
ABSL_FLAG(int, ranks, 4, "how many ranks, 1 to 16");
ABSL_FLAG(std::optional<int>, root, std::nullopt,
          "the rank that gives or gets, where there is one; default 0");
ABSL_FLAG(std::vector<std::string>, values, {},
          "a whole number for each rank, which it brings: 4,1,2,2");
ABSL_FLAG(
    std::vector<std::string>, groups, {},
    "a number for each rank: ranks of the same number run the operation by themselves: 0,0,1,1");
ABSL_FLAG(bool, uneven, false,
          "parts of different sizes: gather, scatter, all_gather, reduce_scatter");

namespace lockstep {
namespace {

// The numbers of a flag, one for each rank; none if it is not given.
absl::StatusOr<std::vector<int>> Numbers(const std::string& flag,
                                         const std::vector<std::string>& texts, int ranks,
                                         int least, int most) {
  std::vector<int> numbers;
  for (const std::string& text : texts) {
    int& number = numbers.emplace_back();
    if (!absl::SimpleAtoi(text, &number) || number < least || number > most) {
      return InvalidArgument("--", flag, ": '", text, "' is no whole number from ", least, " to ",
                             most);
    }
  }
  if (texts.empty() || static_cast<int>(texts.size()) == ranks) return numbers;
  return InvalidArgument("--", flag, " has ", texts.size(), " numbers, but there are ", ranks,
                         " ranks: give one for each");
}

// Whether fp32 has what is made of the values exactly, so that any order of sums gives it.
absl::Status CheckExact(const DemoOptions& options) {
  double product = 1;
  for (const int value : options.values) product *= std::max(1, std::abs(value));
  if (options.reduce_op != ReduceOp::kProduct || product <= 0x1p24) return absl::OkStatus();
  return InvalidArgument("--values: their product may reach ", product,
                         ", which fp32 has not exactly; give smaller ones");
}

// What the flags say of every operation.
absl::StatusOr<DemoOptions> OptionsFromFlags() {
  DemoOptions options;
  options.ranks = absl::GetFlag(FLAGS_ranks);
  options.root = absl::GetFlag(FLAGS_root).value_or(options.root);
  options.count = absl::GetFlag(FLAGS_count).value_or(options.count);
  options.uneven = absl::GetFlag(FLAGS_uneven);
  LS_RETURN_IF_ERROR(CheckRange("ranks", options.ranks, 1, kMaxDemoRanks));
  LS_ASSIGN_OR_RETURN(options.groups, Numbers("groups", absl::GetFlag(FLAGS_groups), options.ranks,
                                              0, kMaxDemoRanks - 1));
  LS_ASSIGN_OR_RETURN(options.values,
                      Numbers("values", absl::GetFlag(FLAGS_values), options.ranks, -1000, 1000));
  for (const std::vector<int>& members : options.members()) {
    const auto size = static_cast<int>(members.size());
    LS_RETURN_IF_ERROR(CheckRange("root", options.root, 0, size - 1));
  }
  LS_RETURN_IF_ERROR(CheckRange("count", options.count, 1, kMaxDemoCount));
  if (const auto op = absl::GetFlag(FLAGS_op)) {
    constexpr ReduceOp kAll[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin, ReduceOp::kMax,
                                 ReduceOp::kAverage};
    LS_ASSIGN_OR_RETURN(options.reduce_op,
                        FindNamed("reduction", *op, kAll, [](ReduceOp any) { return Name(any); }));
  }
  LS_RETURN_IF_ERROR(CheckExact(options));
  return options;
}

// A flag that says how the operation runs must be of use to it.
absl::Status CheckUse(const DemoOptions& options) {
  const Operation operation = options.operation;
  const bool carries_data = operation != Operation::kBarrier;
  for (const auto& [flag, is_given, is_useful, why] :
       {std::tuple("--op", absl::GetFlag(FLAGS_op).has_value(), Reduces(operation),
                   "reduces nothing"),
        {"--root", absl::GetFlag(FLAGS_root).has_value(), HasRoot(operation), "has no root"},
        {"--uneven", options.uneven, AllowsUneven(operation), "has no parts that may differ"},
        {"--values", !options.values.empty(), carries_data && operation != Operation::kAllToAll,
         "takes no number of each rank"},
        {"--count", absl::GetFlag(FLAGS_count).has_value(), carries_data, "carries no data"}}) {
    if (!is_given || is_useful) continue;
    return InvalidArgument(flag, ": ", CollectiveOf(operation).name, " ", why);
  }
  return absl::OkStatus();
}

// A file for this suffix as it is; else a folder, and in it a file of this name.
std::string OutFile(const std::string& name, const std::string& suffix) {
  const std::string out = absl::GetFlag(FLAGS_out);
  return UserPath(out.ends_with(suffix) ? out : absl::StrCat(out, "/", name, suffix));
}

// All operations on one page; the flags apply where they can.
absl::Status ShowAll(DemoOptions options) {
  const std::string out = OutFile("collectives", ".html");
  LS_RETURN_IF_ERROR(CheckOutputs({OutputThatBeginsWith(out, "an HTML page", "<!DOCTYPE html>")}));
  std::vector<Demo> demos;
  const std::vector<int> values = options.values;
  for (const Collective& collective : Collectives()) {
    options.operation = collective.operation;
    options.uneven = absl::GetFlag(FLAGS_uneven) && AllowsUneven(options.operation);
    options.values = options.operation == Operation::kAllToAll ? std::vector<int>() : values;
    LS_ASSIGN_OR_RETURN(demos.emplace_back(), RunDemo(options));
    std::printf("%s: checked\n", Title(options).c_str());
  }
  LS_RETURN_IF_ERROR(WriteOutput(out, Page(demos)));
  std::printf("page   %s\n", out.c_str());
  return absl::OkStatus();
}

absl::Status ShowOne(const std::string& name, DemoOptions options) {
  LS_ASSIGN_OR_RETURN(const Collective collective, FindCollective(name));
  options.operation = collective.operation;
  LS_RETURN_IF_ERROR(CheckUse(options));
  const std::string out = OutFile(collective.name, ".svg");
  LS_RETURN_IF_ERROR(CheckOutputs({OutputThatBeginsWith(out, "an SVG picture", "<svg")}));
  LS_ASSIGN_OR_RETURN(const Demo demo, RunDemo(options));
  std::fputs(TextReport(demo).c_str(), stdout);
  LS_RETURN_IF_ERROR(WriteOutput(out, Picture(demo)));
  std::printf("picture   %s\n", out.c_str());
  return absl::OkStatus();
}

absl::StatusOr<int> Run(const std::vector<std::string>& words) {
  LS_ASSIGN_OR_RETURN(const DemoOptions options, OptionsFromFlags());
  const bool all = absl::GetFlag(FLAGS_all);
  if (all && !words.empty()) {
    return InvalidArgument("--all runs all operations; leave out ", words[0]);
  }
  if (!all && words.size() != 1) {
    return InvalidArgument("give one operation, such as all_reduce, or --all; there are ",
                           words.size(), ". --help lists what there is");
  }
  LS_RETURN_IF_ERROR(all ? ShowAll(options) : ShowOne(words[0], options));
  return 0;
}

ProgramFlags Flags() {
  std::string usage =
      "Runs a collective operation on ranks that are threads, checks and prints what each of them\n"
      "holds before and after, and draws what moves.\n\n"
      "  collectives OPERATION [options]\n"
      "  collectives --all [options]\n";
  for (const Collective& collective : Collectives()) {
    absl::StrAppendFormat(&usage, "\n  %-17s%s", collective.name, collective.summary);
  }
  return {
      .usage = usage, .files = {__FILE__, kOverwriteFlagFile}, .words = ProgramFlags::Words::kAny};
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(argc, argv, lockstep::Flags(), lockstep::Run);
}
