// Mixtures of experts.

#include <algorithm>
#include <cstdint>
#include <limits>
#include <vector>

#include "core/kernels/kernels_suite.h"

namespace lockstep {
namespace {

constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

std::vector<Routing> Routings() {
  using Scores = Routing::Scores;
  return {{.experts = 1, .chosen = 1},
          {.experts = 8, .chosen = 2},
          {.experts = 21, .chosen = 21, .scores = Scores::kSigmoid},
          {.experts = 64, .chosen = 6, .scores = Scores::kSigmoid, .scaling = 2.5f},
          {.experts = 130, .chosen = 4, .scaling = 0.5f}};
}

TEST_P(KernelsSuite, Route) {
  for (const Routing& routing : Routings()) {
    for (const int64_t rows : {1, 3, 700}) {
      for (const bool biased : {false, true}) {
        SCOPED_TRACE(testing::Message() << routing.experts << ", " << routing.chosen << ", " << rows
                                        << ", " << biased);
        const Input logits = Normal({rows, routing.experts}, 0, 2);
        const Input bias = biased ? Normal({routing.experts}, 0, 0.3, DType::kF32) : Input();
        const reference::Routed expected = reference::Route(routing, logits, bias);
        const Tensor chosen = Integers(expected.weights.shape);
        const Tensor weights = Output(expected.weights.shape, DType::kF32);
        kernels().Route(routing, logits.tensor, bias.tensor, chosen, weights);
        const std::vector<int32_t> own = DownloadIntegers(chosen);
        // Scores that lie within rounding errors of each other may stand in another order: then the
        // whole row is left out, of which there are few.
        int64_t different = 0;
        for (size_t i = 0; i < own.size(); ++i) different += own[i] != expected.chosen[i];
        if (expected.margin > 1e-6) {
          EXPECT_EQ(different, 0);
          EXPECT_TRUE(Agrees(expected.weights, weights, SumRoundings(routing.experts) + 20));
        }
        EXPECT_LE(different, 4 + static_cast<int64_t>(own.size()) / 50);
        const Input dweights = Normal(expected.weights.shape, 0, 1, DType::kF32);
        for (const bool balances : {false, true}) {
          const Input balance = balances ? Normal({routing.experts}, 0, 1, DType::kF32) : Input();
          const Tensor dlogits = Output(logits.shape);
          kernels().RouteBackward(routing, logits.tensor, chosen, dweights.tensor, balance.tensor,
                                  dlogits);
          EXPECT_TRUE(Agrees(reference::RouteBackward(routing, logits, own, dweights, balance),
                             dlogits, SumRoundings(routing.experts) + 30));
        }
      }
    }
  }
}

TEST_P(KernelsSuite, RouteGivesTiesToTheLowerIndex) {
  const Tensor logits = Upload({3, 4}, {1, 1, 1, 1, 0, 2, 0, 2, kNaN, 0, 1, 1});
  const Tensor chosen = Integers({3, 2}), weights = Output({3, 2}, DType::kF32);
  for (const auto scores : {Routing::Scores::kSoftmax, Routing::Scores::kSigmoid}) {
    kernels().Route({.experts = 4, .chosen = 2, .scores = scores}, logits, Tensor(), chosen,
                    weights);
    const std::vector<int32_t> own = DownloadIntegers(chosen);
    EXPECT_EQ(std::vector<int32_t>(own.begin(), own.begin() + 4),
              std::vector<int32_t>({0, 1, 1, 3}));
    // Even of what is no number two different experts are named.
    EXPECT_TRUE(own[4] != own[5] && own[4] >= 0 && own[5] >= 0 && own[4] < 4 && own[5] < 4);
  }
}

TEST_P(KernelsSuite, CombineRows) {
  struct {
    int64_t rows, slots, width;
  } const cases[] = {{1, 1, 1}, {3, 2, 17}, {100, 3, 63}, {700, 2, 130}};
  for (const auto& c : cases) {
    // A permutation in which one place in five is dropped.
    std::vector<int32_t> places;
    for (int64_t i = 0; i < c.rows * c.slots; ++i) {
      places.push_back(static_cast<int32_t>(c.rows * c.slots - 1 - i));
    }
    for (size_t i = 4; i < places.size(); i += 5) places[i] = -1;
    const Input x = Normal({c.rows * c.slots, c.width}), residual = Normal({c.rows, c.width});
    const Input weights = Normal({c.rows, c.slots}, 0, 1, DType::kF32);
    const Tensor uploaded = Upload(places);
    for (const bool weighted : {false, true}) {
      const Input by = weighted ? weights : Input(), added = weighted ? residual : Input();
      const Tensor sums = Output({c.rows, c.width});
      kernels().CombineRows(x.tensor, uploaded, by.tensor, added.tensor, sums);
      EXPECT_TRUE(Agrees(reference::CombineRows(x, places, by, added, c.rows), sums,
                         static_cast<double>(2 * c.slots + 2)));
    }
    const Input dsums = Normal({c.rows, c.width});
    const Tensor dx = Output(x.shape), dweights = Output({c.rows, c.slots}, DType::kF32);
    kernels().Fill(dx, 0);  // the rows that nobody names
    kernels().CombineRowsBackward(dsums.tensor, x.tensor, uploaded, weights.tensor, dx, dweights);
    const reference::CombineGradients expected =
        reference::CombineRowsBackward(dsums, x, places, weights);
    EXPECT_TRUE(Agrees(expected.dx, dx, 1));
    EXPECT_TRUE(Agrees(expected.dweights, dweights, SumRoundings(c.width)));
  }
}

}  // namespace
}  // namespace lockstep
