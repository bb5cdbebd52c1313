#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <vector>

#include "core/kernels/kernels.h"
#include "dnnl.hpp"

namespace lockstep::cpu {

// Convolutions of a fixed group of samples on one thread each, by oneDNN. oneDNN's order of sums
// depends on the number of samples in a call and on the number of threads; whoever calls it on
// groups of one size, by one thread, gets the same bits whatever surrounds a sample.
//
// Compiling a primitive costs about as much as running a small one; primitives are kept, and found
// again by shape. dnnl::error becomes a crash: shapes are checked before.
class ConvolutionPrimitives {
 public:
  ConvolutionPrimitives() : engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

  enum class Pass { kForward, kBackwardInput, kBackwardWeight };
  // The operands of a convolution, of which a pass writes one: x [samples, height, width, in],
  // w [out, kernel, kernel, in] and y [samples, out_height, out_width, out], or their gradients.
  enum Operand { kX, kW, kY };
  static Operand Written(Pass pass) {
    return pass == Pass::kForward ? kY : pass == Pass::kBackwardInput ? kX : kW;
  }

  struct Spec {
    Pass pass;
    Window window;
    int64_t samples, height, width, in, out;
    DType dtype;        // of all operands, fp32 or bf16, but a w that is written, which is fp32
    bool bias = false;  // added in forward

    std::vector<int64_t> Key() const;
  };
  class Primitive;

  // Valid as long as this object. Not to be called by several threads at once.
  const Primitive& Get(const Spec& spec);

  // w between its plain layout [out, kernel, kernel, in] and a primitive's own;
  // `plain` is of the dtype that the primitive computes in.
  void PackWeight(const Primitive& primitive, const void* plain, void* packed);
  void UnpackWeight(const Primitive& primitive, const void* packed, void* plain);

 private:
  void Reorder(const dnnl::memory::desc& from_desc, const void* from,
               const dnnl::memory::desc& to_desc, void* to);

  dnnl::engine engine_;
  dnnl::stream stream_;
  std::map<std::vector<int64_t>, std::unique_ptr<Primitive>> primitives_;
};

// One compiled primitive.
class ConvolutionPrimitives::Primitive {
 public:
  Primitive(const Spec& spec, const dnnl::engine& engine);

  // Bytes of an operand in the layout that oneDNN computes with.
  int64_t packed_bytes(Operand operand) const {
    return static_cast<int64_t>(wanted_[operand].get_size());
  }
  const dnnl::memory::desc& plain(Operand operand) const { return plain_[operand]; }
  const dnnl::memory::desc& wanted(Operand operand) const { return wanted_[operand]; }
  // Bytes that a thread must give Run as scratch, 64-byte aligned.
  int64_t scratch_bytes() const;

  // Runs the pass on the calling thread alone; safe on several threads at once, with a scratch of
  // its own for each. x and y lie channels last, w is packed.
  void Run(const void* x, const void* w, const void* bias, const void* y, std::byte* scratch) const;

 private:
  // Whether oneDNN computes with an operand as it lies in memory.
  bool IsPlain(Operand operand) const { return plain_[operand] == wanted_[operand]; }

  Spec spec_;
  dnnl::engine engine_;
  dnnl::primitive primitive_;
  dnnl::memory::desc plain_[3], wanted_[3], bias_, scratch_;
  dnnl::reorder reorders_[3];  // of x and y, where plain != wanted
};

}  // namespace lockstep::cpu
