#pragma once

#include <cstdint>
#include <vector>

namespace lockstep {

// How many blocks each of `stages` stages gets, in order, so that the costliest stage costs as
// little as it can: the best of all divisions, found in O(stages x blocks^2). Requires 1 <= stages
// <= blocks, and costs that are not negative.
std::vector<int64_t> EvenBalance(const std::vector<int64_t>& costs, int stages);

// The same where rank `rank_of_stage[s]` has stage s. If stages lie in the shape of a V
// (schedules/named_schedules.h), the costliest rank costs as little as it can, and among such
// divisions the costliest stage; found in O(ranks x blocks^4). For any other placement it is the
// division above, which knows of stages only.
std::vector<int64_t> EvenBalance(const std::vector<int64_t>& costs,
                                 const std::vector<int>& rank_of_stage);

}  // namespace lockstep
