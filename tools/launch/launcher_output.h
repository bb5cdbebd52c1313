#pragma once

#include <string>
#include <string_view>

namespace lockstep {

// Splits what a launcher and its ranks write to the standard error stream: what ranks say, and what
// the launcher says itself. Open MPI puts its own messages between lines of dashes; after an error
// of a rank they say that a rank has ended with an error, which its own message says better.
class LauncherOutput {
 public:
  // Takes the next bytes. Returns what is to be shown at once: all but the launcher's own messages.
  // The end of a line that has not come yet is not waited for.
  std::string Take(std::string_view bytes);
  // The end: returns the launcher's own messages, with what is left of an incomplete one.
  std::string TakeOwn();

 private:
  void TakeLine(std::string_view line, std::string& shown);

  std::string line_;           // begun, not shown: it may become a line of dashes
  bool is_amid_line_ = false;  // its beginning was shown
  bool is_amid_own_ = false;   // between two lines of dashes
  std::string own_;
};

}  // namespace lockstep
