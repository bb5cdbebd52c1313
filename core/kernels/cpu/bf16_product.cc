#include "core/kernels/cpu/bf16_product.h"

#include <unordered_map>

#include "core/base/parallel.h"  // MaxThreads, SkipsLoops
#include "glog/logging.h"

namespace lockstep::cpu {
namespace {

using Desc = dnnl::memory::desc;
using Dims = dnnl::memory::dims;
using Type = dnnl::memory::data_type;

Desc Plain(int64_t rows, int64_t columns, Transpose transpose, Type type = Type::bf16) {
  return Desc({rows, columns}, type,
              transpose == Transpose::kYes ? Dims{1, rows} : Dims{columns, 1});
}

}  // namespace

std::vector<int64_t> Bf16Products::Spec::Key() const {
  return {m,
          n,
          k,
          static_cast<int64_t>(transpose_a),
          static_cast<int64_t>(transpose_b),
          static_cast<int64_t>(right),
          static_cast<int64_t>(bias),
          static_cast<int64_t>(write),
          static_cast<int64_t>(c)};
}

Bf16Products::Bf16Products(Allocator& allocator)
    : allocator_(allocator), engine_(dnnl::engine::kind::cpu, 0), stream_(engine_) {}

bool Bf16Products::Supported() {
  // oneDNN emulates bf16 on older processors, slower than fp32.
  constexpr int kNeeded = static_cast<int>(dnnl::cpu_isa::avx512_core_bf16);
  return (static_cast<int>(dnnl::get_effective_cpu_isa()) & kNeeded) == kNeeded;
}

const Bf16Products::Product& Bf16Products::Get(const Spec& spec) {
  std::unique_ptr<Product>& slot = products_[spec.Key()];
  if (slot == nullptr) slot = std::make_unique<Product>(spec, engine_);
  return *slot;
}

Tensor Bf16Products::Pack(const Spec& spec, const Tensor& b) {
  CHECK_EQ(b.elements(), spec.k * spec.n);
  const Desc& wanted = Get(spec).right();
  Tensor packed = Tensor::Empty(allocator_, {static_cast<int64_t>(wanted.get_size())}, DType::kU8,
                                MemoryClass::kWorkspace);
  if (SkipsLoops()) return packed;
  dnnl::memory from(Plain(spec.k, spec.n, spec.transpose_b), engine_, b.raw());
  dnnl::memory to(wanted, engine_, packed.raw());
  std::vector<int64_t> key = spec.Key();
  key.push_back(MaxThreads());
  auto [packing, added] = packings_.try_emplace(std::move(key));
  if (added) packing->second = dnnl::reorder(from, to);
  packing->second.execute(stream_, from, to);
  stream_.wait();
  return packed;
}

Bf16Products::Product::Product(const Spec& spec, const dnnl::engine& engine) : engine_(engine) {
  a_ = Plain(spec.m, spec.k, spec.transpose_a);
  c_ = Plain(spec.m, spec.n, Transpose::kNo, spec.c == DType::kF32 ? Type::f32 : Type::bf16);
  const Desc b = spec.right == Spec::Right::kPacked
                     ? Desc({spec.k, spec.n}, Type::bf16, dnnl::memory::format_tag::any)
                     : Plain(spec.k, spec.n, spec.transpose_b);
  dnnl::primitive_attr attributes;
  attributes.set_scratchpad_mode(dnnl::scratchpad_mode::user);
  if (spec.write == Write::kAccumulate) {
    dnnl::post_ops add;
    add.append_sum();
    attributes.set_post_ops(add);
  }
  // A primitive is compiled for the threads that it will run on.
  const int threads = MaxThreads();
  SetThreads(1);
  dnnl::matmul::desc product(a_, b, c_);
  if (spec.bias == Spec::Bias::kRow) {
    bias_ = Plain(1, spec.n, Transpose::kNo);
    product = dnnl::matmul::desc(a_, b, bias_, c_);
  }
  const dnnl::matmul::primitive_desc desc(product, attributes, engine_);
  b_ = desc.weights_desc();
  scratch_ = desc.scratchpad_desc();
  primitive_ = dnnl::matmul(desc);
  SetThreads(threads);
}

void Bf16Products::Product::Run(const void* a, const void* b, const void* bias, void* c,
                                void* scratch) const {
  const auto operand = [this](const Desc& desc, const void* data) {
    return dnnl::memory(desc, engine_, const_cast<void*>(data));
  };
  std::unordered_map<int, dnnl::memory> operands = {
      {DNNL_ARG_SRC, operand(a_, a)},
      {DNNL_ARG_WEIGHTS, operand(b_, b)},
      {DNNL_ARG_DST, operand(c_, c)},
      {DNNL_ARG_SCRATCHPAD, operand(scratch_, scratch)}};
  if (bias != nullptr) operands.emplace(DNNL_ARG_BIAS, operand(bias_, bias));
  dnnl::stream stream(engine_);
  primitive_.execute(stream, operands);
}

}  // namespace lockstep::cpu
