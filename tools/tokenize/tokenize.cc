// Makes a file of token ids from text, for [data] kind = "tokens":
//
//   ./bazelw run //tools/tokenize -- --bpe gpt2-bpe --input input.txt --output tokens.bin
//
// Words are never joined across the border between training and validation. Takes four bytes of
// memory a token; the text itself stays on the disk.

#include <unistd.h>  // isatty

#include <algorithm>  // std::max
#include <cmath>      // std::floor
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_format.h"
#include "core/base/clock.h"
#include "core/base/flags.h"
#include "core/base/mapped_file.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/data/token_file.h"
#include "core/text/byte_pairs.h"
#include "tools/experiment/outputs.h"
#include "tools/tokenize/tokenized_text.h"

ABSL_FLAG(std::string, bpe, "", "folder with encoder.json and vocab.bpe");
ABSL_FLAG(std::string, input, "", "the text, in UTF-8");
ABSL_FLAG(std::string, output, "", "the file to make");
ABSL_FLAG(double, validation, 0.1, "share of the characters, the last, that are for validation");

namespace lockstep {
namespace {

absl::StatusOr<std::string> PathFlag(const char* name, const std::string& value) {
  if (!value.empty()) return UserPath(value);
  return InvalidArgument("--", name, " is missing; --help says what there is");
}

absl::StatusOr<int> RunMain() {
  LS_ASSIGN_OR_RETURN(const std::string bpe, PathFlag("bpe", absl::GetFlag(FLAGS_bpe)));
  LS_ASSIGN_OR_RETURN(const std::string input, PathFlag("input", absl::GetFlag(FLAGS_input)));
  LS_ASSIGN_OR_RETURN(const std::string output, PathFlag("output", absl::GetFlag(FLAGS_output)));
  const double share = absl::GetFlag(FLAGS_validation);
  if (!(share >= 0 && share < 1)) {
    return InvalidArgument("--validation is ", share,
                           ", but a share is at least 0 and less than 1");
  }
  LS_RETURN_IF_ERROR(
      CheckOutputs({OutputThatBeginsWith(output, "a file of tokens", kTokenFileBeginning)},
                   {input, bpe + "/encoder.json", bpe + "/vocab.bpe"}));
  LS_ASSIGN_OR_RETURN(const BytePairs pairs, BytePairs::Load(bpe));
  LS_ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(input));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()),
                              file.bytes().size());
  if (text.empty()) return InvalidArgument("\"", input, "\" is empty");
  const size_t boundary = TrainingBytes(text, share);
  const bool is_terminal = isatty(STDERR_FILENO) == 1;
  const int64_t start_nanos = NowNanos();
  const auto show_progress = [&](size_t bytes) {
    if (!is_terminal) return;
    const double done = static_cast<double>(bytes), total = static_cast<double>(text.size());
    absl::FPrintF(stderr, "\r%3.0f %% of %.1f MB, %.1f MB/s ", std::floor(100 * done / total),
                  total * 1e-6, done * 1e-6 / std::max(SecondsSince(start_nanos), 1e-9));
  };
  const std::vector<int32_t> train = Tokenize(pairs, text.substr(0, boundary), show_progress);
  const std::vector<int32_t> validation = Tokenize(
      pairs, text.substr(boundary), [&](size_t bytes) { show_progress(boundary + bytes); });
  if (is_terminal) std::fputs("\n", stderr);
  LS_RETURN_IF_ERROR(WriteTokenFile(output, pairs.vocabulary(), train, validation));
  const size_t tokens = train.size() + validation.size();
  absl::PrintF("%s: %d training and %d validation tokens, %.2f bytes of text each\n", output,
               train.size(), validation.size(),
               static_cast<double>(text.size()) / static_cast<double>(tokens));
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Makes a file of token ids from text: --bpe DIR --input TEXT --output FILE",
       .files = {__FILE__, lockstep::kOverwriteFlagFile}},
      [](const auto&) { return lockstep::RunMain(); });
}
