#include "tools/collectives/request.h"

#include <map>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/nearest.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "tools/arguments/arguments.h"
#include "tools/collectives/catalogue.h"

namespace lockstep {
namespace {

constexpr ReduceOp kReduceOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin,
                                   ReduceOp::kMax, ReduceOp::kAverage};

const std::map<std::string, FlagKind>& Flags() {
  static const auto& flags = *new std::map<std::string, FlagKind>{
      {"--all", FlagKind::kSwitch}, {"--count", FlagKind::kValue},  {"--help", FlagKind::kSwitch},
      {"--op", FlagKind::kValue},   {"--out", FlagKind::kValue},    {"--ranks", FlagKind::kValue},
      {"--root", FlagKind::kValue}, {"--uneven", FlagKind::kSwitch}};
  return flags;
}

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

absl::Status CheckUse(const Arguments& arguments, const DemoOptions& options) {
  const auto refuse = [&](const char* flag, const char* why) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": ", CollectiveOf(options.operation).name, " ", why));
  };
  if (arguments.Has("--op") && !Reduces(options.operation))
    return refuse("--op", "reduces nothing");
  if (arguments.Has("--root") && !HasRoot(options.operation))
    return refuse("--root", "has no root");
  if (arguments.Has("--uneven") && !AllowsUneven(options.operation)) {
    return refuse("--uneven", "has no parts that may differ");
  }
  if (arguments.Has("--count") && options.operation == Operation::kBarrier) {
    return refuse("--count", "carries no data");
  }
  return absl::OkStatus();
}

// A file for this suffix as it is; else a folder, and in it a file of this name.
std::string OutFile(const Arguments& arguments, const std::string& name,
                    const std::string& suffix) {
  const std::string out = arguments.Value("--out", "collectives");
  return UserPath(out.ends_with(suffix) ? out : absl::StrCat(out, "/", name, suffix));
}

}  // namespace

absl::StatusOr<Request> ParseRequest(const std::vector<std::string>& command_line) {
  LS_ASSIGN_OR_RETURN(const Arguments arguments, Arguments::Parse(command_line, Flags()));
  Request request = {.help = arguments.Has("--help"), .all = arguments.Has("--all"), .out = ""};
  if (request.help) return request;

  DemoOptions options;
  LS_ASSIGN_OR_RETURN(options.ranks, arguments.Whole("--ranks", 1, kMaxDemoRanks, 4));
  LS_ASSIGN_OR_RETURN(options.root, arguments.Whole("--root", 0, options.ranks - 1, 0));
  LS_ASSIGN_OR_RETURN(options.count, arguments.Whole("--count", 1, kMaxDemoCount, 1));
  if (arguments.Has("--op")) {
    LS_ASSIGN_OR_RETURN(options.reduce_op, ReduceOpNamed(arguments.Value("--op")));
  }

  if (request.all) {
    if (!arguments.words().empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--all runs all operations; leave out ", arguments.words()[0]));
    }
    for (const Collective& collective : Collectives()) {
      options.operation = collective.operation;
      options.uneven = arguments.Has("--uneven") && AllowsUneven(options.operation);
      request.demos.push_back(options);
    }
    request.out = OutFile(arguments, "collectives", ".html");
    return request;
  }

  if (arguments.words().size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("give one operation, such as all_reduce, or --all; there are ",
                     arguments.words().size(), ". --help lists what there is"));
  }
  LS_ASSIGN_OR_RETURN(const Collective* collective, FindCollective(arguments.words()[0]));
  options.operation = collective->operation;
  options.uneven = arguments.Has("--uneven");
  LS_RETURN_IF_ERROR(CheckUse(arguments, options));
  request.demos = {options};
  request.out = OutFile(arguments, collective->name, ".svg");
  return request;
}

std::string Usage() {
  std::string usage =
      "Runs a collective operation on ranks that are threads, checks and prints what each of them\n"
      "holds before and after, and draws what moves.\n\n"
      "  collectives OPERATION [options]\n"
      "  collectives --all [options]\n\n";
  for (const Collective& collective : Collectives()) {
    absl::StrAppend(&usage, "  ", collective.name,
                    std::string(17 - std::string(collective.name).size(), ' '), collective.summary,
                    "\n");
  }
  return usage +
         "\n"
         "  --ranks N        how many ranks, 1 to 16; default 4\n"
         "  --op OP          sum, product, min, max or average, where it reduces; default sum\n"
         "  --root R         the rank that gives or gets, where there is one; default 0\n"
         "  --count N        elements of each part, 1 to 8; default 1\n"
         "  --uneven         parts of different sizes: gather, scatter, all_gather,\n"
         "                   reduce_scatter\n"
         "  --all            all operations on one HTML page; options apply where they can\n"
         "  --out PATH       the file to write (.svg, with --all .html) or the folder for it;\n"
         "                   default collectives/\n"
         "  --help           this text\n";
}

}  // namespace lockstep
