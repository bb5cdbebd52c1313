#include "core/autograd/testing/expert_cases.h"

#include <cstdint>
#include <iterator>  // std::ssize
#include <string>
#include <utility>

#include "core/autograd/expert_products.h"
#include "core/autograd/experts.h"

namespace lockstep {
namespace {

using reference::Array;
using Inputs = const std::vector<Variable>&;
using Leaves = const std::vector<Leaf*>&;

// What each row of x has of its experts, one by one: SwiGlu(x gate_up(e)^T) down(e), times the
// row's weight for e. Choices beyond `capacity`, in the order of rows, are left out. Further
// weights are factors: gate_up(e) + 0.5 b1(e) a1(e) takes the place of gate_up(e), and
// down(e) + 0.5 a2(e) b2(e)^T that of down(e).
Array ExpertsFormula(const Routing& routing, const Arrays& in, const Arrays& w, int64_t capacity) {
  const reference::Routed routed = reference::Route(routing, in[1], Array());
  Array y = in[2];
  std::vector<int64_t> counts(static_cast<size_t>(routing.experts));
  const int64_t width = in[0].shape[-1];
  const auto rows_of = [&](const Array& all, int64_t expert) {
    const int64_t rows = all.shape[0] / routing.experts, columns = all.shape[1];
    const auto first = all.value.begin() + expert * rows * columns;
    return Array(Shape{rows, columns}, std::vector<double>(first, first + rows * columns));
  };
  for (int64_t i = 0; i < std::ssize(routed.chosen); ++i) {
    const int32_t expert = routed.chosen[i];
    if (counts[expert]++ >= capacity) continue;
    const int64_t row = i / routing.chosen;
    Array x(Shape{1, width});
    for (int64_t c = 0; c < width; ++c) x.value[c] = in[0][row * width + c];
    Array gate_up = rows_of(w[0], expert), down = rows_of(w[1], expert);
    const auto add = [](Array& weight, const Array& left, const Array& right, Transpose right_is) {
      const Array product = reference::MatMul(left, Transpose::kNo, right, right_is);
      for (int64_t j = 0; j < std::ssize(weight.value); ++j) weight.value[j] += 0.5 * product[j];
    };
    if (w.size() > 2) {
      add(gate_up, rows_of(w[3], expert), rows_of(w[2], expert), Transpose::kNo);
      add(down, rows_of(w[4], expert), rows_of(w[5], expert), Transpose::kYes);
    }
    const Array pre = reference::Linear(x, gate_up, Array(), Array());
    const Array made =
        reference::MatMul(reference::SwiGlu(pre), Transpose::kNo, down, Transpose::kNo);
    for (int64_t c = 0; c < width; ++c) y.value[row * width + c] += routed.weights[i] * made[c];
  }
  return y;
}

void AddExperts(std::vector<OperationCase>& cases) {
  constexpr int64_t kRows = 7, kWidth = 4, kHidden = 3;
  struct Kind {
    std::string name;
    Routing routing;
    double capacity_factor;
    int64_t capacity;
    FeatureLeaves gate_up = {}, down = {};
  };
  const std::vector<Kind> kinds = {
      {"Experts", {.experts = 3, .chosen = 2}, 0, kRows},
      {"ExpertsBySigmoid",
       {.experts = 5, .chosen = 2, .scores = Routing::Scores::kSigmoid, .scaling = 1.5f},
       0,
       kRows},
      {"ExpertsOfACapacity", {.experts = 3, .chosen = 1}, 0.8, 2},
      {"ExpertsByLeaves",
       {.experts = 3, .chosen = 2},
       0,
       kRows,
       {{{0, 2}, {3, 2}}, {{2, 1}, {5, 1}}},
       {{{0, 2}}, {{2, 1}}}},
  };
  for (const Kind& kind : kinds) {
    const int64_t experts = kind.routing.experts;
    cases.push_back(
        {kind.name,
         {{kRows, kWidth}, {kRows, experts}, {kRows, kWidth}},
         {{experts * 2 * kHidden, kWidth}, {experts * kHidden, kWidth}},
         [kind](Tape& tape, Inputs in, Leaves w) {
           const RoutedRows routed = Route(
               tape, in[1],
               {.routing = kind.routing, .bias = {}, .capacity_factor = kind.capacity_factor});
           const Variable pre = ExpertLinear(tape, Dispatch(tape, in[0], routed.rows), *w[0],
                                             routed.rows, kind.gate_up);
           return Combine(tape, ExpertSwiGluLinear(tape, pre, *w[1], routed.rows, kind.down),
                          routed, in[2]);
         },
         [kind](const Arrays& in, const Arrays& w) {
           return ExpertsFormula(kind.routing, in, w, kind.capacity);
         }});
  }
}

// Experts whose products have low-rank factors beside them, all of them trained.
void AddExpertAdapters(std::vector<OperationCase>& cases) {
  constexpr int64_t kRows = 9, kWidth = 4, kHidden = 3, kRank = 2, kExperts = 3;
  const Routing routing = {.experts = kExperts, .chosen = 2};
  cases.push_back(
      {"ExpertAdapters",
       {{kRows, kWidth}, {kRows, kExperts}, {kRows, kWidth}},
       {{kExperts * 2 * kHidden, kWidth},
        {kExperts * kHidden, kWidth},
        {kExperts * kRank, kWidth},
        {kExperts * 2 * kHidden, kRank},
        {kExperts * kHidden, kRank},
        {kExperts * kWidth, kRank}},
       [routing](Tape& tape, Inputs in, Leaves w) {
         const RoutedRows routed = Route(tape, in[1], {.routing = routing, .bias = {}});
         const Variables x = FanOut(tape, Dispatch(tape, in[0], routed.rows), 1);
         const Variable pre = AddExpertProduct(
             tape, ExpertOutputs(tape, x, *w[0], routed.rows, {}),
             Scale(tape, ExpertProduct(tape, x, *w[2], routed.rows), 0.5f), *w[3], routed.rows, {});
         const Variable hidden = SwiGlu(tape, pre);
         LeafSum sum = ExpertInputs(tape, hidden, *w[1], routed.rows, {});
         LeafSum low = Scale(tape, ExpertInputs(tape, hidden, *w[4], routed.rows, {}), 0.5f);
         const Variable made =
             AddUp(tape, AddExpertProduct(tape, std::move(sum), low, *w[5], routed.rows));
         return Combine(tape, made, routed, in[2]);
       },
       [routing](const Arrays& in, const Arrays& w) {
         return ExpertsFormula(routing, in, w, kRows);
       }});
}

}  // namespace

std::vector<OperationCase> ExpertCases() {
  std::vector<OperationCase> cases;
  AddExperts(cases);
  AddExpertAdapters(cases);
  return cases;
}

}  // namespace lockstep
