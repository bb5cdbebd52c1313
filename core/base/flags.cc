#include "core/base/flags.h"

#include <algorithm>
#include <cmath>  // std::isfinite
#include <cstdint>
#include <cstdio>
#include <map>
#include <optional>

#include "absl/flags/commandlineflag.h"
#include "absl/flags/reflection.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/nearest.h"
#include "core/base/program.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

using Flags = std::map<std::string, absl::CommandLineFlag*>;  // by name, "--ranks"

constexpr char kHelp[] = "--help";

Flags FlagsOf(const ProgramFlags& program) {
  Flags flags;
  for (const auto& [name, flag] : absl::GetAllFlags()) {
    const auto& files = program.files;
    if (std::find(files.begin(), files.end(), flag->Filename()) == files.end()) continue;
    flags.emplace(absl::StrCat("--", name), flag);
  }
  return flags;
}

bool IsWhole(const absl::CommandLineFlag& flag) {
  return flag.IsOfType<int>() || flag.IsOfType<int64_t>() || flag.IsOfType<uint64_t>() ||
         flag.IsOfType<std::optional<int>>() || flag.IsOfType<std::optional<int64_t>>();
}

absl::Status Set(const std::string& name, absl::CommandLineFlag& flag, const std::string& value) {
  std::string text = value, error;
  if (auto repeated = flag.TryGet<RepeatedFlag>()) {
    repeated->values.push_back(value);
    text = AbslUnparseFlag(*repeated);
  }
  // An empty text would be an optional number that is not given.
  const bool is_number = !(value.empty() && IsWhole(flag));
  if (is_number && flag.ParseFrom(text, &error)) {
    const auto number = flag.TryGet<double>();
    if (!number || std::isfinite(*number)) return absl::OkStatus();
    return InvalidArgument(name, " ", value, ": give a finite number");
  }
  return InvalidArgument(name, " ", value, ": give a ", IsWhole(flag) ? "whole " : "", "number");
}

absl::Status Unknown(const std::string& name, const Flags& flags) {
  std::vector<std::string> names = {kHelp};
  for (const auto& [known, flag] : flags) names.push_back(known);
  return InvalidArgument("unknown argument '", name, "'; did you mean ", NearestName(name, names),
                         "? --help lists what there is");
}

}  // namespace

bool AbslParseFlag(absl::string_view text, RepeatedFlag* flag, std::string* /*error*/) {
  flag->values = absl::StrSplit(text, '\0');
  flag->values.pop_back();  // what is behind the last zero byte: nothing
  return true;
}

std::string AbslUnparseFlag(const RepeatedFlag& flag) {
  std::string text;
  for (const std::string& value : flag.values) (text += value) += '\0';
  return text;
}

absl::StatusOr<ParsedFlags> ParseFlags(const std::vector<std::string>& arguments,
                                       const ProgramFlags& program) {
  const bool passes_on = program.words == ProgramFlags::Words::kPassedOn;
  const Flags flags = FlagsOf(program);
  ParsedFlags parsed;
  for (auto at = arguments.begin(); at != arguments.end(); ++at) {
    if (*at == "--" && !passes_on) {
      parsed.words.insert(parsed.words.end(), at + 1, arguments.end());
      break;
    }
    const size_t equals = std::min(at->find('='), at->size());
    const std::string name = at->substr(0, equals);
    const bool is_attached = equals < at->size();
    const auto found = flags.find(name);
    const bool is_known = found != flags.end() || name == kHelp;
    if (!at->starts_with("-") || (passes_on && !is_known)) {
      parsed.words.push_back(*at);
      continue;
    }
    if (!is_known) return Unknown(name, flags);
    std::string value = is_attached ? at->substr(equals + 1) : "true";
    if (name == kHelp || found->second->IsOfType<bool>()) {
      if (value != "true" && value != "false") {
        return InvalidArgument(name, " takes no value, but for ", name, "=true or =false");
      }
    } else if (!is_attached) {
      if (++at == arguments.end()) {
        return InvalidArgument(name, " needs a value behind it");
      }
      value = *at;
    }
    if (name == kHelp) {
      parsed.help = value == "true";
    } else {
      LS_RETURN_IF_ERROR(Set(name, *found->second, value));
    }
  }
  if (program.words == ProgramFlags::Words::kNone && !parsed.words.empty()) {
    return InvalidArgument("'", parsed.words[0],
                           "' belongs to no option; --help lists what there is");
  }
  return parsed;
}

std::string FlagsHelp(const ProgramFlags& program) {
  std::map<std::string, std::string> lines = {{kHelp, "this text"}};  // by the flag and its value
  for (const auto& [name, flag] : FlagsOf(program)) {
    const bool is_switch = flag->IsOfType<bool>();
    const char* value = IsWhole(*flag) ? " N" : flag->IsOfType<double>() ? " X" : " VALUE";
    std::string& text = lines[absl::StrCat(name, is_switch ? "" : value)];
    text = flag->Help();
    const std::string fallback = flag->DefaultValue();
    if (!is_switch && !fallback.empty()) absl::StrAppend(&text, "; default ", fallback);
  }
  size_t widest = 0;
  for (const auto& [flag, text] : lines) widest = std::max(widest, flag.size());
  std::string help = program.usage + "\n\n";
  for (const auto& [flag, text] : lines) {
    absl::StrAppend(&help, "  ", flag, std::string(widest + 2 - flag.size(), ' '), text, "\n");
  }
  return help;
}

absl::Status CheckRange(const std::string& flag, int64_t value, int64_t least, int64_t most) {
  if (value >= least && value <= most) return absl::OkStatus();
  return InvalidArgument("--", flag, " ", value, ": give a whole number from ", least, " to ",
                         most);
}

int RunProgram(int argc, char** argv, const ProgramFlags& program,
               const std::function<absl::StatusOr<int>(const std::vector<std::string>&)>& run) {
  return ExitCodeOf([&]() -> absl::StatusOr<int> {
    LS_ASSIGN_OR_RETURN(const ParsedFlags parsed, ParseFlags({argv + 1, argv + argc}, program));
    if (!parsed.help) return run(parsed.words);
    std::fputs(FlagsHelp(program).c_str(), stdout);
    return 0;
  });
}

}  // namespace lockstep
