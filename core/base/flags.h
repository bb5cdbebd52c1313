// A program's command line: Abseil flags, which are typed and list themselves, and words.
//
//   ABSL_FLAG(int, ranks, 4, "how many ranks");
//
//   int main(int argc, char** argv) {
//     return lockstep::RunProgram(argc, argv, {.usage = "Draws a ring.", .files = {__FILE__}},
//     Run);
//   }
//
// absl::ParseCommandLine is not called: it ends the process at the first mistake, keeps only the
// last value of a repeated flag, and accepts the flags of everything that is linked in, while here
// several programs may be one binary (//tools/portable:lockstep).

#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace lockstep {

// The type of a flag that may be repeated: all values, in the order of the command line.
struct RepeatedFlag {
  std::vector<std::string> values = {};
};
// As Abseil's flags require. In the text, a zero byte ends each value: no argument contains one.
bool AbslParseFlag(absl::string_view text, RepeatedFlag* flag, std::string* error);
std::string AbslUnparseFlag(const RepeatedFlag& flag);

// What a program accepts on its command line.
struct ProgramFlags {
  enum class Words {
    kNone,
    kAny,
    kPassedOn,  // words, "--" and flags that the program does not know are for another program
  };
  std::string usage;  // what the program does, and how its words go; --help begins with it
  // The source files whose ABSL_FLAGs are the program's, as __FILE__ names them.
  std::vector<std::string> files = {};
  Words words = Words::kNone;
};

struct ParsedFlags {
  bool help = false;                    // --help
  std::vector<std::string> words = {};  // what is no flag, in order
};

// Sets the Abseil flags that `arguments`, those behind the program's name, give. "--flag value" and
// "--flag=value" are the same; the value is the next argument, whatever it begins with. A bool is
// set by "--flag" alone, or by "--flag=true" and "--flag=false". Arguments behind "--" are words.
// Names have underscores. InvalidArgument, with the flags before it set: a flag that is not the
// program's (the message suggests the nearest), a value that is missing or of the wrong type, a
// value of a bool, and a word where there are none.
absl::StatusOr<ParsedFlags> ParseFlags(const std::vector<std::string>& arguments,
                                       const ProgramFlags& program);

// What --help prints: the usage, and each flag in the order of names with its text and default.
std::string FlagsHelp(const ProgramFlags& program);

// InvalidArgument unless least <= value <= most; `flag` is its name ("ranks").
absl::Status CheckRange(const std::string& flag, int64_t value, int64_t least, int64_t most);

// The whole main function of a program: parses its flags, prints the help where that is asked for,
// or calls `run` with the words. Returns the exit code (ExitCodeOf in core/base/program.h): that of
// `run`, or 1 after the message of its error or of what it throws on the standard error stream.
int RunProgram(int argc, char** argv, const ProgramFlags& program,
               const std::function<absl::StatusOr<int>(const std::vector<std::string>&)>& run);

}  // namespace lockstep
