#include "tools/collectives/request.h"

#include <optional>

#include "absl/flags/flag.h"
#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/nearest.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "tools/collectives/catalogue.h"

ABSL_FLAG(bool, all, false, "all operations on one HTML page; the flags apply where they can");
ABSL_FLAG(std::optional<int>, count, std::nullopt, "elements of each part, 1 to 8; default 1");
ABSL_FLAG(std::optional<std::string>, op, std::nullopt,
          "sum, product, min, max or average, where it reduces; default sum");
ABSL_FLAG(std::string, out, "collectives",
          "the file to write (.svg, with --all .html), or the folder for it");
ABSL_FLAG(int, ranks, 4, "how many ranks, 1 to 16");
ABSL_FLAG(std::optional<int>, root, std::nullopt,
          "the rank that gives or gets, where there is one; default 0");
ABSL_FLAG(bool, uneven, false,
          "parts of different sizes: gather, scatter, all_gather, reduce_scatter");

namespace lockstep {
namespace {

constexpr ReduceOp kReduceOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin,
                                   ReduceOp::kMax, ReduceOp::kAverage};

absl::StatusOr<ReduceOp> ReduceOpNamed(const std::string& name) {
  std::vector<std::string> names;
  for (const ReduceOp op : kReduceOps) {
    if (name == Name(op)) return op;
    names.emplace_back(Name(op));
  }
  return absl::InvalidArgumentError(absl::StrCat("--op ", name,
                                                 ": there is no such reduction; did "
                                                 "you mean ",
                                                 NearestName(name, names), "? There are ",
                                                 absl::StrJoin(names, ", ")));
}

// A flag that says how the operation runs must be of use to it.
absl::Status CheckUse(const DemoOptions& options) {
  const auto refuse = [&](const char* flag, const char* why) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": ", CollectiveOf(options.operation).name, " ", why));
  };
  if (absl::GetFlag(FLAGS_op) && !Reduces(options.operation)) {
    return refuse("--op", "reduces nothing");
  }
  if (absl::GetFlag(FLAGS_root) && !HasRoot(options.operation)) {
    return refuse("--root", "has no root");
  }
  if (options.uneven && !AllowsUneven(options.operation)) {
    return refuse("--uneven", "has no parts that may differ");
  }
  if (absl::GetFlag(FLAGS_count) && options.operation == Operation::kBarrier) {
    return refuse("--count", "carries no data");
  }
  return absl::OkStatus();
}

// A file for this suffix as it is; else a folder, and in it a file of this name.
std::string OutFile(const std::string& name, const std::string& suffix) {
  const std::string out = absl::GetFlag(FLAGS_out);
  return UserPath(out.ends_with(suffix) ? out : absl::StrCat(out, "/", name, suffix));
}

}  // namespace

absl::StatusOr<Request> RequestFromFlags(const std::vector<std::string>& words) {
  DemoOptions options;
  options.ranks = absl::GetFlag(FLAGS_ranks);
  options.root = absl::GetFlag(FLAGS_root).value_or(options.root);
  options.count = absl::GetFlag(FLAGS_count).value_or(options.count);
  LS_RETURN_IF_ERROR(CheckRange("ranks", options.ranks, 1, kMaxDemoRanks));
  LS_RETURN_IF_ERROR(CheckRange("root", options.root, 0, options.ranks - 1));
  LS_RETURN_IF_ERROR(CheckRange("count", options.count, 1, kMaxDemoCount));
  if (const auto op = absl::GetFlag(FLAGS_op)) {
    LS_ASSIGN_OR_RETURN(options.reduce_op, ReduceOpNamed(*op));
  }

  Request request = {.all = absl::GetFlag(FLAGS_all), .out = ""};
  if (request.all) {
    if (!words.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--all runs all operations; leave out ", words[0]));
    }
    for (const Collective& collective : Collectives()) {
      options.operation = collective.operation;
      options.uneven = absl::GetFlag(FLAGS_uneven) && AllowsUneven(options.operation);
      request.demos.push_back(options);
    }
    request.out = OutFile("collectives", ".html");
    return request;
  }

  if (words.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("give one operation, such as all_reduce, or --all; there are ", words.size(),
                     ". --help lists what there is"));
  }
  LS_ASSIGN_OR_RETURN(const Collective* collective, FindCollective(words[0]));
  options.operation = collective->operation;
  options.uneven = absl::GetFlag(FLAGS_uneven);
  LS_RETURN_IF_ERROR(CheckUse(options));
  request.demos = {options};
  request.out = OutFile(collective->name, ".svg");
  return request;
}

ProgramFlags CollectivesFlags() {
  std::string usage =
      "Runs a collective operation on ranks that are threads, checks and prints what each of them\n"
      "holds before and after, and draws what moves.\n\n"
      "  collectives OPERATION [options]\n"
      "  collectives --all [options]\n";
  for (const Collective& collective : Collectives()) {
    absl::StrAppend(&usage, "\n  ", collective.name,
                    std::string(17 - std::string(collective.name).size(), ' '), collective.summary);
  }
  return {.usage = usage, .files = {__FILE__}, .words = ProgramFlags::Words::kAny};
}

}  // namespace lockstep
