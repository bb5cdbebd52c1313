// What ranks need that compute a layer together.

#include <algorithm>
#include <limits>
#include <vector>

#include "core/kernels/kernels_suite.h"

namespace lockstep {
namespace {

TEST_P(KernelsSuite, ColumnsAreCopiedAlone) {
  for (const int64_t rows : {7, 1000}) {
    const std::vector<float> before(rows * 9, 5.0f);
    Tensor y = Upload({rows, 9}, before);
    const Input x = Normal({rows, 4});
    kernels().CopyColumns(x.tensor, 1, 3, y, 5);
    const std::vector<float> after = Download(y);
    for (int64_t i = 0; i < rows * 9; ++i) {
      const int64_t row = i / 9, column = i % 9;
      const bool copied = column >= 5 && column < 8;
      EXPECT_EQ(after[i], copied ? static_cast<float>(x[row * 4 + column - 4]) : 5.0f) << i;
    }
  }
}

TEST_P(KernelsSuite, BiasAfterASum) {
  struct {
    int64_t rows, width;
  } const cases[] = {{1, 1}, {3, 17}, {30, 12}, {300, 63}, {5, 3000}};
  for (const auto& c : cases) {
    const Input x = Normal({c.rows, c.width}), residual = Normal(x.shape), bias = Normal({c.width});
    for (const bool with_bias : {true, false}) {
      for (const bool with_residual : {true, false}) {
        reference::Result expected(x);
        for (int64_t i = 0; i < x.elements(); ++i) {
          if (with_bias) expected.Add(i, bias[i % c.width]);
          if (with_residual) expected.Add(i, residual[i]);
        }
        Tensor y = Output(x.shape);
        kernels().AddBias(x.tensor, with_bias ? bias.tensor : Tensor(),
                          with_residual ? residual.tensor : Tensor(), y);
        EXPECT_TRUE(Agrees(expected, y, 2));
        const Tensor in_place = Given(x).tensor;
        kernels().AddBias(in_place, with_bias ? bias.tensor : Tensor(),
                          with_residual ? residual.tensor : Tensor(), in_place);
        EXPECT_TRUE(SameBits(y, in_place));
      }
    }
    for (const GradientMode& mode : GradientModes()) {
      Tensor sums = Target(mode, bias);
      kernels().ColumnSums(x.tensor, mode.write, sums);
      EXPECT_TRUE(Agrees(reference::ColumnSums(x), mode, bias, sums, SumRoundings(c.rows)));
    }
  }
}

// A rank that holds some of a layer's columns has the bits of one that holds them all.
TEST_P(KernelsSuite, SumsOfAColumnDoNotDependOnTheOthers) {
  constexpr int64_t kWidth = 264;
  const Range parts[] = {{.count = 128},
                         {.first = 128, .count = 64},
                         {.first = 192, .count = 48},
                         {.first = 240, .count = 17},
                         {.first = 257, .count = 7}};
  for (const int64_t rows : {1, 130, 700}) {
    const Input x = Normal({rows, kWidth});
    const Tensor sums_of_all = Output({kWidth});
    kernels().ColumnSums(x.tensor, Write::kOverwrite, sums_of_all);
    const std::vector<float> whole = Download(sums_of_all);
    for (const Range& part : parts) {
      const Tensor columns = Output({rows, part.count}), sums = Output({part.count});
      kernels().CopyColumns(x.tensor, part.first, part.count, columns, 0);
      kernels().ColumnSums(columns, Write::kOverwrite, sums);
      const auto from = whole.begin() + part.first;
      EXPECT_TRUE(SameBits({from, from + part.count}, Download(sums)))
          << rows << " rows, " << part.count << " columns from " << part.first;
    }
  }
}

TEST_P(KernelsSuite, EmbeddingOfAPartOfTheVocabulary) {
  constexpr int64_t kRows = 40, kVocabulary = 11, kWidth = 17;
  const std::vector<int32_t> words = Integers(kRows, 0, kVocabulary - 1);
  const Input table = Normal({kVocabulary, kWidth}), dy = Normal({kRows, kWidth});
  const Tensor ids = Upload(words);
  Tensor whole = Output({kRows, kWidth}), dwhole = Output(table.shape);
  kernels().Embedding(ids, table.tensor, whole);
  kernels().EmbeddingBackward(ids, dy.tensor, Write::kOverwrite, dwhole);
  std::vector<float> sum(kRows * kWidth), dtable;
  for (const Range& part : {Range{0, 4}, Range{4, 4}, Range{8, 3}}) {
    // One row of the last part is padding.
    std::vector<float> rows(4 * kWidth, 7.0f);
    for (int64_t i = 0; i < part.count * kWidth; ++i) {
      rows[i] = static_cast<float>(table[part.first * kWidth + i]);
    }
    Tensor local = Integers({kRows}), y = Output({kRows, kWidth}), slope = Output({4, kWidth});
    kernels().LocalIds(ids, part, local);
    kernels().Embedding(local, Upload({4, kWidth}, rows), y);
    kernels().EmbeddingBackward(local, dy.tensor, Write::kOverwrite, slope);
    const std::vector<float> own = Download(y), gradient = Download(slope);
    for (size_t i = 0; i < sum.size(); ++i) sum[i] += own[i];
    dtable.insert(dtable.end(), gradient.begin(), gradient.begin() + part.count * kWidth);
    for (int64_t i = part.count * kWidth; i < 4 * kWidth; ++i) EXPECT_EQ(gradient[i], 0);
  }
  EXPECT_TRUE(SameBits(sum, Download(whole)));
  EXPECT_TRUE(SameBits(dtable, Download(dwhole)));
}

// Three parts of the classes, the last with padding that would win, and one part without classes.
TEST_P(KernelsSuite, CrossEntropyOfSplitLogits) {
  struct {
    int64_t rows, classes;
    double spread;
  } const cases[] = {{1, 3, 1}, {17, 10, 1}, {100, 65, 3}, {40, 1000, 10}, {7, 100, 1e4}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.rows << " x " << c.classes);
    const Input logits = Normal({c.rows, c.classes}, 2, c.spread);
    std::vector<int32_t> classes = Integers(c.rows, 0, static_cast<int32_t>(c.classes) - 1);
    if (c.rows > 2) classes[1] = -1;
    const Tensor targets = Upload(classes);
    constexpr float kFactor = 0.37f;
    constexpr int kParts = 4;
    const int64_t columns = (c.classes + 2) / 3;
    std::vector<Range> ranges;
    std::vector<Tensor> parts;
    for (int p = 0; p < kParts; ++p) {
      const int64_t first = std::min(p * columns, c.classes);
      ranges.push_back({first, std::min(columns, c.classes - first)});
      std::vector<float> part(c.rows * columns, 1e30f);
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int64_t i = 0; i < ranges[p].count; ++i) {
          part[r * columns + i] = static_cast<float>(logits[r * c.classes + first + i]);
        }
      }
      parts.push_back(Upload({c.rows, columns}, part));
    }
    // What ranks would reduce between the steps.
    std::vector<float> largest(c.rows, std::numeric_limits<float>::lowest()), sums(c.rows),
        gaps(c.rows);
    std::vector<int32_t> where(c.rows);
    for (int p = 0; p < kParts; ++p) {
      Tensor own = Output({c.rows}, DType::kF32), at = Integers({c.rows});
      kernels().LargestLogits(parts[p], ranges[p], own, at);
      const std::vector<float> values = Download(own);
      const std::vector<int32_t> indices = DownloadIntegers(at);
      for (int64_t r = 0; r < c.rows; ++r) {
        if (values[r] > largest[r]) where[r] = indices[r];
        largest[r] = std::max(largest[r], values[r]);
      }
      if (ranges[p].count == 0) {
        EXPECT_EQ(values[0], std::numeric_limits<float>::lowest());
        EXPECT_EQ(indices[0], std::numeric_limits<int32_t>::max());
      }
    }
    for (int64_t r = 0; r < c.rows; ++r) {
      const auto row = logits.value.begin() + r * c.classes;
      EXPECT_EQ(where[r], std::max_element(row, row + c.classes) - row);
    }
    const Tensor all_largest = Upload({c.rows}, largest, DType::kF32);
    for (int p = 0; p < kParts; ++p) {
      Tensor own_sums = Output({c.rows}, DType::kF32), own_gaps = Output({c.rows}, DType::kF32);
      kernels().SumExponentials(parts[p], ranges[p], all_largest, targets, own_sums, own_gaps);
      const std::vector<float> sum = Download(own_sums), gap = Download(own_gaps);
      for (int64_t r = 0; r < c.rows; ++r) {
        sums[r] += sum[r];
        gaps[r] += gap[r];
      }
    }
    const reference::CrossEntropy expected =
        reference::SoftmaxCrossEntropy(logits, classes, kFactor);
    const double roundings = SumRoundings(c.classes) + 12;
    for (int p = 0; p < kParts; ++p) {
      Tensor losses = Output({c.rows}, DType::kF32), dlogits = Output({c.rows, columns});
      kernels().SplitCrossEntropy(
          parts[p], ranges[p], all_largest, Upload({c.rows}, sums, DType::kF32),
          Upload({c.rows}, gaps, DType::kF32), targets, kFactor, losses, dlogits);
      EXPECT_TRUE(Agrees(expected.losses, losses, roundings));
      const std::vector<float> slopes = Download(dlogits);
      reference::Result part(Shape{c.rows, columns});
      for (int64_t r = 0; r < c.rows; ++r) {
        for (int64_t i = 0; i < ranges[p].count; ++i) {
          const int64_t from = r * c.classes + ranges[p].first + i, to = r * columns + i;
          part.value[to] = expected.dlogits.value[from];
          part.magnitude[to] = expected.dlogits.magnitude[from];
        }
        for (int64_t i = ranges[p].count; i < columns; ++i) EXPECT_EQ(slopes[r * columns + i], 0);
      }
      EXPECT_TRUE(Agrees(part, dlogits, roundings));
      kernels().SplitCrossEntropy(
          parts[p], ranges[p], all_largest, Upload({c.rows}, sums, DType::kF32),
          Upload({c.rows}, gaps, DType::kF32), targets, kFactor, losses, parts[p]);
      EXPECT_TRUE(SameBits(dlogits, parts[p]));
    }
  }
}

}  // namespace
}  // namespace lockstep
