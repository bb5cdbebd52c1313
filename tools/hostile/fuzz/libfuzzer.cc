// The entry of libFuzzer's programs: one target, LOCKSTEP_FUZZ_TARGET, on each input.

#include <sanitizer/allocator_interface.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "core/base/program.h"
#include "glog/logging.h"
#include "tools/hostile/fuzz/fuzz_targets.h"
#include "tools/hostile/judgement.h"

namespace lockstep {
namespace {

// Memory that an input may take at one time: a share for each of its bytes, as a table of TOML or
// JSON takes some hundred bytes for a key of a few; and a share for any input, such as CIFAR's
// tables.
constexpr int64_t kBytesForEach = 500, kBytesForAny = 1 << 20;

// Bytes that the program has allocated. The hooks of the allocator know no object of ours, so there
// is one of these.
struct Allocated {
  std::atomic<int64_t> now{0};
  std::atomic<int64_t> peak{0};
};
constinit Allocated allocated;

void OnAllocation(const volatile void* /*at*/, size_t bytes) {
  const int64_t now = allocated.now += static_cast<int64_t>(bytes);
  if (now > allocated.peak) allocated.peak = now;
}

void OnRelease(const volatile void* at) {
  if (at == nullptr) return;
  allocated.now -=
      static_cast<int64_t>(__sanitizer_get_allocated_size(const_cast<const void*>(at)));
}

}  // namespace
}  // namespace lockstep

extern "C" int LLVMFuzzerInitialize(int* /*argc*/, char*** /*argv*/) {
  CHECK_NE(__sanitizer_install_malloc_and_free_hooks(lockstep::OnAllocation, lockstep::OnRelease),
           0);
  return 0;
}

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace lockstep;
  const int64_t before = allocated.now;
  allocated.peak = before;
  {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const absl::Status status = Catching([&] { return LOCKSTEP_FUZZ_TARGET(input); });
    const std::string problem = ProblemOfError(status, MessageLimitFor(input));
    CHECK(problem.empty()) << problem;
  }
  const int64_t taken = allocated.peak - before;
  CHECK_LE(taken, kBytesForAny + kBytesForEach * static_cast<int64_t>(size))
      << "bytes of memory for an input of " << size;
  return 0;
}
