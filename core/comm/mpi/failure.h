#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/types/span.h"

namespace lockstep::mpi {

// Why a world has failed.
struct Failure {
  enum class Kind {
    kCall,      // the members of a group could not complete a call
    kDropped,   // a rank went away amid a call, and may say later why
    kReported,  // a rank has failed, and says why
    kStopped,   // the launcher has told a rank to stop; perhaps another has died
  };
  Kind kind = Kind::kCall;
  int rank = -1;  // that failed; -1: nobody in particular
  absl::Status cause{};
  int noticed_by = -1;  // the rank that found it, which tells the user

  // The cause as other ranks read it: "rank 2 failed: the file is cut short".
  absl::Status ForAll() const;
  // Whether this says more about `first`, the failure that stands, than it says itself.
  bool Explains(const Failure& first) const;
  // Whether this failure, which another rank has told, takes the place of `own`, which stood here
  // when word of it came: two ranks have failed at about the same time. All ranks choose the same
  // of the two: the one that says more about the cause, or the lower rank's.
  bool GoesBefore(const Failure& own) const;
};

// What a rank tells all others of itself, with what it called last.
struct Note {
  enum class Kind {
    kFailure,  // it knows of a failure
    kSettled,  // and no longer receives anything
    kLeft,     // what it had to do is over, for good
    kSaid,     // it has said what there was to say of a failure, and ends
    kAlive,    // it is still at work, for ranks that have left
  };
  Kind kind = Kind::kLeft;
  std::optional<Failure> failure{};  // of kFailure
  std::string last_call{};
  bool succeeded = false;  // of kLeft: what it had to do
};

std::vector<std::byte> Encode(const Note& note);
// An error if these are not the bytes of one.
absl::StatusOr<Note> DecodeNote(absl::Span<const std::byte> bytes);

}  // namespace lockstep::mpi
