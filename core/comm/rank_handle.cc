#include "core/comm/rank_handle.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/program.h"
#include "glog/logging.h"

namespace lockstep {

absl::Status RunCatching(const RankFunction& run, RankHandle& handle) {
  try {
    return run(handle);
  } catch (const std::exception&) {
    return StatusOfException();
  }
}

void WritePostMortem(const LaunchOptions& options, const Ledger& ledger,
                     const absl::Status& failure) try {
  const std::string folder = options.post_mortem ? options.post_mortem() : "";
  if (folder.empty()) return;
  const std::string path = absl::StrCat(folder, "/rank", ledger.rank());
  absl::Status written = MakeDirectories(folder);
  written.Update(
      WriteFileAtomically(path + ".txt", absl::StrCat(failure.message(), "\n\n", ledger.ToText())));
  // nlohmann's values want memory to be destroyed, and end the program where there is none.
  if (!absl::IsResourceExhausted(failure)) {
    written.Update(WriteFileAtomically(path + ".json", ledger.ToJson()));
  }
  if (!written.ok()) LOG(ERROR) << "no post-mortem of rank " << ledger.rank() << ": " << written;
} catch (const std::exception&) {
  // Memory has run out: the failure itself, which will be told, is worth more.
}

}  // namespace lockstep
