#pragma once

#include <algorithm>  // std::max
#include <array>
#include <cstdint>
#include <vector>

#include "absl/types/span.h"
#include "core/base/exact_sum.h"
#include "core/kernels/optimizers/registry.h"
#include "core/kernels/options.h"
#include "core/tensor/slice.h"
#include "core/tensor/tensor.h"

namespace lockstep {

// The leaves of a sum over features (docs/numerics.md, "Feature leaves"): for each leaf in order,
// the ranges of features that it sums, which make one row in the order of the ranges. A leaf of a
// packed projection has three ranges. Features in no leaf are padding, which takes no part.
using FeatureLeaves = std::vector<std::vector<Range>>;

// A part of attention over token leaves: the queries and the keys of aligned runs of leaves, which
// are nodes of the tree over all of them.
struct AttentionPart {
  int64_t leaves = 1;             // of each sequence
  Range queries = {}, keys = {};  // leaves
};

// For each query of some leaves, what it has from some keys: the largest logit, which is not
// scaled, the sum of exp((logit - largest) * scale), and the values times these exponentials and
// dropout's factors, summed. fp32 whatever the compute dtype.
struct AttentionSums {
  Tensor largest, sums;  // [leaves * batch, heads, leaf time]
  Tensor outputs;        // [leaves * batch, leaf time, heads * head_width]
};

// The arithmetic that a rank's device offers, without gradients. One object belongs to one rank: it
// allocates from the rank's allocator, runs on the rank's threads or stream, and keeps what it
// needs from call to call (compiled primitives, scratch). CPU kernels return when done; CUDA
// kernels are queued on the rank's compute stream.
//
// Tensors are dense and row-major; a matrix [rows, width] stands for any shape with that last
// extent. Outputs are allocated by the caller and must not overlap the inputs unless "in place" is
// said. Kernels throw StatusException when there is no memory; wrong shapes or dtypes are CHECKs.
//
// Dtypes. Activations, their gradients and parameters are fp32, fp16 or bf16, all of one call
// alike: the compute dtype. Weight gradients (dw, dbias, dscale, dshift, dtable) may be fp32 or any
// of the 16-bit types, whatever the compute dtype. What is fp32 always: statistics (means,
// variances, inverse standard deviations, running estimates and their sums), log_sum_exp, losses,
// optimizer states and master parameters. Element by element arithmetic takes each operand in a
// floating dtype of its own.
//
// 16 bits are how tensors are stored, fp32 (or more) is what is computed in. A result is rounded
// when it is stored, once, to the nearest, ties to even: a sum over rows, or over a batch, is not
// rounded on the way, and what is added to a 16-bit gradient is a whole call's sum in fp32. fp16
// ends at 65504; what is larger becomes infinite. Where a kernel stores an intermediate result in
// 16 bits, it says so.
//
// A backend may lack kernels: their bodies there are `Lack();`, and RankDevices::lacking_kernels()
// (core/run/device/rank_device.h) names them. A run that calls one of them is refused before it
// starts.
class Kernels {
 public:
  virtual ~Kernels() = default;

  virtual Allocator& allocator() = 0;
  Device device() { return allocator().device(); }

  // Nanoseconds that the rank's thread has spent inside kernels: what is left of a step is
  // overhead.
  virtual int64_t busy_nanos() const = 0;

  // Memory with undefined contents.
  Tensor Empty(const Shape& shape, DType dtype = DType::kF32,
               MemoryClass memory_class = MemoryClass::kActivations) {
    return Tensor::Empty(allocator(), shape, dtype, memory_class);
  }
  Tensor EmptyLike(const Tensor& x) { return Empty(x.shape(), x.dtype()); }

  // --- data movement --------------------------------------------------------------------------
  virtual void Fill(const Tensor& y, float value) = 0;
  virtual void Copy(const Tensor& x, const Tensor& y) = 0;
  // Between any two of fp32, fp16 and bf16, and between fp32 and fp64.
  virtual void Cast(const Tensor& x, const Tensor& y) = 0;
  // Columns from, from + 1, ... of matrix y = `count` columns of matrix x from column `first` on;
  // of one dtype.
  virtual void CopyColumns(const Tensor& x, int64_t first, int64_t count, const Tensor& y,
                           int64_t from) = 0;
  // Between this rank's device and host memory; returns when done.
  virtual void CopyFromHost(const void* host, const Tensor& y) = 0;
  virtual void CopyToHost(const Tensor& x, void* host) = 0;

  // Host memory for what is written there and then uploaded whole, such as batches: allocator()
  // where the rank computes on the CPU; beside a GPU page-locked memory, which the rank's books do
  // not count. Lives as long as the kernels.
  virtual Allocator& host_allocator() { return allocator(); }
  // The elements of `host` as a tensor of this device: `host` itself on the CPU, elsewhere a copy
  // under kActivations. From host_allocator() a GPU copies beside its kernels, without the caller
  // waiting: `host` may be dropped at once, and must not be written again before that.
  virtual Tensor Upload(const Tensor& host);

  // --- element by element; y may be an input --------------------------------------------------
  virtual void Add(const Tensor& a, const Tensor& b, const Tensor& y) = 0;
  virtual void Multiply(const Tensor& a, const Tensor& b, const Tensor& y) = 0;
  virtual void Scale(const Tensor& x, float factor, const Tensor& y) = 0;
  // y += factor * x
  virtual void AddScaled(const Tensor& x, float factor, const Tensor& y) = 0;
  virtual void Relu(const Tensor& x, const Tensor& y) = 0;
  // dx = dy where y > 0, else 0
  virtual void ReluBackward(const Tensor& y, const Tensor& dy, const Tensor& dx) = 0;
  // GELU by the tanh approximation, as GPT-2 has it (Hendrycks and Gimpel, 2016).
  virtual void Gelu(const Tensor& x, const Tensor& y) = 0;
  virtual void GeluBackward(const Tensor& x, const Tensor& dy, const Tensor& dx) = 0;
  // y[rows, hidden] = silu(gate) * up from x[rows, 2 * hidden], whose rows are gate, then up;
  // silu(x) = x / (1 + e^-x). The activation of an MLP with SwiGLU (Shazeer, 2020). y is not x.
  virtual void SwiGlu(const Tensor& x, const Tensor& y) = 0;
  virtual void SwiGluBackward(const Tensor& x, const Tensor& dy, const Tensor& dx) = 0;
  // Applies the mask of `dropout` for elements first_element, first_element + 1, ... of the
  // unsharded tensor. Its own backward: the same call on the gradient.
  virtual void ApplyDropout(const Dropout& dropout, int64_t first_element, const Tensor& x,
                            const Tensor& y) = 0;

  // --- matrix products ------------------------------------------------------------------------
  // c[m, n] (+)= op(a) op(b), op(a): [m, k], op(b): [k, n].
  virtual void MatMul(const Tensor& a, Transpose transpose_a, const Tensor& b,
                      Transpose transpose_b, Write write, const Tensor& c) = 0;
  // y[rows, out] = x[rows, in] w[out, in]^T + bias[out] + residual[rows, out]; bias and residual
  // may be undefined.
  virtual void Linear(const Tensor& x, const Tensor& w, const Tensor& bias, const Tensor& residual,
                      const Tensor& y) = 0;
  // dx[rows, in] = dy[rows, out] w; dw[out, in] (+)= dy^T x; dbias[out] (+)= the column sums of dy.
  // Each of the three may be undefined: it is not computed. One call reads dy once for all of them.
  // x is read for dw alone, and may be undefined without it.
  virtual void LinearBackward(const Tensor& dy, const Tensor& x, const Tensor& w, Write write,
                              const Tensor& dx, const Tensor& dw, const Tensor& dbias) = 0;
  // y[rows, width] = x + bias[width] + residual[rows, width], bias or residual undefined or not:
  // the end of a linear layer whose product was summed over ranks. y may be x.
  virtual void AddBias(const Tensor& x, const Tensor& bias, const Tensor& residual,
                       const Tensor& y) = 0;
  // sums[width] (+)= the column sums of x[rows, width]: a bias's gradient.
  virtual void ColumnSums(const Tensor& x, Write write, const Tensor& sums) = 0;
  // A transformer's MLP: y = gelu(pre) down^T + down_bias + residual, pre = x up^T + up_bias. x, y,
  // residual [rows, width], pre [rows, hidden], up [hidden, width], down [width, hidden]. Only
  // `pre` is kept for backward; down_bias and residual may be undefined.
  virtual void GeluMlp(const Tensor& x, const Tensor& up, const Tensor& up_bias, const Tensor& down,
                       const Tensor& down_bias, const Tensor& residual, const Tensor& pre,
                       const Tensor& y) = 0;
  // The second half of an MLP whose halves are computed apart: y = gelu(pre) down^T + bias +
  // residual. On the CPU in fp32, the result has the bits of GeluMlp.
  virtual void GeluLinear(const Tensor& pre, const Tensor& down, const Tensor& bias,
                          const Tensor& residual, const Tensor& y) = 0;
  // Each gradient may be undefined: it is not computed.
  struct GeluMlpGradients {
    Tensor x, up, up_bias, down, down_bias;
  };
  virtual void GeluMlpBackward(const Tensor& x, const Tensor& pre, const Tensor& up,
                               const Tensor& down, const Tensor& dy, Write write,
                               const GeluMlpGradients& gradients) = 0;

  // --- sums over feature leaves ---------------------------------------------------------------
  // What ranks that split these features would compute, one for each leaf, and then reduce: a leaf
  // is what the kernel without leaves makes of its features; all are added along the tree of
  // core/base/sum_tree.h, and each node, a leaf too, is rounded to the dtype of the result. A leaf
  // without features is -0.0. The bodies here call the kernels above with copies of slices; a
  // backend may override them.
  // y = x w^T, summed by leaves of x's features.
  virtual void LinearByLeaves(const Tensor& x, const Tensor& w, const FeatureLeaves& leaves,
                              const Tensor& y);
  // As LinearBackward; dx is summed by leaves of dy's features.
  virtual void LinearBackwardByLeaves(const Tensor& dy, const Tensor& x, const Tensor& w,
                                      const FeatureLeaves& leaves, Write write, const Tensor& dx,
                                      const Tensor& dw, const Tensor& dbias);
  // As GeluMlp without down_bias and residual; y, and the gradient of x, are summed by leaves of
  // hidden features.
  virtual void GeluMlpByLeaves(const Tensor& x, const Tensor& up, const Tensor& up_bias,
                               const Tensor& down, const FeatureLeaves& leaves, const Tensor& pre,
                               const Tensor& y);
  virtual void GeluMlpBackwardByLeaves(const Tensor& x, const Tensor& pre, const Tensor& up,
                                       const Tensor& down, const FeatureLeaves& leaves,
                                       const Tensor& dy, Write write,
                                       const GeluMlpGradients& gradients);

  // --- convolution and pooling; x: [batch, height, width, in], y: [batch, h', w', out] ----------
  // w: [out, kernel, kernel, in]; bias[out] may be undefined.
  virtual void Convolution(const Tensor& x, const Tensor& w, const Tensor& bias,
                           const Window& window, const Tensor& y) = 0;
  virtual void ConvolutionBackwardInput(const Tensor& dy, const Tensor& w, const Window& window,
                                        const Tensor& dx) = 0;
  virtual void ConvolutionBackwardWeight(const Tensor& dy, const Tensor& x, const Window& window,
                                         Write write, const Tensor& dw, const Tensor& dbias) = 0;
  virtual void MaxPool(const Tensor& x, const Window& window, const Tensor& y) = 0;
  // x and y are the forward's. The first element of a window, in the order of memory, that equals
  // its maximum gets the gradient.
  virtual void MaxPoolBackward(const Tensor& x, const Window& window, const Tensor& y,
                               const Tensor& dy, const Tensor& dx) = 0;
  // y[batch, channels] = mean over height and width
  virtual void GlobalAveragePool(const Tensor& x, const Tensor& y) = 0;
  virtual void GlobalAveragePoolBackward(const Tensor& dy, const Tensor& dx) = 0;
  // y[batch, 2 height, 2 width, channels]: each pixel of x becomes a square of four.
  virtual void Upsample(const Tensor& x, const Tensor& y) = 0;
  // dx = the sum of the four, in fp32: (upper left + upper right) + (lower left + lower right).
  virtual void UpsampleBackward(const Tensor& dy, const Tensor& dx) = 0;

  // --- normalisation --------------------------------------------------------------------------
  // Batch normalisation over all but the last dimension, with this batch's statistics (Ioffe and
  // Szegedy, 2015): y = activation((x - mean) * inverse_stddev * scale + shift + residual).
  // Writes mean and biased variance, [channels] each, the latter as exact as variance + epsilon is;
  // residual may be undefined. In 16 bits what the residual is added to may have been rounded.
  // Returns what this device keeps for BatchNormBackward besides; undefined: nothing.
  virtual Tensor BatchNorm(const Tensor& x, const Tensor& scale, const Tensor& shift,
                           const Tensor& residual, float epsilon, Activation activation,
                           const Tensor& y, const Tensor& mean, const Tensor& variance) = 0;
  // The same with given statistics; for evaluation.
  virtual void BatchNormInference(const Tensor& x, const Tensor& scale, const Tensor& shift,
                                  const Tensor& residual, const Tensor& mean,
                                  const Tensor& variance, float epsilon, Activation activation,
                                  const Tensor& y) = 0;
  // `kept` is what the forward has returned, `y` its output where an activation followed, else
  // undefined. Writes dx, and the residual's gradient where `dresidual` is defined; adds to or
  // overwrites dscale and dshift where these are defined.
  virtual void BatchNormBackward(const Tensor& x, const Tensor& scale, const Tensor& mean,
                                 const Tensor& variance, const Tensor& kept, float epsilon,
                                 const Tensor& y, const Tensor& dy, const Tensor& dx,
                                 const Tensor& dresidual, Write write, const Tensor& dscale,
                                 const Tensor& dshift) = 0;
  // Batch statistics of several micro-batches, for the running estimate: adds mean, variance and
  // mean^2 of one micro-batch, times `weight`, to the rows of sums [3, channels].
  virtual void AddStatistics(const Tensor& mean, const Tensor& variance, float weight, Write write,
                             const Tensor& sums) = 0;
  // Moves the running estimate by `momentum` towards the mean and the unbiased variance of all
  // micro-batches whose statistics were added up in sums: of a total `weight`, where a weight of 1
  // stands for `rows` rows. Sums [2, channels], which lack mean^2, are those of one
  // micro-batch: no spread between means is added.
  virtual void UpdateRunningStatistics(const Tensor& sums, double weight, int64_t rows,
                                       float momentum, const Tensor& running_mean,
                                       const Tensor& running_variance) = 0;
  // Layer normalisation of each row (Ba et al., 2016). Writes mean and inverse standard deviation
  // of each row, [rows].
  virtual void LayerNorm(const Tensor& x, const Tensor& scale, const Tensor& shift, float epsilon,
                         const Tensor& y, const Tensor& mean, const Tensor& inverse_stddev) = 0;
  // dx = the gradient + residual (undefined: nothing is added); dx may be the residual itself.
  virtual void LayerNormBackward(const Tensor& x, const Tensor& scale, const Tensor& mean,
                                 const Tensor& inverse_stddev, const Tensor& dy,
                                 const Tensor& residual, const Tensor& dx, Write write,
                                 const Tensor& dscale, const Tensor& dshift) = 0;

  // Root mean square normalisation of each row (Zhang and Sennrich, 2019): y = x * inverse_rms *
  // scale, inverse_rms = 1 / sqrt(mean of x^2 + epsilon). Writes inverse_rms of each row, [rows].
  virtual void RmsNorm(const Tensor& x, const Tensor& scale, float epsilon, const Tensor& y,
                       const Tensor& inverse_rms) = 0;
  // dx = the gradient + residual (undefined: nothing is added); dx may be the residual itself.
  virtual void RmsNormBackward(const Tensor& x, const Tensor& scale, const Tensor& inverse_rms,
                               const Tensor& dy, const Tensor& residual, const Tensor& dx,
                               Write write, const Tensor& dscale) = 0;

  // --- sequences ------------------------------------------------------------------------------
  // y[rows, width] = table[ids[rows]]; ids i32 below the vocabulary. A negative id is no row of
  // this table: y is -0.0 there, which changes no sum, and nothing goes back.
  virtual void Embedding(const Tensor& ids, const Tensor& table, const Tensor& y) = 0;
  // dtable (+)= dy summed by id, in row order: the sum is complete before it is added.
  virtual void EmbeddingBackward(const Tensor& ids, const Tensor& dy, Write write,
                                 const Tensor& dtable) = 0;
  // Ids as a table of the rows in `rows` alone knows them: y = ids - rows.first, or -1 for those
  // that it has not; i32.
  virtual void LocalIds(const Tensor& ids, const Range& rows, const Tensor& y) = 0;
  // y[batch, time, width] = x + table[0 .. time), and dtable[0 .. time) (+)= dy summed over the
  // batch; overwriting zeroes the table's further rows.
  virtual void AddPositions(const Tensor& x, const Tensor& table, const Tensor& y) = 0;
  virtual void AddPositionsBackward(const Tensor& dy, Write write, const Tensor& dtable) = 0;
  // Turns heads of x [rows, width] by their positions: row r is at positions[r] (i32), a row of
  // table [positions, head_width] (fp32), which has the cosines of the head_width / 2 angles, and
  // then their sines. What lies behind the heads in a row is copied. y may be x.
  virtual void Rotate(const Rotation& rotation, const Tensor& x, const Tensor& positions,
                      const Tensor& table, const Tensor& y) = 0;
  // y[batch, time, query_width] from qkv[batch, time, packed_width] (queries, then keys, then
  // values; the widths are Attention's). The time x time matrix is never stored: log_sum_exp
  // [batch, heads, time] lets backward make it again in tiles (Dao et al., FlashAttention, 2022).
  // The gradient of a key or value is one sum over the heads of its group in order, in fp32, each
  // with its queries from the last to the first.
  virtual void AttentionForward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                                const Tensor& log_sum_exp) = 0;
  virtual void AttentionBackward(const Attention& attention, const Tensor& qkv, const Tensor& y,
                                 const Tensor& log_sum_exp, const Tensor& dy,
                                 const Tensor& dqkv) = 0;
  // Attention of further tokens to a sequence whose keys and values are kept, for evaluation: qkv
  // [1, new, packed_width] has the tokens at positions before, before + 1, ...; the first before +
  // new rows of keys [rows, 2 * key_width] have the keys, then the values, of all tokens up to the
  // last of these. y [1, new, query_width] has the bits of these rows of AttentionForward over the
  // whole sequence. Without dropout.
  virtual void AttentionOfFurtherTokens(const Attention& attention, int64_t before,
                                        const Tensor& qkv, const Tensor& keys, const Tensor& y) = 0;
  // AttentionForward and AttentionBackward for samples whose tokens are cut into `leaves` leaves,
  // more than one, with rows in the order of core/base/token_order.h: qkv [leaves * batch, leaf
  // time, packed_width], y likewise, log_sum_exp [leaves * batch, heads, leaf time]. What leaves
  // give each other is added along the tree of core/base/sum_tree.h: for each query (largest logit,
  // sum of exponentials, unnormalised output) and the query's gradient over leaves of keys,
  // gradients of keys and values over leaves of queries. The heads of a group are added before the
  // tree, in order, in fp32. The nodes of gradients, leaves too, are rounded to the dtype of dqkv.
  // Dropout's element of a query and a key is ((b * total_heads + h) * time + i) * time + j, where
  // i and j are leaf * leaf time + place in the leaf.
  virtual void AttentionForwardByTokenLeaves(const Attention& attention, int64_t leaves,
                                             const Tensor& qkv, const Tensor& y,
                                             const Tensor& log_sum_exp) = 0;
  virtual void AttentionBackwardByTokenLeaves(const Attention& attention, int64_t leaves,
                                              const Tensor& qkv, const Tensor& y,
                                              const Tensor& log_sum_exp, const Tensor& dy,
                                              const Tensor& dqkv) = 0;

  // A part of the same, for ranks that divide the leaves: the queries of some leaves meet the keys
  // of others, or of the same. queries: packed projections as above, of which the first columns are
  // read. keys [key leaves * batch, leaf time, 2 * width of all keys]: keys, then values.
  //
  // Writes the triples of the queries, as one node of the tree over key leaves; where a query sees
  // none of the keys, (the lowest float, 0, 0).
  virtual void AttentionOfPart(const Attention& attention, const AttentionPart& part,
                               const Tensor& queries, const Tensor& keys,
                               const AttentionSums& to) = 0;
  // to = the sum of two nodes of the tree over key leaves, `more` being the right one.
  virtual void AddAttention(const Attention& attention, const AttentionSums& more,
                            const AttentionSums& to) = 0;
  // y and log_sum_exp from the sum over all leaves of keys, whose outputs are used up.
  virtual void FinishAttention(const Attention& attention, const AttentionSums& sums,
                               const Tensor& y, const Tensor& log_sum_exp) = 0;
  // Writes the gradients that pass between these queries and keys: into the first columns of
  // dqueries [query leaves * batch, leaf time, ...] one node of the tree over key leaves, into
  // dkeys, a tensor like keys, one node of the trees over query leaves; -0.0 where no query sees a
  // key.
  virtual void AttentionOfPartBackward(const Attention& attention, const AttentionPart& part,
                                       const Tensor& queries, const Tensor& keys, const Tensor& y,
                                       const Tensor& log_sum_exp, const Tensor& dy,
                                       const Tensor& dqueries, const Tensor& dkeys) = 0;

  // --- mixtures of experts --------------------------------------------------------------------
  // The experts of each row of logits[rows, experts] and their weights: chosen[rows, k] (i32), the
  // highest score first, and weights[rows, k] (f32). `bias` (f32 [experts]; undefined: none) is
  // added to the scores for the choice alone.
  virtual void Route(const Routing& routing, const Tensor& logits, const Tensor& bias,
                     const Tensor& chosen, const Tensor& weights) = 0;
  // dlogits from the gradient of the weights. `balance` (f32 [experts]; undefined: none) is the
  // gradient of each row's normalised scores, which sum to 1, as an auxiliary loss has it. The
  // choice itself has no gradient.
  virtual void RouteBackward(const Routing& routing, const Tensor& logits, const Tensor& chosen,
                             const Tensor& dweights, const Tensor& balance,
                             const Tensor& dlogits) = 0;
  // sums[rows, width] = the rows of x [any, width] at places[rows, k] (i32; negative: nothing),
  // times weights[rows, k] (f32; undefined: 1), added in the order of k in fp32, + residual
  // [rows, width] (undefined: none). Its inverse, rows of x from sums, is Embedding.
  virtual void CombineRows(const Tensor& x, const Tensor& places, const Tensor& weights,
                           const Tensor& residual, const Tensor& sums) = 0;
  // Writes the rows of dx that `places` names, which are different ones, and dweights[rows, k]
  // (f32), 0 where the place is negative.
  virtual void CombineRowsBackward(const Tensor& dsums, const Tensor& x, const Tensor& places,
                                   const Tensor& weights, const Tensor& dx,
                                   const Tensor& dweights) = 0;

  // --- loss -----------------------------------------------------------------------------------
  // The first `classes` columns of logits[rows, columns] are classes. Further columns are padding:
  // they take no part and get no gradient.
  //
  // Cross entropy of the softmax over classes against targets[rows] (i32; negative: ignored):
  // losses[rows] (f32, 0 where ignored), and dlogits = factor * (softmax - one_hot), in place of
  // the logits if the same tensor is given; undefined: not computed.
  virtual void SoftmaxCrossEntropy(const Tensor& logits, int64_t classes, const Tensor& targets,
                                   float factor, const Tensor& losses, const Tensor& dlogits) = 0;
  // How many of the rows have their largest logit, the first of equal ones, at the target. Waits
  // for the device.
  virtual int64_t CountCorrect(const Tensor& logits, int64_t classes, const Tensor& targets) = 0;

  // Cross entropy whose classes are split over ranks: column c of the logits is class
  // classes.first + c, for c below classes.count; further columns are padding. Three steps, between
  // which ranks reduce [rows] numbers each:
  // The largest logit, and the first class that has it (i32; undefined: not wanted). Without any
  // classes, the lowest float and the largest integer.
  virtual void LargestLogits(const Tensor& logits, const Range& classes, const Tensor& largest,
                             const Tensor& where) = 0;
  // From the largest of all ranks: the sum of exp(logit - largest), and largest - the target's
  // logit or 0 if another rank has it.
  virtual void SumExponentials(const Tensor& logits, const Range& classes, const Tensor& largest,
                               const Tensor& targets, const Tensor& sums, const Tensor& gaps) = 0;
  // The same; each sum is a tree over leaves of `leaf_classes` classes, the last perhaps of fewer.
  virtual void SumExponentialsByLeaves(const Tensor& logits, const Range& classes,
                                       int64_t leaf_classes, const Tensor& largest,
                                       const Tensor& targets, const Tensor& sums,
                                       const Tensor& gaps);
  // From the sums and gaps of all ranks: as SoftmaxCrossEntropy.
  virtual void SplitCrossEntropy(const Tensor& logits, const Range& classes, const Tensor& largest,
                                 const Tensor& sums, const Tensor& gaps, const Tensor& targets,
                                 float factor, const Tensor& losses, const Tensor& dlogits) = 0;

  // --- reductions to the host; wait for the device ---------------------------------------------
  // The exact sum of fp32 tensors.
  virtual ExactSum SumOfAll(absl::Span<const Tensor> tensors) = 0;
  ExactSum Sum(const Tensor& x) { return SumOfAll({x}); }
  // The largest magnitude; infinity if any element is infinite or NaN.
  virtual float MaxMagnitude(const Tensor& x) = 0;
  // Requires scale >= MaxMagnitude(x), finite and positive.
  virtual SquareSum SumOfSquares(const Tensor& x, float scale) = 0;
  // MaxMagnitude and SumOfSquares of all tensors together, which wait for a device once.
  virtual float MaxMagnitudeOfAll(absl::Span<const Tensor> tensors) {
    float largest = 0;
    for (const Tensor& x : tensors) largest = std::max(largest, MaxMagnitude(x));
    return largest;
  }
  virtual SquareSum SumOfSquaresOfAll(absl::Span<const Tensor> tensors, float scale) {
    SquareSum sum;
    for (const Tensor& x : tensors) sum.Add(SumOfSquares(x, scale));
    return sum;
  }

  // --- optimizers, in place -------------------------------------------------------------------
  // One of the tensors that a step updates; all of its tensors have the same number of elements,
  // which may be 0.
  struct OptimizedTensor {
    Tensor gradient;   // of any floating dtype
    Tensor parameter;  // the fp32 master
    Tensor copy = {};  // the parameter in the compute dtype, written anew; or undefined
    // Those that StateNames(optimizer) names, in that order; others are not looked at.
    std::array<Tensor, kMostOptimizerStates> states = {};
    bool decays = true;  // whether weight decay applies
  };
  // One step of an element-wise optimizer for all tensors together: a device is given as few
  // launches as there can be.
  virtual void UpdateParameters(const OptimizerRule& optimizer, const OptimizerStep& step,
                                absl::Span<const OptimizedTensor> tensors) = 0;

 protected:
  // The body of a kernel that this backend lacks. Throws Unimplemented, with the kernel's name.
  [[noreturn]] void Lack(const char* kernel = __builtin_FUNCTION());
};

}  // namespace lockstep
