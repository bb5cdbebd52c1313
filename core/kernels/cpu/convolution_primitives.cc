#include "core/kernels/cpu/convolution_primitives.h"

#include <unordered_map>
#include <utility>

#include "core/base/parallel.h"  // MaxThreads, SkipsLoops
#include "glog/logging.h"

namespace lockstep::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;

dnnl::memory::data_type TypeOf(const Tensor& tensor) {
  CHECK(tensor.dtype() == DType::kF32 || tensor.dtype() == DType::kBF16) << Name(tensor.dtype());
  return tensor.dtype() == DType::kF32 ? dnnl::memory::data_type::f32
                                       : dnnl::memory::data_type::bf16;
}

// Winograd's F(4x4, 3x3) (Lavin and Gray, 2016) needs a quarter of the multiplications. It is taken
// where it pays for its transforms: 3x3 windows with stride 1 over enough channels. Its error is
// some ten times that of the direct sum, about 1e-5 of the largest output, far below what training
// notices, and its bits repeat as everything else's do.
bool WinogradPays(const Window& window, int64_t in, int64_t out) {
  // oneDNN has it for AVX-512 alone.
  constexpr int kNeeded = static_cast<int>(dnnl::cpu_isa::avx512_core);
  const int available = static_cast<int>(dnnl::get_effective_cpu_isa());
  return (available & kNeeded) == kNeeded && window.kernel == 3 && window.stride == 1 &&
         window.padding == 1 && in % 16 == 0 && out % 16 == 0 && in >= 64 && out >= 64;
}

}  // namespace

ConvolutionPrimitives::ConvolutionPrimitives(Allocator& allocator)
    : allocator_(allocator), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {
  attributes_.set_scratchpad_mode(dnnl::scratchpad_mode::user);
}

Tensor ConvolutionPrimitives::Scratch(const Desc& desc) {
  return Tensor::Empty(allocator_, {static_cast<int64_t>(desc.get_size())}, DType::kU8,
                       MemoryClass::kWorkspace);
}

void ConvolutionPrimitives::Run(Pass pass, const Window& window, const Tensor& x, const Tensor& w,
                                const Tensor& bias, const Tensor& y) {
  Key key = {static_cast<int>(pass), window.kernel, window.stride,
             window.padding,         MaxThreads(),  bias.defined()};
  for (const Tensor* t : {&x, &w, &y}) {
    key.insert(key.end(), t->shape().dims().begin(), t->shape().dims().end());
    key.push_back(static_cast<int>(t->dtype()));
  }
  std::unique_ptr<Convolution>& slot = convolutions_[key];
  if (slot == nullptr) {
    slot = std::make_unique<Convolution>(Make(pass, window, x, w, bias, y));
  }
  const Convolution& convolution = *slot;

  // The operand that the pass writes goes last, and is reordered after rather than before.
  const int written = pass == Pass::kForward ? 2 : pass == Pass::kBackwardInput ? 0 : 1;
  void* data[3] = {x.raw(), w.raw(), y.raw()};
  Tensor ordered[3];
  dnnl::memory operands[3];
  for (int i = 0; i < 3; ++i) {
    if (convolution.reorders[i]) {
      ordered[i] = Scratch(convolution.wanted[i]);
      operands[i] = Memory(convolution.wanted[i], ordered[i].raw());
      if (i != written && !SkipsLoops()) {
        dnnl::memory plain = Memory(convolution.plain[i], data[i]);
        convolution.reorders[i].execute(stream_, plain, operands[i]);
      }
    } else {
      operands[i] = Memory(convolution.wanted[i], data[i]);
    }
  }
  const bool input = pass == Pass::kBackwardInput, weight = pass == Pass::kBackwardWeight;
  Tensor scratch = Scratch(convolution.scratch);
  if (SkipsLoops()) return;
  std::unordered_map<int, dnnl::memory> arguments = {
      {input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, operands[0]},
      {weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, operands[1]},
      {input || weight ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, operands[2]},
      {DNNL_ARG_SCRATCHPAD, Memory(convolution.scratch, scratch.raw())}};
  if (bias.defined()) {
    arguments.emplace(DNNL_ARG_BIAS, Memory(convolution.bias, bias.raw()));
  }
  convolution.primitive.execute(stream_, arguments);
  if (convolution.reorders[written]) {
    dnnl::memory plain = Memory(convolution.plain[written], data[written]);
    convolution.reorders[written].execute(stream_, operands[written], plain);
  }
  stream_.wait();
}

ConvolutionPrimitives::Convolution ConvolutionPrimitives::Make(Pass pass, const Window& window,
                                                               const Tensor& x, const Tensor& w,
                                                               const Tensor& bias,
                                                               const Tensor& y) {
  const Shape &x_shape = x.shape(), &w_shape = w.shape(), &y_shape = y.shape();
  const Dims x_dims = {x_shape[0], x_shape[3], x_shape[1], x_shape[2]};
  const Dims w_dims = {w_shape[0], w_shape[3], w_shape[1], w_shape[2]};
  const Dims y_dims = {y_shape[0], y_shape[3], y_shape[1], y_shape[2]};
  const Dims strides = {window.stride, window.stride};
  const Dims padding = {window.padding, window.padding};
  // Channels-last as our tensors lie; where it is copied anyway (Winograd), or small enough that
  // copying does not show (late layers), oneDNN chooses.
  const bool winograd = x.dtype() == DType::kF32 && WinogradPays(window, x_shape[3], w_shape[0]);
  const bool small = y_shape[1] * y_shape[2] <= 16;
  const auto algorithm =
      winograd ? dnnl::algorithm::convolution_winograd : dnnl::algorithm::convolution_direct;
  const Tag tag = winograd || small ? Tag::any : Tag::nhwc;
  const Desc x_any(x_dims, TypeOf(x), tag), w_any(w_dims, TypeOf(w), Tag::any),
      y_any(y_dims, TypeOf(y), tag);

  Convolution made;
  made.plain[0] = Desc(x_dims, TypeOf(x), Tag::nhwc);
  made.plain[1] = Desc(w_dims, TypeOf(w), Tag::ohwi);
  made.plain[2] = Desc(y_dims, TypeOf(y), Tag::nhwc);
  if (bias.defined()) made.bias = Desc({w_shape[0]}, TypeOf(bias), Tag::x);
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, algorithm, x_any, Desc(w_dims, TypeOf(x), Tag::any),
       made.bias, y_any, strides, padding, padding},
      attributes_, engine_);
  const auto keep = [&made](const auto& desc, Desc source, Desc weights, Desc destination) {
    made.wanted[0] = std::move(source);
    made.wanted[1] = std::move(weights);
    made.wanted[2] = std::move(destination);
    made.scratch = desc.scratchpad_desc();
  };
  int written = 2;
  if (pass == Pass::kForward) {
    keep(forward, forward.src_desc(), forward.weights_desc(), forward.dst_desc());
    made.primitive = dnnl::convolution_forward(forward);
  } else if (pass == Pass::kBackwardInput) {
    written = 0;
    const dnnl::convolution_backward_data::primitive_desc backward(
        {algorithm, x_any, w_any, y_any, strides, padding, padding}, attributes_, engine_, forward);
    keep(backward, backward.diff_src_desc(), backward.weights_desc(), backward.diff_dst_desc());
    made.primitive = dnnl::convolution_backward_data(backward);
  } else {
    written = 1;
    const dnnl::convolution_backward_weights::primitive_desc backward(
        {algorithm, x_any, w_any, y_any, strides, padding, padding}, attributes_, engine_, forward);
    keep(backward, backward.src_desc(), backward.diff_weights_desc(), backward.diff_dst_desc());
    made.primitive = dnnl::convolution_backward_weights(backward);
  }
  for (int i = 0; i < 3; ++i) {
    if (made.plain[i] == made.wanted[i]) continue;
    const Desc& from = i == written ? made.wanted[i] : made.plain[i];
    const Desc& to = i == written ? made.plain[i] : made.wanted[i];
    made.reorders[i] = dnnl::reorder(dnnl::reorder::primitive_desc(engine_, from, engine_, to));
  }
  return made;
}

}  // namespace lockstep::cpu
