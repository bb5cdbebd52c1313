// Time, and quantities as people read them.

#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

// Nanoseconds of a clock that never goes back. Its zero has no meaning: only differences do. All
// threads of a process, and on Linux all processes of a machine, share it. About 20 ns a call.
int64_t NowNanos();

// Seconds from `begin_nanos`, a value of NowNanos, to now.
double SecondsSince(int64_t begin_nanos);

// A duration with two or three significant digits: "850 ns", "12.5 us", "3.2 ms", "3.2 s", "45 s",
// "2m05s", "1h02m", "3d04h". Units change where rounding says so: 59.96 s reads "1m00s". Negative
// durations carry a minus sign; what is not a finite number reads "?".
std::string FormatDuration(double seconds);

// A byte count in binary units: "512 B", "1.5 GiB", "23.0 MiB".
std::string FormatBytes(int64_t bytes);

// A count in thousands, millions and so on: "999", "12.3K", "11.7M", "124.4M", "1.5B".
std::string FormatCount(int64_t count);

}  // namespace lockstep
