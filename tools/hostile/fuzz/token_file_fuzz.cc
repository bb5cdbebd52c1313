#include <cstdint>
#include <string_view>
#include <vector>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/data/token_file.h"
#include "glog/logging.h"
#include "tools/hostile/fuzz/fuzz_targets.h"
#include "tools/hostile/fuzz/memory_file.h"

namespace lockstep {

absl::Status FuzzTokenFile(std::string_view input) {
  const MemoryFile bytes(input);
  LS_ASSIGN_OR_RETURN(const TokenFile file, TokenFile::Open(bytes.path()));
  CHECK_GE(file.train_tokens(), 0);
  CHECK_LE(file.train_tokens(), file.tokens());
  std::vector<int32_t> tokens(static_cast<size_t>(file.tokens()));
  const absl::Status copied = file.Copy(0, absl::MakeSpan(tokens));
  CHECK(copied.ok()) << copied << ", though the file was checked when it was opened";
  for (const int32_t token : tokens) {
    CHECK_GE(token, 0);
    CHECK_LT(token, file.vocabulary());
  }
  return absl::OkStatus();
}

}  // namespace lockstep
