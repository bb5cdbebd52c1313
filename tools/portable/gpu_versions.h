#pragma once

namespace lockstep {

// Prints the versions of NVIDIA's driver and libraries that this program meets when it runs, which
// benchmarks are recorded with. Returns the exit code: 1 where there is no driver.
int PrintGpuVersions();

}  // namespace lockstep
