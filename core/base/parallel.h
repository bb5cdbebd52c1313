// Loops over the threads of one rank.
//
// Each rank, being a thread, has a team of its own (thread_team.h), which starts with the rank's
// first loop and ends with the rank's thread. SetThreads is called once at the start of a rank's
// thread.

#pragma once

#include <cstdint>

namespace lockstep {

// Threads that a parallel loop of the calling thread uses at most; until SetThreads is called, the
// cores that the process may use.
int MaxThreads();

// Sets MaxThreads for the calling thread, and for it alone. Requires threads >= 1.
void SetThreads(int threads);

// While one lives, parallel loops of the calling thread return at once, without a call of their
// bodies: what allocates memory and then computes does only the former. core/run/rehearsal.h
// finds out so what a step will need.
class LoopsSkipped {
 public:
  LoopsSkipped();
  ~LoopsSkipped();
  LoopsSkipped(const LoopsSkipped&) = delete;
  LoopsSkipped& operator=(const LoopsSkipped&) = delete;
};

// Whether one lives in the calling thread: for work that is no loop of these.
bool SkipsLoops();

// How many chunks ParallelFor(n, grain, ...) makes when called here: at most MaxThreads(), none
// shorter than `grain` where there is more than one; 1 inside another parallel loop. Requires
// grain >= 1.
int ParallelChunks(int64_t n, int64_t grain);

// Start of chunk `chunk` of [0, n) cut into `chunks` as loops cut it; chunk == chunks gives n. In
// long ranges boundaries are multiples of 16: where elements are floats, each chunk starts on a
// cache line.
inline int64_t ChunkBegin(int64_t n, int chunks, int chunk) {
  constexpr int64_t kLine = 16;
  constexpr int64_t kLong = 1024;  // from this length on, rounding moves work by at most 1.6 %
  if (chunk == chunks) return n;
  const int64_t begin = n / chunks * chunk + n % chunks * chunk / chunks;
  return n / chunks >= kLong ? begin / kLine * kLine : begin;
}

namespace parallel_internal {

// Calls run(context, chunk) for each chunk, each on one thread, and returns when all have returned.
void RunChunks(int chunks, void (*run)(void* context, int chunk), void* context);

}  // namespace parallel_internal

// Calls fn(chunk, begin, end) for each of the ParallelChunks(n, grain) contiguous chunks of [0, n),
// in parallel, and returns when all are done. Which elements make a chunk depends on (n, grain,
// MaxThreads()): a sum whose order must not depend on threads keeps one partial result for each
// node of a tree (sum_tree.h), not for each chunk. With n <= 0, or while SkipsLoops(), nothing is
// called. One chunk runs inline, at the cost of a call; more cost about a microsecond beside it.
//
// Calls of `fn` must not wait for each other: while other programs keep the machine busy, the
// calling thread may make all of them, one by one. What a call throws is thrown to the caller.
template <typename Function>
void ParallelForChunks(int64_t n, int64_t grain, Function&& fn) {
  if (n <= 0 || SkipsLoops()) return;
  const int chunks = ParallelChunks(n, grain);
  if (chunks == 1) {
    fn(0, int64_t{0}, n);
    return;
  }
  struct Context {
    Function& fn;
    int64_t n;
    int chunks;
  } context{fn, n, chunks};
  parallel_internal::RunChunks(
      chunks,
      [](void* opaque, int chunk) {
        const Context& c = *static_cast<Context*>(opaque);
        c.fn(chunk, ChunkBegin(c.n, c.chunks, chunk), ChunkBegin(c.n, c.chunks, chunk + 1));
      },
      &context);
}

// The same with fn(begin, end), for loops whose chunks need no number.
//
//   ParallelFor(n, 4096, [&](int64_t begin, int64_t end) {
//     for (int64_t i = begin; i < end; ++i) y[i] = a * x[i];
//   });
template <typename Function>
void ParallelFor(int64_t n, int64_t grain, Function&& fn) {
  ParallelForChunks(n, grain, [&fn](int, int64_t begin, int64_t end) { fn(begin, end); });
}

}  // namespace lockstep
