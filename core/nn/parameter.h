#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/leaf.h"
#include "core/tensor/shape.h"
#include "core/tensor/slice.h"

namespace lockstep {

// Ranks that each have a part of the gradients of some parameters, as one of them sees them.
class GradientGroup {
 public:
  virtual ~GradientGroup() = default;

  virtual int size() const = 0;
  // In place: sums what each member has of the gradient of a parameter that all members hold, from
  // its own features or its own tokens. Called by all members in the same order. Throws
  // StatusException when a peer fails.
  virtual void SumGradient(const Tensor& gradient) = 0;
};

// How a parameter starts. The numbers belong to (seed, parameter name, element of the unsharded
// tensor), so that a shard is made without the whole (contract 4 of the design).
struct Init {
  enum class Kind { kConstant, kNormal, kUniform };
  Kind kind = Kind::kConstant;
  float value = 0;  // the constant, the standard deviation, or the bound of a symmetric range

  static Init Constant(float value) { return {Kind::kConstant, value}; }
  static Init Normal(float stddev) { return {Kind::kNormal, stddev}; }
  static Init Uniform(float bound) { return {Kind::kUniform, bound}; }
};

// A trained tensor of a model, with its place in the module tree. Made without memory: a strategy
// decides which elements of it a rank holds, and where.
class Parameter : public Leaf {
 public:
  Parameter(std::string full_name, const Shape& full_shape, Init initial)
      : name(std::move(full_name)), shape(full_shape), init(initial) {}

  std::string name;  // "blocks.0.attention.qkv.weight"
  Shape shape;       // of the whole tensor
  Init init;

  // The slice that this rank holds where tensor parallelism splits it; none: all of it.
  std::optional<Slice> slice;
  // Entries behind the parameter, or behind its slice, along the first dimension. They are no part
  // of it: they start at 0, get gradients of 0, and no checkpoint knows them.
  int64_t padding = 0;

  // Ranks that each have all of the parameter, but only a part of what its gradient is the sum of
  // (docs/numerics.md, "Trees nest"): what their features contribute, and what their
  // tokens do, first over ranks that divide what each of the last group has. Such parts are summed
  // once a shard (CompleteGradient, core/run/strategy/local_model.h). Null: this rank has all of
  // it.
  GradientGroup* features_over = nullptr;
  GradientGroup* tokens_over = nullptr;
  GradientGroup* context_over = nullptr;
  // Whether the parameter has the rows of all experts, which ranks may divide (ExpertGroup). Then
  // ranks whose tokens come to the experts here contribute to the gradient: the tokens of
  // `token_sources` of them are leaves of one sum, and each of `shard_sources` such sums is kept
  // apart, with its own accumulators, until its rank's shards have ended.
  bool is_of_experts = false;
  int token_sources = 1;
  int shard_sources = 1;
  // Feature leaves here that contribute to the gradient, each in an accumulator of its own until
  // the shard ends. 1: into the gradient itself.
  int feature_leaves = 1;

  // Shapes of the slice, and of what is held in memory: with the padding.
  Shape slice_shape() const { return slice ? slice->ShapeOf(shape) : shape; }
  Shape held_shape() const {
    return padding > 0 ? slice_shape().With(0, slice_shape()[0] + padding) : slice_shape();
  }

  // Another parameter whose value this one shares (a tied head). Each keeps a gradient of its own,
  // which the strategy adds up once a step: so the sum over micro-batches has the same order
  // whether both uses run on one rank or on the two ends of a pipeline.
  Parameter* tied_to = nullptr;

  // Weight decay is for matrices: biases and normalisations go without, as nanoGPT has it.
  bool decays() const { return shape.rank() >= 2; }
};

// Fills `values`, all that is held of the parameter or a part of it that starts at its element
// `first`, with initial values: for a tied parameter, those of the one that it is tied to, so that
// the far end of a pipeline makes the same without it. They are drawn in fp32, and rounded where
// `values` has less.
void Initialize(const Parameter& parameter, uint64_t seed, int64_t first, Kernels& kernels,
                const Tensor& values);

}  // namespace lockstep
