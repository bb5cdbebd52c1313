#pragma once

#include <cstddef>
#include <mutex>
#include <string>
#include <vector>

#include "glog/logging.h"

namespace lockstep {

// Keeps the lines that any thread logs while the object lives. The log goes on as before.
class CapturedLog final : public google::LogSink {
 public:
  CapturedLog() { google::AddLogSink(this); }
  ~CapturedLog() override { google::RemoveLogSink(this); }
  CapturedLog(const CapturedLog&) = delete;
  CapturedLog& operator=(const CapturedLog&) = delete;

  // The lines logged so far, oldest first, without prefix.
  std::vector<std::string> lines() const {
    std::lock_guard lock(mutex_);
    return lines_;
  }

 private:
  void send(google::LogSeverity /*severity*/, const char* /*full_filename*/,
            const char* /*base_filename*/, int /*line*/, const google::LogMessageTime& /*time*/,
            const char* message, size_t length) override {
    std::lock_guard lock(mutex_);
    lines_.emplace_back(message, length);
  }

  mutable std::mutex mutex_;
  std::vector<std::string> lines_;
};

}  // namespace lockstep
