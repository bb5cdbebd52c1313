// What the backend calls of cuDNN. A function that is missing here shows when programs are linked.

#include <cudnn.h>

#include "core/cuda/libraries/forwarded.h"
#include "core/cuda/libraries/libraries.h"

#define LS_CUDNN_FUNCTIONS(F)                                 \
  F(cudnnBackendCreateDescriptor)                             \
  F(cudnnBackendDestroyDescriptor)                            \
  F(cudnnBackendExecute)                                      \
  F(cudnnBackendFinalize)                                     \
  F(cudnnBackendGetAttribute)                                 \
  F(cudnnBackendSetAttribute)                                 \
  F(cudnnBatchNormalizationBackwardEx)                        \
  F(cudnnBatchNormalizationForwardInference)                  \
  F(cudnnBatchNormalizationForwardTrainingEx)                 \
  F(cudnnConvolutionBackwardData)                             \
  F(cudnnConvolutionBackwardFilter)                           \
  F(cudnnConvolutionBiasActivationForward)                    \
  F(cudnnConvolutionForward)                                  \
  F(cudnnCreate)                                              \
  F(cudnnCreateActivationDescriptor)                          \
  F(cudnnCreateConvolutionDescriptor)                         \
  F(cudnnCreateFilterDescriptor)                              \
  F(cudnnCreateTensorDescriptor)                              \
  F(cudnnDeriveBNTensorDescriptor)                            \
  F(cudnnDestroy)                                             \
  F(cudnnDestroyActivationDescriptor)                         \
  F(cudnnDestroyConvolutionDescriptor)                        \
  F(cudnnDestroyFilterDescriptor)                             \
  F(cudnnDestroyTensorDescriptor)                             \
  F(cudnnGetBatchNormalizationBackwardExWorkspaceSize)        \
  F(cudnnGetBatchNormalizationForwardTrainingExWorkspaceSize) \
  F(cudnnGetBatchNormalizationTrainingExReserveSpaceSize)     \
  F(cudnnGetConvolutionBackwardDataAlgorithm_v7)              \
  F(cudnnGetConvolutionBackwardDataWorkspaceSize)             \
  F(cudnnGetConvolutionBackwardFilterAlgorithm_v7)            \
  F(cudnnGetConvolutionBackwardFilterWorkspaceSize)           \
  F(cudnnGetConvolutionForwardAlgorithm_v7)                   \
  F(cudnnGetConvolutionForwardWorkspaceSize)                  \
  F(cudnnGetErrorString)                                      \
  F(cudnnGetLastErrorString)                                  \
  F(cudnnGetStream)                                           \
  F(cudnnGetVersion)                                          \
  F(cudnnSetActivationDescriptor)                             \
  F(cudnnSetConvolution2dDescriptor)                          \
  F(cudnnSetConvolutionMathType)                              \
  F(cudnnSetFilter4dDescriptor)                               \
  F(cudnnSetStream)                                           \
  F(cudnnSetTensor4dDescriptor)

LS_CUDNN_FUNCTIONS(LS_FORWARD)

namespace lockstep::cuda {

absl::Status LoadCudnn() {
  static_assert(CUDNN_MAJOR == 9, "the library's name below has the version of its header");
  static const absl::Status& status = *new absl::Status(
      OpenLibrary("libcudnn.so.9", "cuDNN 9", {LS_CUDNN_FUNCTIONS(LS_FORWARDED)}));
  return status;
}

}  // namespace lockstep::cuda
