#pragma once

#include <cstdlib>
#include <optional>
#include <string>
#include <utility>

namespace lockstep {

// Sets a variable of the environment; what it was before comes back when the object goes. For tests
// with one thread: other threads must not read the environment meanwhile.
class ScopedEnvironment {
 public:
  ScopedEnvironment(std::string name, const std::string& value) : name_(std::move(name)) {
    if (const char* const before = std::getenv(name_.c_str())) before_ = before;
    setenv(name_.c_str(), value.c_str(), 1);
  }
  ~ScopedEnvironment() {
    if (before_.has_value()) {
      setenv(name_.c_str(), before_->c_str(), 1);
    } else {
      unsetenv(name_.c_str());
    }
  }
  ScopedEnvironment(const ScopedEnvironment&) = delete;
  ScopedEnvironment& operator=(const ScopedEnvironment&) = delete;

 private:
  const std::string name_;
  std::optional<std::string> before_;
};

}  // namespace lockstep
