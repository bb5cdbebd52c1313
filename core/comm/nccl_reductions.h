#pragma once

namespace lockstep {

// Who adds up where ranks have a GPU each: NCCL, in an order of its own; or each member its chunk,
// along the tree over ranks (core/comm/device/exact_reduction.h), which takes memory for what the
// others send.
enum class NcclReductions { kFast, kExact };

}  // namespace lockstep
