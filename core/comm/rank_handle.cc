#include "core/comm/rank_handle.h"

#include <exception>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "glog/logging.h"

namespace lockstep {

absl::Status RunCatching(const RankFunction& run, RankHandle& handle) {
  try {
    return run(handle);
  } catch (const StatusException& exception) {
    return exception.status();
  } catch (const std::exception& exception) {
    return absl::InternalError(absl::StrCat("uncaught exception: ", exception.what()));
  }
}

void WritePostMortem(const std::string& folder, const Ledger& ledger, const absl::Status& failure) {
  const std::string path = absl::StrCat(folder, "/rank", ledger.rank());
  absl::Status written = MakeDirectories(folder);
  written.Update(
      WriteFileAtomically(path + ".txt", absl::StrCat(failure.message(), "\n\n", ledger.ToText())));
  written.Update(WriteFileAtomically(path + ".json", ledger.ToJson()));
  if (!written.ok()) LOG(ERROR) << "no post-mortem of rank " << ledger.rank() << ": " << written;
}

}  // namespace lockstep
