#include "core/autograd/expert_weights.h"

namespace lockstep {

LeafRows WeightRows(const Tensor& w, const ExpertRanges& rows, int64_t expert) {
  const int64_t of_expert = w.shape()[0] / rows.experts();
  return Range{.first = expert * of_expert, .count = of_expert};
}

ExpertGradient::ExpertGradient(Kernels& kernels, const Destinations& all, const ExpertRanges& rows,
                               int64_t expert)
    : own_(kernels, all[0], all[0].defined() ? WeightRows(all[0], rows, expert) : LeafRows()) {
  if (!all[0].defined() || all.write == Write::kOverwrite) return;
  if (own_.tensor().same_storage(all[0])) return;
  kernels.Copy(RowsOf(kernels, all[0], WeightRows(all[0], rows, expert)), own_.tensor());
}

void AddNothing(Kernels& kernels, const Destinations& all, const ExpertRanges& rows,
                int64_t expert) {
  if (!all[0].defined() || all.write == Write::kAccumulate) return;
  const ExpertGradient own(kernels, all, rows, expert);
  kernels.Fill(own.tensor(), -0.0f);
  own.Put();
}

void FillUnused(Kernels& kernels, const ExpertRanges& rows, const Tensor& x) {
  if (rows.used() == rows.dispatched()) return;
  const RowsToFill unused(kernels, x,
                          Range{.first = rows.used(), .count = rows.dispatched() - rows.used()});
  kernels.Fill(unused.tensor(), 0);
  unused.Put();
}

}  // namespace lockstep
