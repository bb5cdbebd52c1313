#include "tools/collectives/request.h"

#include <algorithm>  // std::min
#include <map>
#include <optional>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/nearest.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "tools/collectives/catalogue.h"

namespace lockstep {
namespace {

constexpr ReduceOp kReduceOps[] = {ReduceOp::kSum, ReduceOp::kProduct, ReduceOp::kMin,
                                   ReduceOp::kMax, ReduceOp::kAverage};

enum class FlagKind { kSwitch, kValue };

const std::map<std::string, FlagKind>& Flags() {
  static const auto& flags = *new std::map<std::string, FlagKind>{
      {"--all", FlagKind::kSwitch}, {"--count", FlagKind::kValue},  {"--help", FlagKind::kSwitch},
      {"--op", FlagKind::kValue},   {"--out", FlagKind::kValue},    {"--ranks", FlagKind::kValue},
      {"--root", FlagKind::kValue}, {"--uneven", FlagKind::kSwitch}};
  return flags;
}

// The arguments sorted out, nothing understood yet.
struct Raw {
  std::vector<std::string> operations;
  std::map<std::string, std::string> flags;  // a switch has an empty value

  bool Has(const std::string& flag) const { return flags.contains(flag); }
};

absl::StatusOr<Raw> SortOut(const std::vector<std::string>& arguments) {
  Raw raw;
  for (size_t i = 0; i < arguments.size(); ++i) {
    if (!arguments[i].starts_with("-")) {
      raw.operations.push_back(arguments[i]);
      continue;
    }
    const size_t equals = std::min(arguments[i].find('='), arguments[i].size());
    const std::string flag = arguments[i].substr(0, equals);
    const auto known = Flags().find(flag);
    if (known == Flags().end()) {
      std::vector<std::string> names;
      for (const auto& [name, kind] : Flags()) names.push_back(name);
      return absl::InvalidArgumentError(absl::StrCat("unknown argument '", flag, "'; did you mean ",
                                                     NearestName(flag, names),
                                                     "? --help lists what there is"));
    }
    const bool attached = equals < arguments[i].size();
    if (known->second == FlagKind::kSwitch) {
      if (attached) return absl::InvalidArgumentError(absl::StrCat(flag, " takes no value"));
      raw.flags[flag] = "";
    } else if (attached) {
      raw.flags[flag] = arguments[i].substr(equals + 1);
    } else if (i + 1 < arguments.size()) {
      raw.flags[flag] = arguments[++i];
    } else {
      return absl::InvalidArgumentError(absl::StrCat(flag, " needs a value behind it"));
    }
  }
  return raw;
}

// A whole number in [least, most]; `fallback` where the flag is not given.
absl::StatusOr<int> Number(const Raw& raw, const std::string& flag, int least, int most,
                           int fallback) {
  if (!raw.Has(flag)) return fallback;
  const std::string& text = raw.flags.at(flag);
  int number = 0;
  if (!absl::SimpleAtoi(text, &number) || number < least || number > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, " ", text, ": give a whole number from ", least, " to ", most));
  }
  return number;
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

absl::Status CheckUse(const Raw& raw, const DemoOptions& options) {
  const auto refuse = [&](const char* flag, const char* why) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": ", CollectiveOf(options.operation).name, " ", why));
  };
  if (raw.Has("--op") && !Reduces(options.operation)) return refuse("--op", "reduces nothing");
  if (raw.Has("--root") && !HasRoot(options.operation)) return refuse("--root", "has no root");
  if (raw.Has("--uneven") && !AllowsUneven(options.operation)) {
    return refuse("--uneven", "has no parts that may differ");
  }
  if (raw.Has("--count") && options.operation == Operation::kBarrier) {
    return refuse("--count", "carries no data");
  }
  return absl::OkStatus();
}

// A file for this suffix as it is; else a folder, and in it a file of this name.
std::string OutFile(const Raw& raw, const std::string& name, const std::string& suffix) {
  const std::string out = raw.Has("--out") ? raw.flags.at("--out") : "collectives";
  return UserPath(out.ends_with(suffix) ? out : absl::StrCat(out, "/", name, suffix));
}

}  // namespace

absl::StatusOr<Request> ParseRequest(const std::vector<std::string>& arguments) {
  LS_ASSIGN_OR_RETURN(const Raw raw, SortOut(arguments));
  Request request = {.help = raw.Has("--help"), .all = raw.Has("--all"), .out = ""};
  if (request.help) return request;

  DemoOptions options;
  LS_ASSIGN_OR_RETURN(options.ranks, Number(raw, "--ranks", 1, kMaxDemoRanks, 4));
  LS_ASSIGN_OR_RETURN(options.root, Number(raw, "--root", 0, options.ranks - 1, 0));
  LS_ASSIGN_OR_RETURN(options.count, Number(raw, "--count", 1, kMaxDemoCount, 1));
  if (raw.Has("--op")) {
    LS_ASSIGN_OR_RETURN(options.reduce_op, ReduceOpNamed(raw.flags.at("--op")));
  }

  if (request.all) {
    if (!raw.operations.empty()) {
      return absl::InvalidArgumentError(
          absl::StrCat("--all runs all operations; leave out ", raw.operations[0]));
    }
    for (const Collective& collective : Collectives()) {
      options.operation = collective.operation;
      options.uneven = raw.Has("--uneven") && AllowsUneven(options.operation);
      request.demos.push_back(options);
    }
    request.out = OutFile(raw, "collectives", ".html");
    return request;
  }

  if (raw.operations.size() != 1) {
    return absl::InvalidArgumentError(
        absl::StrCat("give one operation, such as all_reduce, or --all; there are ",
                     raw.operations.size(), ". --help lists what there is"));
  }
  LS_ASSIGN_OR_RETURN(const Collective* collective, FindCollective(raw.operations[0]));
  options.operation = collective->operation;
  options.uneven = raw.Has("--uneven");
  LS_RETURN_IF_ERROR(CheckUse(raw, options));
  request.demos = {options};
  request.out = OutFile(raw, collective->name, ".svg");
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
