#include "tools/gathered_linear/demo.h"

#include <algorithm>
#include <memory>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/autograd/tape.h"
#include "core/base/philox.h"
#include "core/base/status.h"
#include "core/comm/launch.h"
#include "core/comm/rank_handle.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/nn/layers.h"
#include "core/nn/module.h"
#include "glog/logging.h"
#include "strategies/tensor_parallel/tensor_group.h"
#include "tools/report/report.h"
#include "tools/report/text.h"

namespace lockstep {
namespace {

constexpr SplitStyle kStyle = SplitStyle::kColumnGathered;
// How TensorGroup books what it moves.
constexpr char kForwardLabel[] = "activations";
constexpr char kBackwardLabel[] = "activation gradients";

std::vector<float> Draw(uint64_t seed, const char* name, int64_t elements) {
  std::vector<float> values(elements);
  Philox(PhiloxKey(seed, "gathered_linear", name)).FillNormal(values, 0, 0.0f, 1.0f);
  return values;
}

Tensor Upload(Kernels& kernels, const Shape& shape, const std::vector<float>& values) {
  const Tensor tensor = kernels.Empty(shape);
  kernels.CopyFromHost(values.data(), tensor);
  return tensor;
}

std::vector<float> Download(Kernels& kernels, const Tensor& tensor) {
  std::vector<float> values(tensor.elements());
  kernels.CopyToHost(tensor, values.data());
  return values;
}

// Gives the layer, split or not, its initial values, and runs it forward and backward.
LinearOutcome RunLayer(LinearLayer& layer, Kernels& kernels, const GatheredLinear& demo) {
  const auto& [ranks, rows, in, out, seed] = demo.options;
  Materialize(layer.Parameters(), seed, kernels);
  Tape tape(kernels);
  Pass pass = {.tape = tape};
  const Variable x(Upload(kernels, {rows, in}, demo.x), std::make_shared<GradientSlot>());
  const Variable y = layer(pass, x);
  LinearOutcome outcome;
  outcome.y = Download(kernels, y.value);
  tape.Backward({{y, Upload(kernels, {rows, out}, demo.dy)}});
  outcome.dx = Download(kernels, x.gradient->Take());
  outcome.dweight = Download(kernels, layer.weight().gradient);
  outcome.dbias = Download(kernels, layer.bias()->gradient);
  return outcome;
}

GatheredLinearRank RunRank(const GatheredLinear& demo, RankHandle& handle) {
  const GatheredLinearOptions& options = demo.options;
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  TensorGroup group(handle.comm(), TensorGroup::Sequence::kWhole);
  LinearLayer layer("layer", options.in, options.out);
  layer.CutFeatures(kStyle, options.ranks);
  layer.Split(kStyle, group);
  const CommTotals mark = handle.ledger().Mark();
  GatheredLinearRank rank;
  rank.outcome = RunLayer(layer, kernels, demo);
  rank.traffic = handle.ledger().Since(mark);
  const Range own = layer.cut().Own(options.out);
  rank.first_output = own.first;
  rank.outputs = own.count;
  rank.weight = layer.weight().value.shape();
  rank.own_y = {options.rows, rank.weight[0]};
  rank.y = {options.rows, std::ssize(rank.outcome.y) / options.rows};
  return rank;
}

// Whether `part` is what `whole` has from `first` on.
bool IsPart(std::span<const float> part, std::span<const float> whole, int64_t first) {
  return std::ranges::equal(part, whole.subspan(first, part.size()));
}

std::string Bytes(double bytes) { return absl::StrFormat("%.0f", bytes); }

}  // namespace

double GatheredLinear::ForwardBytes(int rank) const {
  const int64_t columns = options.rows * ranks[rank].outputs * static_cast<int64_t>(sizeof(float));
  return static_cast<double>(AlignedBytes(columns)) * (options.ranks - 1);
}

double GatheredLinear::BackwardBytes() const {
  const auto bytes = static_cast<double>(options.rows * options.in) * sizeof(float);
  return 2 * bytes * (options.ranks - 1) / options.ranks;
}

bool GatheredLinear::HasSameBits(int rank) const {
  const GatheredLinearRank& own = ranks[rank];
  return own.outcome.y == undivided.y && own.outcome.dx == undivided.dx &&
         IsPart(own.outcome.dweight, undivided.dweight, own.first_output * options.in) &&
         IsPart(own.outcome.dbias, undivided.dbias, own.first_output);
}

bool GatheredLinear::IsAsExpected() const {
  for (int rank = 0; rank < options.ranks; ++rank) {
    const CommTotals& traffic = ranks[rank].traffic;
    const double forward = traffic.Of(Operation::kAllGather, kForwardLabel).wire_bytes;
    const double backward = traffic.Of(Operation::kAllReduce, kBackwardLabel).wire_bytes;
    if (!HasSameBits(rank) || forward != ForwardBytes(rank) || backward != BackwardBytes() ||
        traffic.All().wire_bytes != forward + backward) {
      return false;
    }
  }
  return true;
}

absl::StatusOr<GatheredLinear> RunGatheredLinear(const GatheredLinearOptions& options) {
  CHECK(options.ranks >= 1 && options.rows >= 1 && options.in >= 1);
  CHECK_GE(options.out, options.ranks);
  GatheredLinear demo = {.options = options,
                         .x = Draw(options.seed, "x", options.rows * options.in),
                         .weight = {},
                         .bias = {},
                         .dy = Draw(options.seed, "dy", options.rows * options.out),
                         .undivided = {},
                         .ranks = {}};
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  LinearLayer layer("layer", options.in, options.out);
  layer.CutFeatures(kStyle, options.ranks);
  demo.undivided = RunLayer(layer, kernels, demo);
  demo.weight = Download(kernels, layer.weight().value);
  demo.bias = Download(kernels, layer.bias()->value);
  demo.ranks.resize(options.ranks);
  LS_RETURN_IF_ERROR(RunRanks(options.ranks, {}, [&](RankHandle& handle) {
    demo.ranks[handle.rank()] = RunRank(demo, handle);  // writes its own place only
    return absl::OkStatus();
  }));
  return demo;
}

std::string TextOf(const GatheredLinear& demo) {
  const auto& [count, rows, in, out, seed] = demo.options;
  std::string text = absl::StrCat("y = x weight^T + bias: x ", Shape{rows, in}.ToString(),
                                  ", weight ", Shape{out, in}.ToString(), ", fp32, seed ", seed,
                                  "; the weight's rows are divided among ", count, " ranks\n\n");
  Table shapes = {.columns = {{.title = "rank"},
                              {.title = "weight here"},
                              {.title = "y before the gather"},
                              {.title = "y"}}};
  Table traffic = {.columns = {{.title = "rank"},
                               {.title = "sends", .align = Table::Align::kLeft},
                               {.title = "bytes in the ledger"},
                               {.title = "bytes by formula"},
                               {.title = "formula", .align = Table::Align::kLeft}}};
  Table bits = {.columns = {{.title = "rank"},
                            {.title = "bits of y, dx, dweight, dbias beside the undivided layer's",
                             .align = Table::Align::kLeft}}};
  for (int i = 0; i < count; ++i) {
    const GatheredLinearRank& rank = demo.ranks[i];
    const std::string name = absl::StrCat(i);
    shapes.Add({name, rank.weight.ToString(), rank.own_y.ToString(), rank.y.ToString()});
    traffic.Add({name, "all_gather of y",
                 Bytes(rank.traffic.Of(Operation::kAllGather, kForwardLabel).wire_bytes),
                 Bytes(demo.ForwardBytes(i)),
                 absl::StrCat("(n-1) x ", rows, " x ", rank.outputs,
                              " x 4, filled up to multiples of 64")});
    traffic.Add({name, "all_reduce of dx",
                 Bytes(rank.traffic.Of(Operation::kAllReduce, kBackwardLabel).wire_bytes),
                 Bytes(demo.BackwardBytes()),
                 absl::StrCat("2 (n-1)/n x ", rows, " x ", in, " x 4")});
    bits.Add({name, demo.HasSameBits(i) ? "equal" : "different"});
  }
  absl::StrAppend(&text, TextOf(shapes), "\n", TextOf(traffic), "\n", TextOf(bits),
                  "\nThe undivided layer sums dx over ", count, count == 1 ? " leaf" : " leaves",
                  " of output features, as the ranks do (docs/numerics.md, \"Feature leaves\").\n");
  return text;
}

}  // namespace lockstep
