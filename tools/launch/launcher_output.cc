#include "tools/launch/launcher_output.h"

#include <utility>

namespace lockstep {
namespace {

constexpr size_t kDashes = 74;  // of Open MPI (opal_show_help)

bool IsDashes(std::string_view text) { return text.find_first_not_of('-') == text.npos; }

}  // namespace

void LauncherOutput::TakeLine(std::string_view line, std::string& shown) {
  const bool is_border = line.size() == kDashes + 1 && IsDashes(line.substr(0, kDashes));
  (is_border || is_amid_own_ ? own_ : shown).append(line);
  is_amid_own_ ^= is_border;
}

std::string LauncherOutput::Take(std::string_view bytes) {
  std::string shown;
  for (const char next : bytes) {
    if (is_amid_line_) {
      shown += next;
      is_amid_line_ = next != '\n';
      continue;
    }
    line_ += next;
    if (next == '\n') {
      TakeLine(std::exchange(line_, ""), shown);
    } else if (!is_amid_own_ && (line_.size() > kDashes || !IsDashes(line_))) {
      shown += std::exchange(line_, "");
      is_amid_line_ = true;
    }
  }
  return shown;
}

std::string LauncherOutput::TakeOwn() {
  own_ += std::exchange(line_, "");
  is_amid_own_ = false;
  return std::exchange(own_, "");
}

}  // namespace lockstep
