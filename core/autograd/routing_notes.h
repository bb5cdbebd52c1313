#pragma once

#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

namespace lockstep {

// The numbers that say how many rows go to which experts, and from which ranks, in the passes of a
// step: what the memory of mixtures of experts depends on beside shapes. They are noted as passes
// meet them. Where nothing is computed, and so nothing is chosen, what was noted of another run of
// the same step can be given in their place.
class RoutingNotes {
 public:
  using Numbers = std::vector<int64_t>;
  using Step = std::vector<Numbers>;

  // Begins a step that is noted.
  void Note() {
    step_.clear();
    is_given_ = false;
  }
  // Begins a step that meets what was noted of another one. What that one did not meet stays as it
  // is.
  void Give(Step noted) {
    step_ = std::move(noted);
    is_given_ = true;
    next_ = 0;
  }

  // Notes the numbers, or replaces them by what is given. Called by each rank of a run in the same
  // order in each run of a step.
  void Meet(Numbers& numbers) {
    if (!is_given_) {
      step_.push_back(numbers);
    } else if (next_ < step_.size() && step_[next_].size() == numbers.size()) {
      numbers = step_[next_++];
    }
  }

  const Step& step() const { return step_; }

 private:
  Step step_;
  bool is_given_ = false;
  size_t next_ = 0;
};

}  // namespace lockstep
