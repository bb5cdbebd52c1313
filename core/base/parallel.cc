#include "core/base/parallel.h"

#include <glog/logging.h>
#include <omp.h>

#include <algorithm>  // std::clamp
#include <cstdint>
#include <exception>

#ifdef __SANITIZE_THREAD__
#include <sanitizer/tsan_interface.h>
#endif

namespace lockstep {
namespace {

// libgomp's fork and join are system calls and atomics in a library without instrumentation, which
// ThreadSanitizer does not see. These two state the edges that the OpenMP standard promises.
void HappensBefore([[maybe_unused]] char& edge) {
#ifdef __SANITIZE_THREAD__
  __tsan_release(&edge);
#endif
}

void HappensAfter([[maybe_unused]] char& edge) {
#ifdef __SANITIZE_THREAD__
  __tsan_acquire(&edge);
#endif
}

// Each thread has its own, as it has its own number of OpenMP threads.
thread_local int skips = 0;

}  // namespace

int MaxThreads() { return omp_get_max_threads(); }

void SetThreads(int threads) {
  CHECK_GE(threads, 1);
  omp_set_num_threads(threads);
}

LoopsSkipped::LoopsSkipped() { ++skips; }
LoopsSkipped::~LoopsSkipped() { --skips; }

bool SkipsLoops() { return skips > 0; }

int ParallelChunks(int64_t n, int64_t grain) {
  DCHECK_GE(grain, 1);
  if (n < 2 * grain || omp_in_parallel()) return 1;
  return static_cast<int>(std::clamp<int64_t>(n / grain, 1, MaxThreads()));
}

namespace parallel_internal {

// Not instrumented itself: the threads read the arguments, which the compiler hands over on the
// caller's stack, before they could state that they come after it.
[[gnu::no_sanitize_thread]] void RunChunks(int chunks, void (*run)(void* context, int chunk),
                                           void* context) {
  char fork = 0;
  char join = 0;
  // What leaves a parallel region ends the program: it is taken out by hand.
  std::exception_ptr thrown;
  HappensBefore(fork);
#pragma omp parallel num_threads(chunks)
  {
    HappensAfter(fork);
    // OpenMP may grant fewer threads than asked for (OMP_THREAD_LIMIT): the chunks are made anyway.
    for (int chunk = omp_get_thread_num(); chunk < chunks; chunk += omp_get_num_threads()) {
      try {
        run(context, chunk);
      } catch (...) {
#pragma omp critical(lockstep_thrown)
        if (thrown == nullptr) thrown = std::current_exception();
      }
    }
    HappensBefore(join);
  }
  HappensAfter(join);
  if (thrown != nullptr) std::rethrow_exception(thrown);
}

}  // namespace parallel_internal
}  // namespace lockstep
