#pragma once

#include <cstdint>

#include "absl/status/status.h"

namespace lockstep {

struct LossScaleOptions {
  enum class Kind {
    kNone,     // the scale is 1, and no step is skipped
    kStatic,   // the initial scale throughout
    kDynamic,  // as high as gradients allow
  };

  Kind kind = Kind::kNone;
  double initial = 65536;   // at least 1
  double growth = 2;        // above 1
  double backoff = 0.5;     // in (0, 1)
  int64_t interval = 2000;  // steps without overflow after which the scale grows
};

// What the loss is multiplied by before backward, so that gradients too small for fp16 survive it
// (Micikevicius et al., "Mixed Precision Training", ICLR 2018). The dynamic scale backs off at each
// step whose gradients overflowed, and grows after `interval` steps in a row that did not; defaults
// are those of torch.amp.GradScaler. A step that overflowed is skipped with either kind of scale.
class LossScale {
 public:
  explicit LossScale(const LossScaleOptions& options)
      : options_(options),
        state_{.scale = options.kind == LossScaleOptions::Kind::kNone ? 1 : options.initial} {}

  bool enabled() const { return options_.kind != LossScaleOptions::Kind::kNone; }
  double scale() const { return state_.scale; }

  // After a step. `overflowed`: whether any gradient of any rank was infinite or NaN, so that the
  // step is skipped. FailedPrecondition once the scale is below 1: what overflows then overflows
  // without scaling too.
  absl::Status Update(bool overflowed);

  // Steps that were skipped so far.
  int64_t skipped() const { return state_.skipped; }

  // For checkpoints.
  struct State {
    double scale = 1;
    int64_t good_steps = 0;  // in a row, since the scale last changed
    int64_t skipped = 0;
  };
  const State& state() const { return state_; }
  void Restore(const State& state) { state_ = state; }

 private:
  LossScaleOptions options_;
  State state_;
};

}  // namespace lockstep
