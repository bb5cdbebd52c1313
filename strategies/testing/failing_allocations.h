#pragma once

#include <cstdint>

namespace lockstep {

// A program that is linked with failing_allocations.cc asks the system for memory through it: by
// operator new, in all its forms, and aligned_alloc. So any one allocation can be made to fail,
// whatever thread makes it.

// From here on, counts the allocations of all threads in `*count`, which may be memory that
// processes share, and fails the one that makes the count `at` (0: none). For a process that does
// nothing else, once.
void FailAllocation(int64_t at, int64_t* count);

}  // namespace lockstep
