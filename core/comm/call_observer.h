#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "core/comm/group_info.h"
#include "core/comm/signature.h"

namespace lockstep {

// Receives the communicator calls of one rank, and when the rank waits for each. For rehearsals.
// Its members run on the rank's thread.
class CallObserver {
 public:
  virtual ~CallObserver() = default;
  // The rank begins a call. Returns a number by which OnWait names it.
  virtual int64_t OnCall(const std::shared_ptr<const GroupInfo>& group, const Signature& signature,
                         const std::string& label) = 0;
  // The rank waits for the call. Further waits for the same call are not reported.
  virtual void OnWait(int64_t call) = 0;
};

}  // namespace lockstep
