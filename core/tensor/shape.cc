#include "core/tensor/shape.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep {

int64_t Shape::elements() const {
  int64_t product = 1;
  for (int64_t extent : dims()) product *= extent;
  return product;
}

Shape Shape::With(int dim, int64_t extent) const {
  Shape changed = *this;
  changed.dims_[dim < 0 ? dim + rank() : dim] = extent;
  return changed;
}

std::string Shape::ToString() const { return absl::StrCat("[", absl::StrJoin(dims(), ", "), "]"); }

}  // namespace lockstep
