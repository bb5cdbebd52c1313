// Writes the section of docs/configuration.md that lists all keys.

#include <string>

#include "absl/flags/flag.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_format.h"
#include "core/base/file.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/run/config_listing.h"
#include "models/models.h"
#include "strategies/mesh/mesh.h"
#include "tools/keys/keys_section.h"

ABSL_FLAG(std::string, page, "docs/configuration.md", "the page whose section is replaced");

namespace lockstep {
namespace {

absl::StatusOr<int> RunMain() {
  const std::string path = UserPath(absl::GetFlag(FLAGS_page));
  LS_ASSIGN_OR_RETURN(const std::string page, ReadFile(path));
  LS_ASSIGN_OR_RETURN(const std::string written,
                      WithKeysSection(page, KeysSection(ListKeys(MeshStrategy(), MakeModel))));
  if (written == page) {
    absl::PrintF("%s is as it should be\n", path);
    return 0;
  }
  LS_RETURN_IF_ERROR(WriteFileAtomically(path, written));
  absl::PrintF("%s: its section of all keys is written\n", path);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Writes the list of all keys into docs/configuration.md", .files = {__FILE__}},
      [](const auto&) { return lockstep::RunMain(); });
}
