#include "core/run/stop/exit_codes.h"

namespace lockstep {

int ExitCodeOfFailure(const absl::Status& error) {
  switch (error.code()) {
    case absl::StatusCode::kAborted:
    case absl::StatusCode::kCancelled:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kUnknown:
      return kRankLostExitCode;
    default:
      return 1;
  }
}

}  // namespace lockstep
