#include "core/kernels/cuda/cuda_kernels.h"

#include "core/kernels/cuda/attention_plans.h"
#include "core/kernels/cuda/attention_sdpa.h"
#include "core/kernels/cuda/batch_norms.h"
#include "core/kernels/cuda/cudnn.h"
#include "core/kernels/cuda/cudnn_convolutions.h"
#include "core/kernels/cuda/matrix_products.h"
#include "core/kernels/cuda/weight_gradient_graph.h"
#include "glog/logging.h"

namespace lockstep {

CudaKernels::CudaKernels(CudaContext& context, Allocator& allocator, Fp32Products fp32_products,
                         ProductShapes product_shapes, AttentionKernels attention)
    : context_(context),
      allocator_(allocator),
      product_shapes_(product_shapes),
      staging_(context),
      page_locked_(context),
      products_(std::make_unique<cuda::MatrixProducts>(context, fp32_products, product_shapes)),
      cudnn_(std::make_unique<cuda::Cudnn>(context)),
      convolutions_(std::make_unique<cuda::CudnnConvolutions>(*cudnn_, fp32_products)),
      weight_gradients_(std::make_unique<cuda::WeightGradientGraphs>(*cudnn_)),
      batch_norms_(std::make_unique<cuda::BatchNorms>(*cudnn_)),
      attention_plans_(std::make_unique<cuda::AttentionPlans>(
          allocator, attention == AttentionKernels::kCudnn
                         ? cuda::CudnnAttention([this] { return cudnn_->handle(); })
                         : nullptr)) {
  CHECK(allocator.device() == (Device{DeviceType::kCuda, context.ordinal()}));
}

CudaKernels::~CudaKernels() = default;

}  // namespace lockstep
