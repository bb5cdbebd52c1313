#include "core/cuda/libraries/shared_library.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using testing::AllOf;
using testing::HasSubstr;

TEST(SharedLibraryTest, FunctionsAreFound) {
  void *cosine = nullptr, *root = nullptr;
  const absl::Status status =
      OpenLibrary("libm.so.6", "glibc", {{"cos", &cosine}, {"sqrt", &root}});
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(reinterpret_cast<double (*)(double)>(cosine)(0), 1);
  EXPECT_EQ(reinterpret_cast<double (*)(double)>(root)(9), 3);
}

TEST(SharedLibraryTest, ALibraryThatIsMissingIsNamedWithWhatToDo) {
  void* address = nullptr;
  const absl::Status status = OpenLibrary("libnowhere.so.7", "Nowhere 7", {{"go", &address}});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("libnowhere.so.7"), HasSubstr("install Nowhere 7"),
                    HasSubstr("--device cpu")));
}

// Another version of the library: nothing of it is used.
TEST(SharedLibraryTest, AFunctionThatIsMissingIsNamed) {
  void *cosine = nullptr, *nothing = nullptr;
  const absl::Status status =
      OpenLibrary("libm.so.6", "glibc 9", {{"cos", &cosine}, {"cosine_of_nothing", &nothing}});
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("cosine_of_nothing"), HasSubstr("glibc 9")));
  EXPECT_EQ(cosine, nullptr);
}

}  // namespace
}  // namespace lockstep
