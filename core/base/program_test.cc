#include "core/base/program.h"

#include <sys/resource.h>  // setrlimit

#include <cstdio>
#include <cstdlib>
#include <new>
#include <stdexcept>
#include <string>
#include <system_error>

#include "absl/status/status.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ExitedWithCode;

// Ends the process with the exit code of a program that does this.
template <typename Run>
[[noreturn]] void End(Run run) {
  std::exit(ExitCodeOf([&]() -> absl::StatusOr<int> { return run(); }));
}

TEST(CatchingTest, IsTheStatusOfTheBodyOrOfWhatItThrows) {
  EXPECT_EQ(Catching([] { return absl::OkStatus(); }), absl::OkStatus());
  EXPECT_EQ(Catching([] { return absl::NotFoundError("no such thing"); }),
            absl::NotFoundError("no such thing"));
  EXPECT_EQ(Catching([]() -> absl::Status { throw StatusException(absl::AbortedError("over")); }),
            absl::AbortedError("over"));
  EXPECT_TRUE(
      absl::IsResourceExhausted(Catching([]() -> absl::Status { throw std::bad_alloc(); })));
}

TEST(ExitCodeOfTest, IsTheProgramsOwn) {
  EXPECT_EXIT(End([] { return 3; }), ExitedWithCode(3), "^$");
  EXPECT_EXIT(End([] { return absl::NotFoundError("no such thing"); }), ExitedWithCode(1),
              "^no such thing\n$");
}

TEST(ExitCodeOfTest, WhatIsThrownIsOneMessage) {
  EXPECT_EXIT(End([]() -> int { throw StatusException(absl::NotFoundError("no such thing")); }),
              ExitedWithCode(1), "^no such thing\n$");
  EXPECT_EXIT(End([]() -> int { throw std::bad_alloc(); }), ExitedWithCode(1),
              "^out of memory: .*; it has [0-9.]+ [KMG]iB of memory. Lower batch.size.*\n$");
  EXPECT_EXIT(
      End([]() -> int {
        throw std::system_error(std::make_error_code(std::errc::resource_unavailable_try_again));
      }),
      ExitedWithCode(1), "^out of memory: .* memory or threads");
  EXPECT_EXIT(End([]() -> int { throw std::runtime_error("odd"); }), ExitedWithCode(1),
              "^uncaught exception: odd\n$");
}

TEST(ExitCodeOfTest, OutputThatCannotBeWrittenIsAnError) {
  const auto print_to_a_full_disk = [] {
    return std::freopen("/dev/full", "w", stdout) != nullptr && std::puts("text") >= 0 ? 0 : 7;
  };
  EXPECT_EXIT(End(print_to_a_full_disk), ExitedWithCode(1),
              "^cannot write to the standard output: No space left on device\n$");
}

// Without a word, the process would be killed by SIGXFSZ.
TEST(ExitCodeOfTest, ALimitOnTheSizeOfFilesIsAnError) {
  const std::string path = testing::TempDir() + "/program_test";
  const auto write_beyond = [&path]() -> absl::StatusOr<int> {
    const rlimit limit = {100'000, 100'000};
    setrlimit(RLIMIT_FSIZE, &limit);
    LS_RETURN_IF_ERROR(WriteFileAtomically(path, std::string(1'000'000, 'x')));
    return 0;
  };
  EXPECT_EXIT(End(write_beyond), ExitedWithCode(1), "cannot write .*: File too large\n$");
}

}  // namespace
}  // namespace lockstep
