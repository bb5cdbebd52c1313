#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <string>
#include <vector>

#include "core/nn/model.h"

namespace lockstep {

inline constexpr int64_t kProbeWidth = 8;

// What a block of a test does beside its product, on whatever rank's thread it runs.
struct ProbeActions {
  std::function<void(Pass&)> forward = nullptr;                 // before the product
  std::function<void(int64_t micro_batch)> backward = nullptr;  // before the product's gradients
  // That forward leaves there for backward; many, and all else that a pass keeps is little beside.
  int64_t kept_bytes = 0;
};

// Blocks "b0", "b1", ... of one probe each: y = x w' + b, of kProbeWidth features. A pipeline that
// ends with one has kProbeWidth classes.
Model MakeProbes(const std::vector<ProbeActions>& probes);

// What happened, in order; for all ranks' threads.
class Events {
 public:
  void Add(std::string event);
  std::vector<std::string> all() const;
  int64_t Count(const std::string& event) const;

 private:
  mutable std::mutex mutex_;
  std::vector<std::string> events_;
};

// Actions that add "F<block>", "F<block>'" where it is done again, and "B<block>", each with its
// micro-batch: "F0' 2".
ProbeActions Recorded(const std::string& block, Events& events);

}  // namespace lockstep
