#include "core/kernels/cpu/convolution_primitive.h"

#include <omp.h>  // omp_set_num_threads

#include <unordered_map>

#include "glog/logging.h"

namespace lockstep::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Tag = dnnl::memory::format_tag;
using Type = dnnl::memory::data_type;

constexpr int64_t kLine = 64;  // bytes
int64_t WholeLines(int64_t bytes) { return (bytes + kLine - 1) / kLine * kLine; }

// Has oneDNN run on the calling thread alone, and compile for one thread: its threads are OpenMP's,
// whose number each thread has for itself. The threads of a rank's loops are others
// (core/base/parallel.h).
void UseOneThread() { omp_set_num_threads(1); }

}  // namespace

std::vector<int64_t> ConvolutionPrimitives::Spec::Key() const {
  return {static_cast<int64_t>(pass),
          window.kernel,
          window.stride,
          window.padding,
          samples,
          height,
          width,
          in,
          out,
          static_cast<int64_t>(dtype),
          static_cast<int64_t>(bias)};
}

const ConvolutionPrimitives::Primitive& ConvolutionPrimitives::Get(const Spec& spec) {
  std::unique_ptr<Primitive>& slot = primitives_[spec.Key()];
  if (slot == nullptr) slot = std::make_unique<Primitive>(spec, engine_);
  return *slot;
}

void ConvolutionPrimitives::PackWeight(const Primitive& primitive, const void* plain,
                                       void* packed) {
  Reorder(primitive.plain(kW), plain, primitive.wanted(kW), packed);
}

void ConvolutionPrimitives::UnpackWeight(const Primitive& primitive, const void* packed,
                                         void* plain) {
  Reorder(primitive.wanted(kW), packed, primitive.plain(kW), plain);
}

void ConvolutionPrimitives::Reorder(const Desc& from_desc, const void* from, const Desc& to_desc,
                                    void* to) {
  UseOneThread();
  dnnl::memory source(from_desc, engine_, const_cast<void*>(from)), target(to_desc, engine_, to);
  dnnl::reorder(source, target).execute(stream_, source, target);
  stream_.wait();
}

ConvolutionPrimitives::Primitive::Primitive(const Spec& spec, const dnnl::engine& engine)
    : spec_(spec), engine_(engine) {
  UseOneThread();
  const Window& window = spec.window;
  const Dims dims[3] = {
      {spec.samples, spec.in, spec.height, spec.width},
      {spec.out, spec.in, window.kernel, window.kernel},
      {spec.samples, spec.out, window.Output(spec.height), window.Output(spec.width)}};
  const Dims strides = {window.stride, window.stride};
  const Dims padding = {window.padding, window.padding};
  CHECK(spec.dtype == DType::kF32 || spec.dtype == DType::kBF16) << Name(spec.dtype);
  const Type type = spec.dtype == DType::kF32 ? Type::f32 : Type::bf16;
  const Type w_type = spec.pass == Pass::kBackwardWeight ? Type::f32 : type;
  // Channels-last, as our tensors lie; where images are so small that copying them does not show,
  // oneDNN chooses.
  const bool small = dims[kY][2] * dims[kY][3] <= 16;
  const Tag tag = small ? Tag::any : Tag::nhwc;
  const Desc x(dims[kX], type, tag), y(dims[kY], type, tag), w(dims[kW], w_type, Tag::any);
  plain_[kX] = Desc(dims[kX], type, Tag::nhwc);
  plain_[kW] = Desc(dims[kW], w_type, Tag::ohwi);
  plain_[kY] = Desc(dims[kY], type, Tag::nhwc);
  if (spec.bias) bias_ = Desc({spec.out}, type, Tag::x);

  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  constexpr auto kDirect = dnnl::algorithm::convolution_direct;
  const dnnl::convolution_forward::primitive_desc forward(
      {dnnl::prop_kind::forward_training, kDirect, x, Desc(dims[kW], type, Tag::any), bias_, y,
       strides, padding, padding},
      attributes, engine_);
  const auto keep = [this](const auto& desc, const Desc& source, const Desc& weights,
                           const Desc& result) {
    wanted_[kX] = source;
    wanted_[kW] = weights;
    wanted_[kY] = result;
    scratch_ = desc.scratchpad_desc();
  };
  if (spec.pass == Pass::kForward) {
    keep(forward, forward.src_desc(), forward.weights_desc(), forward.dst_desc());
    primitive_ = dnnl::convolution_forward(forward);
  } else if (spec.pass == Pass::kBackwardInput) {
    const dnnl::convolution_backward_data::primitive_desc backward(
        {kDirect, x, w, y, strides, padding, padding}, attributes, engine_, forward);
    keep(backward, backward.diff_src_desc(), backward.weights_desc(), backward.diff_dst_desc());
    primitive_ = dnnl::convolution_backward_data(backward);
  } else {
    const dnnl::convolution_backward_weights::primitive_desc backward(
        {kDirect, x, w, y, strides, padding, padding}, attributes, engine_, forward);
    keep(backward, backward.src_desc(), backward.diff_weights_desc(), backward.diff_dst_desc());
    primitive_ = dnnl::convolution_backward_weights(backward);
  }
  for (Operand i : {kX, kY}) {
    if (IsPlain(i)) continue;
    const bool written = i == Written(spec.pass);
    const Desc &from = written ? wanted_[i] : plain_[i], &to = written ? plain_[i] : wanted_[i];
    reorders_[i] = dnnl::reorder(dnnl::reorder::primitive_desc(engine_, from, engine_, to));
  }
}

int64_t ConvolutionPrimitives::Primitive::scratch_bytes() const {
  int64_t bytes = WholeLines(static_cast<int64_t>(scratch_.get_size()));
  for (Operand i : {kX, kY}) {
    if (!IsPlain(i)) bytes += WholeLines(packed_bytes(i));
  }
  return bytes;
}

void ConvolutionPrimitives::Primitive::Run(const void* x, const void* w, const void* bias,
                                           const void* y, std::byte* scratch) const {
  UseOneThread();
  dnnl::stream stream(engine_);
  const auto memory = [this](const Desc& desc, const void* data) {
    return dnnl::memory(desc, engine_, const_cast<void*>(data));
  };
  const void* data[3] = {x, w, y};
  const Operand written = Written(spec_.pass);
  dnnl::memory operands[3];
  for (Operand i : {kX, kW, kY}) {
    if (i == kW || IsPlain(i)) {
      operands[i] = memory(wanted_[i], data[i]);
      continue;
    }
    operands[i] = memory(wanted_[i], scratch);
    scratch += WholeLines(packed_bytes(i));
    if (i == written) continue;
    dnnl::memory plain = memory(plain_[i], data[i]);
    reorders_[i].execute(stream, plain, operands[i]);
  }
  const bool input = spec_.pass == Pass::kBackwardInput;
  const bool weight = spec_.pass == Pass::kBackwardWeight;
  std::unordered_map<int, dnnl::memory> arguments = {
      {input ? DNNL_ARG_DIFF_SRC : DNNL_ARG_SRC, operands[kX]},
      {weight ? DNNL_ARG_DIFF_WEIGHTS : DNNL_ARG_WEIGHTS, operands[kW]},
      {input || weight ? DNNL_ARG_DIFF_DST : DNNL_ARG_DST, operands[kY]},
      {DNNL_ARG_SCRATCHPAD, memory(scratch_, scratch)}};
  if (bias != nullptr) arguments.emplace(DNNL_ARG_BIAS, memory(bias_, bias));
  primitive_.execute(stream, arguments);
  if (written != kW && !IsPlain(written)) {
    dnnl::memory plain = memory(plain_[written], data[written]);
    reorders_[written].execute(stream, operands[written], plain);
  }
  stream.wait();
}

}  // namespace lockstep::cpu
