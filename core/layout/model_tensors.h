#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/layout/flat_layout.h"
#include "core/nn/model.h"
#include "core/tensor/dtype.h"
#include "core/tensor/shape.h"

namespace lockstep {

// A parameter or a running statistic of a model, as data.
struct ModelTensor {
  std::string name;
  Shape shape;        // of the whole tensor
  int64_t block = 0;  // of the model
  bool is_frozen = false;
  // The parameter that owns the value, by its index in the list; none: this tensor itself.
  std::optional<size_t> tied_to = {};
  // The dtype of a running statistic. None: the tensor is a parameter.
  std::optional<DType> statistic = {};
  // Sums in fp32 that a rank keeps for each element of a running statistic, to update it and
  // others.
  int64_t statistic_sums = 0;
  // By rank along tp; where ranks along ep divide the tensor, for each of these one list behind the
  // other.
  std::vector<TensorSplit> splits = {};
  // Whether the tensor has the rows of all experts, which ranks along ep divide.
  bool is_of_experts = false;
};

// The tensors of a model, which needs no memory, for one rank along tp: first Model::Parameters(),
// in their order, then what Model::Statistics() keep. A model that was split is described as it is.
std::vector<ModelTensor> TensorsOf(const Model& model);

// The tensors of a model without memory that `tp` ranks split by its plan, and whose experts `ep`
// ranks divide. Requires Model::CheckSplit(tp), and that `ep` divides Model::experts. Where there
// are several ranks, leaves the model with groups that are gone: who wants to run it calls
// Model::Split and Model::DivideExperts before all else.
std::vector<ModelTensor> TensorsOf(Model& model, int tp, int ep = 1);

}  // namespace lockstep
