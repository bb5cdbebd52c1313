// Every differentiable operation, with operands small enough for central differences: the table
// that tests of the operations and of the tape walk through.

#pragma once

#include <functional>
#include <ostream>
#include <string>
#include <vector>

#include "core/autograd/operations.h"
#include "core/autograd/testing/arrays.h"

namespace lockstep {

using Arrays = std::vector<reference::Array>;

struct OperationCase {
  std::string name;           // letters and digits
  std::vector<Shape> inputs;  // shapes of the variables whose gradients are compared
  std::vector<Shape> leaves;
  std::function<Variable(Tape& tape, const std::vector<Variable>& inputs,
                         const std::vector<Leaf*>& leaves)>
      run;
  // The same in double.
  std::function<reference::Array(const Arrays& inputs, const Arrays& leaves)> formula;

  friend void PrintTo(const OperationCase& c, std::ostream* out) { *out << c.name; }
};

std::vector<OperationCase> OperationCases();

// Random operands of a case, and a gradient of its output. Another stream gives other numbers.
struct Operands {
  Arrays inputs, leaves;
  reference::Array dy;
};
Operands RandomOperands(const OperationCase& operation, uint64_t stream);

// Output and gradients of one forward and backward. A gradient that did not come is undefined.
struct Gradients {
  reference::Array output;
  Arrays inputs, leaves;
};

struct RunOptions {
  Tape::Extent extent = Tape::Extent::kAll;  // kInputsOnly: RunDeferred follows
  std::vector<bool> constant_inputs = {};    // those that want no gradient; none by default
};
// Runs forward and backward once. `leaves` hold the operands' values, keep their gradients, and may
// be frozen.
Gradients RunOperation(const OperationCase& operation, const Operands& operands, Kernels& kernels,
                       std::vector<Leaf>& leaves, const RunOptions& options = {});

std::vector<Leaf> MakeLeaves(const Operands& operands, Kernels& kernels);

}  // namespace lockstep
