#include "core/autograd/testing/operation_cases.h"

#include <iterator>  // std::ssize
#include <utility>

#include "core/autograd/testing/expert_cases.h"

namespace lockstep {
namespace {

using reference::Array;
using Inputs = const std::vector<Variable>&;
using Leaves = const std::vector<Leaf*>&;

constexpr float kEpsilon = 1e-5f;
constexpr Dropout kDropout = {.probability = 0.4f, .key = 11, .counter = (3ull << 32) | 2};

void AddElementwise(std::vector<OperationCase>& cases) {
  cases.push_back({"Add",
                   {{3, 5}, {3, 5}},
                   {},
                   [](Tape& tape, Inputs x, Leaves) { return Add(tape, x[0], x[1]); },
                   [](const Arrays& x, const Arrays&) { return reference::Add(x[0], x[1]); }});
  cases.push_back({"AddToItself",
                   {{3, 5}},
                   {},
                   [](Tape& tape, Inputs x, Leaves) { return Add(tape, x[0], x[0]); },
                   [](const Arrays& x, const Arrays&) { return reference::Scale(x[0], 2); }});
  cases.push_back({"Relu",
                   {{4, 7}},
                   {},
                   [](Tape& tape, Inputs x, Leaves) { return Relu(tape, x[0]); },
                   [](const Arrays& x, const Arrays&) { return reference::Relu(x[0]); }});
  cases.push_back({"Gelu",
                   {{4, 7}},
                   {},
                   [](Tape& tape, Inputs x, Leaves) { return Gelu(tape, x[0]); },
                   [](const Arrays& x, const Arrays&) { return reference::Gelu(x[0]); }});
  cases.push_back({"SwiGlu",
                   {{2, 3, 10}},
                   {},
                   [](Tape& tape, Inputs x, Leaves) { return SwiGlu(tape, x[0]); },
                   [](const Arrays& x, const Arrays&) { return reference::SwiGlu(x[0]); }});
  cases.push_back(
      {"Dropout",
       {{4, 7}},
       {},
       [](Tape& tape, Inputs x, Leaves) { return ApplyDropout(tape, kDropout, x[0]); },
       [](const Arrays& x, const Arrays&) { return reference::ApplyDropout(kDropout, 0, x[0]); }});
  cases.push_back(
      {"DropoutOfAPart",
       {{4, 7}},
       {},
       [](Tape& tape, Inputs x, Leaves) { return ApplyDropout(tape, kDropout, x[0], 28); },
       [](const Arrays& x, const Arrays&) { return reference::ApplyDropout(kDropout, 28, x[0]); }});
  // Columns 2 to 5 of 9.
  cases.push_back({"DropoutOfColumns",
                   {{6, 4}},
                   {},
                   [](Tape& tape, Inputs x, Leaves) {
                     return ApplyDropoutToColumns(tape, kDropout, x[0], 2, 9);
                   },
                   [](const Arrays& x, const Arrays&) {
                     Array whole(Shape{6, 9}), part(Shape{6, 4});
                     for (int64_t i = 0; i < 24; ++i) whole.value[i / 4 * 9 + 2 + i % 4] = x[0][i];
                     whole = reference::ApplyDropout(kDropout, 0, whole);
                     for (int64_t i = 0; i < 24; ++i) part.value[i] = whole[i / 4 * 9 + 2 + i % 4];
                     return part;
                   }});
  cases.push_back({"Scale",
                   {{4, 7}},
                   {},
                   [](Tape& tape, Inputs x, Leaves) { return Scale(tape, x[0], 1.5f); },
                   [](const Arrays& x, const Arrays&) { return reference::Scale(x[0], 1.5); }});
  cases.push_back({"Reshape",
                   {{2, 3, 4}},
                   {},
                   [](Tape& tape, Inputs x, Leaves) {
                     return Reshape(tape, x[0], {6, 4});
                   },
                   [](const Arrays& x, const Arrays&) {
                     return Array(Shape{6, 4}, x[0].value);
                   }});
}

void AddLinear(std::vector<OperationCase>& cases) {
  const Shape x = {2, 3, 5}, w = {4, 5}, bias = {4}, residual = {2, 3, 4};
  const auto formula = [](const Array& in, const Arrays& leaves, const Array& added) {
    const Array no_bias;
    Array y = reference::Linear(in, leaves[0], leaves.size() > 1 ? leaves[1] : no_bias, added);
    y.shape = in.shape.With(-1, leaves[0].shape[0]);
    return y;
  };
  const auto run = [](Tape& tape, const Variable& in, Leaves leaves, const Variable* added) {
    return Linear(tape, in, *leaves[0], leaves.size() > 1 ? leaves[1] : nullptr, added);
  };
  for (const auto& [suffix, leaves] :
       {std::pair<std::string, std::vector<Shape>>{"", {w}}, {"WithBias", {w, bias}}}) {
    cases.push_back(
        {"Linear" + suffix,
         {x},
         leaves,
         [run](Tape& tape, Inputs in, Leaves l) { return run(tape, in[0], l, nullptr); },
         [formula](const Arrays& in, const Arrays& l) { return formula(in[0], l, Array()); }});
    cases.push_back(
        {"Linear" + suffix + "AndResidual",
         {x, residual},
         leaves,
         [run](Tape& tape, Inputs in, Leaves l) { return run(tape, in[0], l, &in[1]); },
         [formula](const Arrays& in, const Arrays& l) { return formula(in[0], l, in[1]); }});
  }
  cases.push_back(
      {"LinearAddedToItsInput",
       {{6, 5}},
       {{5, 5}, {5}},
       [run](Tape& tape, Inputs in, Leaves l) { return run(tape, in[0], l, &in[0]); },
       [formula](const Arrays& in, const Arrays& l) { return formula(in[0], l, in[0]); }});
}

Array BiasFormula(const Array& x, const Array* bias, const Array* residual) {
  Array y = x;
  for (int64_t i = 0; i < y.elements(); ++i) {
    if (bias != nullptr) y.value[i] += (*bias)[i % bias->elements()];
    if (residual != nullptr) y.value[i] += (*residual)[i];
  }
  return y;
}

// Products that go to all columns of a sum, or to the last four of seven.
void AddProducts(std::vector<OperationCase>& cases) {
  for (const int64_t width : {4, 7}) {
    cases.push_back({"AddProductTo" + std::to_string(width) + "Columns",
                     {{2, 3, width}, {2, 3, 5}},
                     {{4, 5}},
                     [width](Tape& tape, Inputs x, Leaves leaves) {
                       return AddProduct(tape, x[0], x[1], *leaves[0], width - 4);
                     },
                     [width](const Arrays& x, const Arrays& w) {
                       Array sum = x[0];
                       for (int64_t row = 0; row < 6; ++row) {
                         for (int64_t o = 0; o < 4; ++o) {
                           for (int64_t i = 0; i < 5; ++i) {
                             sum.value[row * width + width - 4 + o] +=
                                 x[1][row * 5 + i] * w[0][o * 5 + i];
                           }
                         }
                       }
                       return sum;
                     }});
  }
}

void AddGeluLinear(std::vector<OperationCase>& cases) {
  cases.push_back({"GeluLinear",
                   {{2, 3, 9}, {2, 3, 4}},
                   {{4, 9}, {4}},
                   [](Tape& tape, Inputs x, Leaves leaves) {
                     return GeluLinear(tape, x[0], *leaves[0], leaves[1], &x[1]);
                   },
                   [](const Arrays& x, const Arrays& w) {
                     const Array gelu = reference::Gelu(x[0]);
                     Array sum = x[1];
                     for (int64_t at = 0; at < 24; ++at) {
                       sum.value[at] += w[1][at % 4];
                       for (int64_t i = 0; i < 9; ++i) {
                         sum.value[at] += gelu[at / 4 * 9 + i] * w[0][at % 4 * 9 + i];
                       }
                     }
                     return sum;
                   }});
}

void AddSwiGluLinear(std::vector<OperationCase>& cases) {
  cases.push_back({"SwiGluLinear",
                   {{2, 3, 18}, {2, 3, 4}},
                   {{4, 9}},
                   [](Tape& tape, Inputs x, Leaves leaves) {
                     return SwiGluLinear(tape, x[0], *leaves[0], &x[1]);
                   },
                   [](const Arrays& x, const Arrays& w) {
                     Array y = reference::Linear(reference::SwiGlu(x[0]), w[0], Array(), x[1]);
                     y.shape = x[1].shape;
                     return y;
                   }});
  // Its sum over hidden features is a tree over two leaves.
  cases.push_back({"SwiGluLinearByLeaves",
                   {{2, 3, 18}},
                   {{4, 9}},
                   [](Tape& tape, Inputs x, Leaves leaves) {
                     return SwiGluLinear(tape, x[0], *leaves[0], nullptr, {{{0, 5}}, {{5, 4}}});
                   },
                   [](const Arrays& x, const Arrays& w) {
                     Array y = reference::Linear(reference::SwiGlu(x[0]), w[0], Array(), Array());
                     y.shape = {2, 3, 4};
                     return y;
                   }});
}

void AddBiases(std::vector<OperationCase>& cases) {
  const Shape x = {2, 3, 5};
  cases.push_back(
      {"AddBias",
       {x},
       {{5}},
       [](Tape& tape, Inputs in, Leaves l) { return AddBias(tape, in[0], l[0], nullptr); },
       [](const Arrays& in, const Arrays& l) { return BiasFormula(in[0], &l[0], nullptr); }});
  cases.push_back(
      {"AddBiasAndResidual",
       {x, x},
       {{5}},
       [](Tape& tape, Inputs in, Leaves l) { return AddBias(tape, in[0], l[0], &in[1]); },
       [](const Arrays& in, const Arrays& l) { return BiasFormula(in[0], &l[0], &in[1]); }});
  cases.push_back(
      {"AddNoBiasButResidual",
       {x, x},
       {},
       [](Tape& tape, Inputs in, Leaves) { return AddBias(tape, in[0], nullptr, &in[1]); },
       [](const Arrays& in, const Arrays&) { return BiasFormula(in[0], nullptr, &in[1]); }});
}

void AddGeluMlp(std::vector<OperationCase>& cases) {
  const Shape x = {2, 3, 4};
  const std::vector<Shape> leaves = {{7, 4}, {7}, {4, 7}, {4}};
  const auto formula = [](const Array& in, const Arrays& l, const Array& added) {
    const Array no_bias;
    Array y =
        reference::GeluMlpForward(in, l[0], l[1], l[2], l.size() > 3 ? l[3] : no_bias, added).y;
    y.shape = in.shape;
    return y;
  };
  const auto run = [](Tape& tape, const Variable& in, Leaves l, const Variable* added) {
    return ApplyGeluMlp(tape, in, {*l[0], *l[1], *l[2], l.size() > 3 ? l[3] : nullptr}, added);
  };
  cases.push_back(
      {"GeluMlp",
       {x},
       leaves,
       [run](Tape& tape, Inputs in, Leaves l) { return run(tape, in[0], l, nullptr); },
       [formula](const Arrays& in, const Arrays& l) { return formula(in[0], l, Array()); }});
  cases.push_back(
      {"GeluMlpWithoutDownBias",
       {x},
       {leaves.begin(), leaves.begin() + 3},
       [run](Tape& tape, Inputs in, Leaves l) { return run(tape, in[0], l, nullptr); },
       [formula](const Arrays& in, const Arrays& l) { return formula(in[0], l, Array()); }});
  cases.push_back(
      {"GeluMlpAndResidual",
       {x, x},
       leaves,
       [run](Tape& tape, Inputs in, Leaves l) { return run(tape, in[0], l, &in[1]); },
       [formula](const Arrays& in, const Arrays& l) { return formula(in[0], l, in[1]); }});
  cases.push_back(
      {"GeluMlpAddedToItsInput",
       {x},
       leaves,
       [run](Tape& tape, Inputs in, Leaves l) { return run(tape, in[0], l, &in[0]); },
       [formula](const Arrays& in, const Arrays& l) { return formula(in[0], l, in[0]); }});
}

void AddConvolution(std::vector<OperationCase>& cases) {
  const Shape x = {2, 5, 4, 3};
  const std::pair<std::string, Window> windows[] = {
      {"Convolution3x3", {3, 1, 1}},
      {"Convolution3x3Stride2", {3, 2, 1}},
      {"Convolution1x1Stride2", {1, 2, 0}},
      {"Convolution7x7Stride2", {7, 2, 3}},
  };
  for (const auto& [name, window] : windows) {
    const Shape w = {4, window.kernel, window.kernel, 3};
    cases.push_back({name,
                     {x},
                     {w},
                     [window = window](Tape& tape, Inputs in, Leaves l) {
                       return Convolution(tape, in[0], *l[0], nullptr, window);
                     },
                     [window = window](const Arrays& in, const Arrays& l) {
                       return reference::Convolution(in[0], l[0], Array(), window);
                     }});
    cases.push_back({name + "WithBias",
                     {x},
                     {w, {4}},
                     [window = window](Tape& tape, Inputs in, Leaves l) {
                       return Convolution(tape, in[0], *l[0], l[1], window);
                     },
                     [window = window](const Arrays& in, const Arrays& l) {
                       return reference::Convolution(in[0], l[0], l[1], window);
                     }});
  }
  for (const Window& window : {Window{3, 2, 1}, Window{2, 2, 0}}) {
    cases.push_back(
        {"MaxPool" + std::to_string(window.kernel),
         {{2, 6, 4, 3}},
         {},
         [window](Tape& tape, Inputs in, Leaves) { return MaxPool(tape, in[0], window); },
         [window](const Arrays& in, const Arrays&) { return reference::MaxPool(in[0], window); }});
  }
  cases.push_back(
      {"GlobalAveragePool",
       {x},
       {},
       [](Tape& tape, Inputs in, Leaves) { return GlobalAveragePool(tape, in[0]); },
       [](const Arrays& in, const Arrays&) { return reference::GlobalAveragePool(in[0]); }});
  cases.push_back({"Upsample",
                   {x},
                   {},
                   [](Tape& tape, Inputs in, Leaves) { return Upsample(tape, in[0]); },
                   [](const Arrays& in, const Arrays&) { return reference::Upsample(in[0]); }});
  cases.push_back(
      {"Concatenate",
       {x, {2, 5, 4, 2}},
       {},
       [](Tape& tape, Inputs in, Leaves) { return Concatenate(tape, in[0], in[1]); },
       [](const Arrays& in, const Arrays&) { return reference::Concatenate(in[0], in[1]); }});
  cases.push_back(
      {"ConcatenateWithItself",
       {x},
       {},
       [](Tape& tape, Inputs in, Leaves) { return Concatenate(tape, in[0], in[0]); },
       [](const Arrays& in, const Arrays&) { return reference::Concatenate(in[0], in[0]); }});
}

void AddNormalization(std::vector<OperationCase>& cases) {
  const Shape x = {3, 2, 3, 4}, channels = {4};
  const auto run = [](Tape& tape, const Variable& in, Leaves l, const Variable* added,
                      Activation activation) {
    Kernels& k = tape.kernels();
    return BatchNorm(tape, in, *l[0], *l[1], added, {.epsilon = kEpsilon, .activation = activation},
                     k.Empty({4}), k.Empty({4}));
  };
  for (const auto& [name, activation] :
       {std::pair<std::string, Activation>{"BatchNorm", Activation::kNone},
        {"BatchNormRelu", Activation::kRelu}}) {
    const auto formula = [activation = activation](const Array& in, const Arrays& l,
                                                   const Array& added) {
      return reference::BatchNorm(in, l[0], l[1], added, kEpsilon, activation).y;
    };
    cases.push_back(
        {name,
         {x},
         {channels, channels},
         [run, activation = activation](Tape& tape, Inputs in, Leaves l) {
           return run(tape, in[0], l, nullptr, activation);
         },
         [formula](const Arrays& in, const Arrays& l) { return formula(in[0], l, Array()); }});
    cases.push_back(
        {name + "AndResidual",
         {x, x},
         {channels, channels},
         [run, activation = activation](Tape& tape, Inputs in, Leaves l) {
           return run(tape, in[0], l, &in[1], activation);
         },
         [formula](const Arrays& in, const Arrays& l) { return formula(in[0], l, in[1]); }});
    cases.push_back(
        {name + "AddedToItsInput",
         {x},
         {channels, channels},
         [run, activation = activation](Tape& tape, Inputs in, Leaves l) {
           return run(tape, in[0], l, &in[0], activation);
         },
         [formula](const Arrays& in, const Arrays& l) { return formula(in[0], l, in[0]); }});
  }
  const Shape sequence = {2, 3, 6}, width = {6};
  const auto layer_norm = [](const Arrays& in, const Arrays& l) {
    return reference::LayerNorm(in[0], l[0], l[1], kEpsilon).y;
  };
  cases.push_back({"LayerNorm",
                   {sequence},
                   {width, width},
                   [](Tape& tape, Inputs in, Leaves l) {
                     return LayerNorm(tape, in[0], *l[0], *l[1], kEpsilon);
                   },
                   layer_norm});
  cases.push_back(
      {"RmsNorm",
       {sequence},
       {width},
       [](Tape& tape, Inputs in, Leaves l) { return RmsNorm(tape, in[0], *l[0], kEpsilon); },
       [](const Arrays& in, const Arrays& l) {
         return reference::RmsNorm(in[0], l[0], kEpsilon).y;
       }});
  cases.push_back({"RmsNormAddedToItsInput",
                   {sequence},
                   {width},
                   [](Tape& tape, Inputs in, Leaves l) {
                     return Add(tape, in[0], RmsNorm(tape, in[0], *l[0], kEpsilon));
                   },
                   [](const Arrays& in, const Arrays& l) {
                     return reference::Add(in[0], reference::RmsNorm(in[0], l[0], kEpsilon).y);
                   }});
  // The residual path reaches the input's gradient first, and is added to within the kernel.
  cases.push_back({"LayerNormAddedToItsInput",
                   {sequence},
                   {width, width},
                   [](Tape& tape, Inputs in, Leaves l) {
                     return Add(tape, in[0], LayerNorm(tape, in[0], *l[0], *l[1], kEpsilon));
                   },
                   [layer_norm](const Arrays& in, const Arrays& l) {
                     return reference::Add(in[0], layer_norm(in, l));
                   }});
}

void AddSequences(std::vector<OperationCase>& cases) {
  const std::vector<int32_t> ids = {3, 0, 3, 6, 1, 3};
  cases.push_back({"Embedding",
                   {},
                   {{7, 4}},
                   [ids](Tape& tape, Inputs, Leaves l) {
                     return Embedding(tape, Variable(Upload(tape.kernels(), {2, 3}, ids)), *l[0]);
                   },
                   [ids](const Arrays&, const Arrays& l) {
                     Array y = reference::Embedding(ids, l[0]);
                     y.shape = {2, 3, 4};
                     return y;
                   }});
  cases.push_back(
      {"AddPositions",
       {{2, 3, 4}},
       {{5, 4}},
       [](Tape& tape, Inputs in, Leaves l) { return AddPositions(tape, in[0], *l[0]); },
       [](const Arrays& in, const Arrays& l) { return reference::AddPositions(in[0], l[0]); }});
  // Two heads of four elements, and two columns behind them.
  const std::vector<int32_t> positions = {2, 0, 4, 1, 1, 3};
  const Array table(Shape{5, 4}, {1,   1,   0,  0,    0.5, 0.9,  0.8,  0.4,  -0.4, 0.6,
                                  0.9, 0.8, -1, 0.25, 0.1, 0.95, -0.7, -0.1, -0.7, 1});
  cases.push_back({"Rotate",
                   {{2, 3, 10}},
                   {},
                   [positions, table](Tape& tape, Inputs in, Leaves) {
                     return Rotate(tape, in[0], 2, 4, Upload(tape.kernels(), {6}, positions),
                                   Upload(tape.kernels(), table));
                   },
                   [positions, table](const Arrays& in, const Arrays&) {
                     return reference::Rotate({.heads = 2, .head_width = 4}, in[0], positions,
                                              table);
                   }});
  const std::pair<std::string, Attention> attentions[] = {
      {"SelfAttention", {.heads = 2, .head_width = 3, .dropout = {}, .total_heads = 2}},
      {"SelfAttentionDropout",
       {.heads = 2, .head_width = 3, .dropout = kDropout, .total_heads = 2}},
      {"SelfAttentionOfSomeHeads",
       {.heads = 2, .head_width = 3, .dropout = kDropout, .total_heads = 5, .first_head = 2}},
      {"SelfAttentionOfGroups",
       {.heads = 4, .head_width = 3, .dropout = kDropout, .total_heads = 4, .key_heads = 2}},
  };
  for (const auto& [name, attention] : attentions) {
    cases.push_back({name,
                     {{2, 5, attention.packed_width()}},
                     {},
                     [attention = attention](Tape& tape, Inputs in, Leaves) {
                       return SelfAttention(tape, in[0], attention);
                     },
                     [attention = attention](const Arrays& in, const Arrays&) {
                       return reference::AttentionForward(attention, in[0]).y;
                     }});
  }
}

}  // namespace

std::vector<OperationCase> OperationCases() {
  std::vector<OperationCase> cases;
  AddElementwise(cases);
  AddLinear(cases);
  AddBiases(cases);
  AddProducts(cases);
  AddGeluLinear(cases);
  AddSwiGluLinear(cases);
  AddGeluMlp(cases);
  AddConvolution(cases);
  AddNormalization(cases);
  AddSequences(cases);
  for (OperationCase& experts : ExpertCases()) cases.push_back(std::move(experts));
  return cases;
}

Operands RandomOperands(const OperationCase& operation, uint64_t stream) {
  Operands operands;
  stream *= 100;  // none has so many operands
  for (const Shape& shape : operation.inputs) {
    operands.inputs.push_back(RandomArray(shape, stream++));
  }
  for (const Shape& shape : operation.leaves) {
    operands.leaves.push_back(RandomArray(shape, stream++));
  }
  operands.dy = RandomArray(operation.formula(operands.inputs, operands.leaves).shape, stream);
  return operands;
}

std::vector<Leaf> MakeLeaves(const Operands& operands, Kernels& kernels) {
  std::vector<Leaf> leaves(operands.leaves.size());
  for (size_t i = 0; i < leaves.size(); ++i) leaves[i].value = Upload(kernels, operands.leaves[i]);
  return leaves;
}

Gradients RunOperation(const OperationCase& operation, const Operands& operands, Kernels& kernels,
                       std::vector<Leaf>& leaves, const RunOptions& options) {
  Tape tape(kernels);
  std::vector<Variable> inputs;
  for (size_t i = 0; i < operands.inputs.size(); ++i) {
    const bool constant = i < options.constant_inputs.size() && options.constant_inputs[i];
    inputs.push_back(tape.Result(Upload(kernels, operands.inputs[i]), !constant));
  }
  std::vector<Leaf*> pointers;
  for (Leaf& leaf : leaves) pointers.push_back(&leaf);

  Gradients result;
  Variable y = operation.run(tape, inputs, pointers);
  result.output = Download(kernels, y.value);
  tape.Backward({{std::move(y), Upload(kernels, operands.dy)}}, options.extent);
  if (options.extent == Tape::Extent::kInputsOnly) tape.RunDeferred();

  for (const Variable& x : inputs) {
    const Tensor gradient = x.needs_gradient() ? x.gradient->Take() : Tensor();
    result.inputs.push_back(gradient.defined() ? Download(kernels, gradient) : Array());
  }
  for (const Leaf& leaf : leaves) {
    result.leaves.push_back(leaf.has_gradient() ? Download(kernels, leaf.gradient) : Array());
  }
  return result;
}

}  // namespace lockstep
