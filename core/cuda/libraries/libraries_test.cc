// With NVIDIA's libraries, which need no GPU for this.

#include "core/cuda/libraries/libraries.h"

#include <cublasLt.h>
#include <cudnn.h>
#include <dlfcn.h>
#include <nccl.h>

#include "gtest/gtest.h"

namespace lockstep::cuda {
namespace {

bool IsOpen(const char* soname) { return dlopen(soname, RTLD_LAZY | RTLD_NOLOAD) != nullptr; }

// Runs first, by its name: what a program is linked with, its loader has opened before main.
TEST(LibrariesDeathTest, NoneIsOpenedBeforeItIsNeeded) {
  for (const char* soname : {"libcublasLt.so.13", "libcudnn.so.9", "libnccl.so.2"}) {
    EXPECT_FALSE(IsOpen(soname)) << soname;
  }
  EXPECT_DEATH(cudnnGetVersion(), "before its library was loaded");
}

// All functions that the backend calls are there, and calls arrive.
TEST(LibrariesTest, CallsReachTheLibraries) {
  ASSERT_TRUE(LoadCublasLt().ok()) << LoadCublasLt();
  ASSERT_TRUE(LoadCudnn().ok()) << LoadCudnn();
  ASSERT_TRUE(LoadNccl().ok()) << LoadNccl();
  EXPECT_TRUE(IsOpen("libcudnn.so.9"));
  EXPECT_EQ(cublasLtGetVersion() / 10000, CUBLAS_VER_MAJOR);
  EXPECT_EQ(cudnnGetVersion() / 10000, CUDNN_MAJOR);
  int nccl = 0;
  EXPECT_EQ(ncclGetVersion(&nccl), ncclSuccess);
  EXPECT_EQ(nccl / 10000, NCCL_MAJOR);
  EXPECT_STREQ(cudnnGetErrorString(CUDNN_STATUS_SUCCESS), "CUDNN_STATUS_SUCCESS");
}

}  // namespace
}  // namespace lockstep::cuda
