#pragma once

#include <cstdint>
#include <mutex>
#include <optional>

namespace lockstep {

// The wish that a run should stop before its last step. All ranks of the process stop after the
// same step, the latest that any of them had begun. Thread-safe.
class StopRequest {
 public:
  // Asked by each rank before each of its steps, which count from 0: whether to begin it.
  bool MayBegin(int64_t step);

  // Forgets which steps were begun, before the ranks that are left go on from an earlier one.
  // Whether they may: false once a stop was asked for.
  bool BeginAnew();

  // Has the ranks stop. Returns how many steps will then be behind them; nullopt if no rank has
  // begun any, so that nothing would be lost with the process.
  std::optional<int64_t> Stop();

  // How many steps are behind the ranks where they have been stopped.
  std::optional<int64_t> stopped_after() const;

 private:
  mutable std::mutex mutex_;
  int64_t begun_ = 0;  // steps up to the latest that was begun, itself included
  std::optional<int64_t> last_;
};

}  // namespace lockstep
