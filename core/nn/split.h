#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/autograd/variable.h"
#include "core/nn/parameter.h"
#include "core/nn/pass.h"
#include "core/tensor/slice.h"

namespace lockstep {

// How tensor parallelism splits a layer.
enum class SplitStyle {
  kReplicated,      // not at all
  kColumn,          // output features; every member gets those of its own (Megatron's column)
  kColumnGathered,  // output features; every member gets all of them
  kRow,             // input features, of which every member has its own; outputs are summed
  kVocabulary,      // the rows of an embedding's table, or the classes of the logits
};

// Whether a pattern, whose stars match any characters, is the name of a layer, or of a module
// around it.
bool MatchesLayer(const std::string& pattern, const std::string& layer_name);

// Layers that `pattern` matches are split by `style`. Layers that the style means nothing to stay
// whole: a normalisation behind a row-split convolution, for one.
struct SplitRule {
  std::string pattern;
  SplitStyle style;
};

// The first rule that names the layer or a module around it; none: replicated.
SplitStyle StyleOf(const std::vector<SplitRule>& plan, const std::string& layer_name);

// What a split layer adds up over the group for each sample, in elements of its activations: a row
// its output in forward, a column its input's gradient in backward, and the loss three fp32 numbers
// for each row of split logits.
struct SplitTraffic {
  std::string layer;
  int64_t forward = 0;
  int64_t backward = 0;
  int64_t logit_rows = 0;
  // The operation that the layer is a part of (recompute.h), and the module that runs it; empty:
  // none.
  struct PartOf {
    std::string kind = {}, module = {};
  };
  PartOf operation = {};
};

// The group of ranks that computes a model's split layers together, as one of its members sees it:
// what layers need to know of others, and no more. Moves are differentiable, and called by all
// members in the same order. They throw StatusException when a peer fails.
//
// Where the group splits the sequence (Korthikanti et al., "Reducing Activation Recomputation",
// 2022), what lies between split layers is split as well: of a micro-batch's token leaves each
// member has one range, as rows [own tokens, width].
class SplitGroup : public GradientGroup {
 public:
  virtual int index() const = 0;
  virtual bool splits_sequence() const = 0;

  // The way into a column-split layer: the value itself, whose gradient is the sum of all members'.
  // A group that splits the sequence gathers the tokens, [own tokens, width] to [leaves x samples,
  // tokens of a leaf, width], and sums and scatters the gradient. Every member may have several
  // rows a token, [own tokens x n, width]: then [leaves x samples, tokens of a leaf x n, width].
  virtual Variable Enter(Pass& pass, const Variable& x) = 0;

  // The way out of a row-split layer: the sum of all members' values, whose gradient is
  // everybody's. A group that splits the sequence sums and scatters the tokens, and gathers the
  // gradient. Uses x up.
  virtual Variable Leave(Pass& pass, Variable x) = 0;

  // Columns of all members side by side, x [rows, widths[index()]] to [rows, all widths]; the
  // gradient of the own columns goes back.
  virtual Variable GatherColumns(Pass& pass, const Variable& x,
                                 const std::vector<int64_t>& widths) = 0;

  // The numbers of all members, one member's behind those of the one before. Called by all members
  // in the same order, with as many.
  virtual std::vector<int64_t> GatherNumbers(const std::vector<int64_t>& numbers) const = 0;

  // In place, without a gradient: the statistics of a cross entropy over split classes.
  enum class Reduction { kSum, kMax, kMin };
  virtual void Reduce(const Tensor& x, Reduction reduction) = 0;
};

// The rows of a micro-batch that lie between split layers here: those of all token leaves that the
// rank holds, or of a member's range of them where `sequence`, which may be null, splits these.
Range OwnRows(const SplitGroup* sequence, const TokenOrder& tokens);

// How the features of one layer are cut (docs/numerics.md, "Feature leaves"): into leaves, of which
// this rank computes all, or its range of consecutive ones. Sums of a range are a node of the tree
// over leaves, with which the group goes on.
struct FeatureCut {
  SplitStyle style = SplitStyle::kReplicated;
  int features = 1;             // leaves, as far as Module::CutFeatures has said so
  SplitGroup* group = nullptr;  // null: all leaves are here

  bool is_cut() const { return style != SplitStyle::kReplicated; }
  int all_leaves() const;
  int leaves() const;      // of this rank
  int first_leaf() const;  // of this rank

  // What leaves [first, first + count) have of `extent` features; consecutive leaves differ by one
  // feature at most.
  Range FeaturesAt(int64_t extent, int first, int count) const;
  Range Own(int64_t extent) const { return FeaturesAt(extent, first_leaf(), leaves()); }
  // The features of each leaf here, among this rank's; none where there is one leaf.
  FeatureLeaves Leaves(int64_t extent) const;

  Variable Enter(Pass& pass, const Variable& x) const {
    return group == nullptr ? x : group->Enter(pass, x);
  }
  Variable Leave(Pass& pass, Variable x) const {
    return group == nullptr ? x : group->Leave(pass, std::move(x));
  }
};

// Where `ranges` lie among the elements of `own`, one range behind the other. Each lies in one.
std::vector<Range> PlacesIn(const Slice& own, const std::vector<Range>& ranges);

}  // namespace lockstep
