#include <algorithm>
#include <fstream>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/status.h"
#include "core/text/byte_pairs.h"
#include "glog/logging.h"
#include "tools/experiment/paths.h"
#include "tools/hostile/fuzz/fuzz_targets.h"

namespace lockstep {
namespace {

// Cuts what stands before the first zero byte off `input`, with that byte; all where there is none.
std::string_view TakeUntilZero(std::string_view& input) {
  const std::string_view taken = input.substr(0, input.find('\0'));
  input.remove_prefix(std::min(input.size(), taken.size() + 1));
  return taken;
}

}  // namespace

absl::Status FuzzBytePairs(std::string_view input) {
  LS_ASSIGN_OR_RETURN(const TemporaryDirectory folder, TemporaryDirectory::Create());
  std::ofstream(folder.path() + "/encoder.json") << TakeUntilZero(input);
  std::ofstream(folder.path() + "/vocab.bpe") << TakeUntilZero(input);
  LS_ASSIGN_OR_RETURN(const BytePairs pairs, BytePairs::Load(folder.path()));
  // Any bytes come back, UTF-8 or not.
  const std::vector<int32_t> tokens = pairs.Encode(input);
  for (const int32_t token : tokens) {
    CHECK_GE(token, 0);
    CHECK_LT(token, pairs.vocabulary());
  }
  CHECK(pairs.Decode(tokens) == input);
  return absl::OkStatus();
}

}  // namespace lockstep
