#include "core/comm/rank_handle.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/program.h"

namespace lockstep {

absl::Status RunCatching(const RankFunction& run, RankHandle& handle) {
  return Catching([&] { return run(handle); });
}

void WritePostMortem(const LaunchOptions& options, const Ledger& ledger,
                     const absl::Status& failure) try {
  const std::string folder = options.post_mortem ? options.post_mortem() : "";
  if (folder.empty()) return;
  const std::string path = absl::StrCat(folder, "/rank", ledger.rank());
  // What cannot be written is let be, on a full disk say: the failure itself is told, and is worth
  // more than a second message beside it.
  if (!MakeDirectories(folder).ok()) return;
  WriteFileAtomically(path + ".txt", absl::StrCat(failure.message(), "\n\n", ledger.ToText()))
      .IgnoreError();
  // nlohmann's values want memory to be destroyed, and end the program where there is none.
  if (!absl::IsResourceExhausted(failure)) {
    WriteFileAtomically(path + ".json", ledger.ToJson()).IgnoreError();
  }
} catch (const std::exception&) {
  // Memory has run out: the failure itself, which will be told, is worth more.
}

}  // namespace lockstep
