// For operations of experts (experts.h, expert_products.h): the rows of one expert, in a dispatched
// tensor, in a weight that has the rows of all experts, and in that weight's gradient.

#pragma once

#include <cstdint>
#include <optional>
#include <utility>

#include "core/autograd/experts.h"
#include "core/autograd/weight_gradients.h"

namespace lockstep {

// Calls run(expert, rows) for each expert that has dispatched rows, of all leaves or of one. Calls
// none(expert) for the others.
template <typename Run, typename None>
void ForExperts(const ExpertRanges& rows, std::optional<int64_t> leaf, Run&& run, None&& none) {
  for (int64_t expert = 0; expert < rows.experts(); ++expert) {
    const Range own = leaf ? rows.Of(expert, *leaf) : rows.Of(expert);
    if (own.count > 0) {
      run(expert, own);
    } else {
      none(expert);
    }
  }
}
template <typename Run>
void ForExperts(const ExpertRanges& rows, Run&& run) {
  ForExperts(rows, std::nullopt, std::forward<Run>(run), [](int64_t) {});
}

// One expert's rows of a weight that has those of all experts.
LeafRows WeightRows(const Tensor& w, const ExpertRanges& rows, int64_t expert);

// One expert's rows of a weight's gradient, for a kernel to write or to add to.
class ExpertGradient {
 public:
  // The gradient, all[0], may be undefined: then so are the rows.
  ExpertGradient(Kernels& kernels, const Destinations& all, const ExpertRanges& rows,
                 int64_t expert);
  const Tensor& tensor() const { return own_.tensor(); }
  void Put() const { own_.Put(); }

 private:
  RowsToFill own_;
};

// The gradient of an expert without rows: -0.0, which changes no sum.
void AddNothing(Kernels& kernels, const Destinations& all, const ExpertRanges& rows,
                int64_t expert);

// Fills the rows of a dispatched tensor that are not in use with zeros.
void FillUnused(Kernels& kernels, const ExpertRanges& rows, const Tensor& x);

}  // namespace lockstep
