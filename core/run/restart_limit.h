#pragma once

#include <cstdint>
#include <optional>

namespace lockstep {

// Bounds restarts of a run's ranks one after another without a new checkpoint in between.
class RestartLimit {
 public:
  // `steps`: behind the newest checkpoint at the start; nullopt: there is none.
  RestartLimit(int64_t most, std::optional<int64_t> steps) : most_(most), best_(steps) {}

  // The ranks have ended, and the newest checkpoint is that of `steps`. Whether it is time to give
  // up.
  bool IsPassed(std::optional<int64_t> steps);
  int64_t in_vain() const { return in_vain_; }  // ends without a new checkpoint, so far

 private:
  const int64_t most_;
  std::optional<int64_t> best_;
  int64_t in_vain_ = 0;
};

}  // namespace lockstep
