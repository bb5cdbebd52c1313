// Embeddings, positions, rotations and attention.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <limits>
#include <vector>

#include "absl/types/span.h"
#include "core/kernels/kernels_suite.h"

namespace lockstep {
namespace {

TEST_P(KernelsSuite, Embedding) {
  struct {
    int64_t rows, vocabulary, width;
  } const cases[] = {{1, 1, 1}, {3, 7, 17}, {100, 5, 63}, {300, 65, 130}, {1500, 900, 24}};
  for (const auto& c : cases) {
    // Few words for many rows: most are summed several times. The first and the last occur.
    std::vector<int32_t> words = Integers(c.rows, 0, static_cast<int32_t>(c.vocabulary) - 1);
    words.front() = static_cast<int32_t>(c.vocabulary) - 1;
    words.back() = 0;
    const Tensor ids = Upload(words);
    const Input table = Normal({c.vocabulary, c.width}), dy = Normal({c.rows, c.width});
    Tensor y = Output(dy.shape);
    kernels().Embedding(ids, table.tensor, y);
    EXPECT_TRUE(Agrees(reference::Embedding(words, table), y, 0));
    for (const GradientMode& mode : GradientModes()) {
      Tensor dtable = Target(mode, table);
      kernels().EmbeddingBackward(ids, dy.tensor, mode.write, dtable);
      EXPECT_TRUE(Agrees(reference::EmbeddingBackward(words, dy, table.shape), mode, table, dtable,
                         SumRoundings(c.rows)));
    }
  }
}

TEST_P(KernelsSuite, EmbeddingOfTheSameWordAddsInRowOrder) {
  // Any other order loses small numbers in the large one, or keeps more of them.
  constexpr float kSmall = 0x1p-10f, kLarge = 0x1p15f;
  std::vector<float> slopes = {kSmall, kSmall, kLarge, kSmall, kSmall, kSmall, -kLarge, kSmall};
  Tensor dtable = Output({1, 1}, DType::kF32);
  kernels().EmbeddingBackward(Upload(std::vector<int32_t>(8, 0)), Upload({8, 1}, slopes),
                              Write::kOverwrite, dtable);
  float sum = 0;
  for (float slope : slopes) sum += slope;
  EXPECT_EQ(Download(dtable)[0], sum);
}

// One by one, they would vanish in a table of 16 bits, whose step there is four.
TEST_P(KernelsSuite16, GradientsOfTablesAreRoundedOnce) {
  const float start = static_cast<float>(2 / UnitRoundoff(dtype()));
  const Tensor ones = Upload({8, 1, 1}, std::vector<float>(8, 1));
  Tensor words = Upload({1, 1}, {start}), positions = Upload({1, 1}, {start});
  kernels().EmbeddingBackward(Upload(std::vector<int32_t>(8, 0)), ones, Write::kAccumulate, words);
  kernels().AddPositionsBackward(ones, Write::kAccumulate, positions);
  EXPECT_EQ(Download(words)[0], start + 8);
  EXPECT_EQ(Download(positions)[0], start + 8);
}

TEST_P(KernelsSuite, Positions) {
  struct {
    int64_t batch, time, width, longest;
  } const cases[] = {
      {1, 1, 1, 1}, {2, 3, 17, 5}, {3, 65, 63, 65}, {5, 100, 33, 128}, {6, 17, 24, 20}};
  for (const auto& c : cases) {
    const Input x = Normal({c.batch, c.time, c.width}), table = Normal({c.longest, c.width});
    Tensor y = Output(x.shape);
    kernels().AddPositions(x.tensor, table.tensor, y);
    EXPECT_TRUE(Agrees(reference::AddPositions(x, table), y, 1));
    for (const GradientMode& mode : GradientModes()) {
      Tensor dtable = Target(mode, table);
      kernels().AddPositionsBackward(x.tensor, mode.write, dtable);
      EXPECT_TRUE(Agrees(reference::AddPositionsBackward(x, table.shape), mode, table, dtable,
                         SumRoundings(c.batch)));
    }
  }
}

TEST_P(KernelsSuite, Rotate) {
  struct {
    int64_t rows, heads, head_width, rest, positions;
  } const cases[] = {{1, 1, 2, 0, 1},
                     {3, 2, 6, 5, 4},
                     {5, 2, 16, 3, 9},
                     {130, 3, 20, 20, 70},
                     {700, 5, 64, 64, 900}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.rows << ", " << c.heads << " x " << c.head_width);
    const Input x = Normal({c.rows, c.heads * c.head_width + c.rest}),
                table = Normal({c.positions, c.head_width}, 0, 1, DType::kF32);
    std::vector<int32_t> positions = Integers(c.rows, 0, static_cast<int32_t>(c.positions) - 1);
    positions.back() = static_cast<int32_t>(c.positions) - 1;
    const Tensor uploaded = Upload(positions);
    for (const auto direction : {Rotation::Direction::kForward, Rotation::Direction::kBackward}) {
      const Rotation rotation = {
          .heads = c.heads, .head_width = c.head_width, .direction = direction};
      const reference::Result expected = reference::Rotate(rotation, x, positions, table);
      const Tensor y = Output(x.shape), in_place = Given(x).tensor;
      kernels().Rotate(rotation, x.tensor, uploaded, table.tensor, y);
      EXPECT_TRUE(Agrees(expected, y, 3));
      kernels().Rotate(rotation, in_place, uploaded, table.tensor, in_place);
      EXPECT_TRUE(SameBits(y, in_place));
    }
  }
}

struct AttentionCase {
  int64_t batch, heads, head_width, time;
  int64_t group = 1;  // heads of queries that share keys and values

  int64_t width() const { return heads * head_width; }
  int64_t packed_width() const { return width() + 2 * width() / group; }
};
constexpr AttentionCase kAttentions[] = {
    {1, 1, 1, 1},      {2, 3, 5, 1},      {1, 1, 20, 5},      {2, 3, 16, 5},    {2, 2, 20, 64},
    {1, 3, 17, 65},    {2, 1, 8, 100},    {3, 2, 12, 130},    {1, 1, 64, 130},  {2, 2, 64, 5},
    {1, 2, 64, 128},   {1, 1, 64, 259},   {1, 2, 128, 17},    {2, 1, 128, 68},  {1, 1, 128, 130},
    {2, 6, 16, 70, 3}, {1, 4, 64, 65, 4}, {3, 4, 12, 130, 2}, {1, 2, 20, 1, 2}, {2, 8, 20, 100, 2}};

// Heads 2, 3, ... of a layer of nine, as a rank of tensor parallelism computes them.
Attention Options(const AttentionCase& c, float dropout) {
  return {.heads = c.heads,
          .head_width = c.head_width,
          .dropout = {.probability = dropout, .key = 77, .counter = 5ull << 32 | 1},
          .total_heads = 9,
          .first_head = 2,
          .key_heads = c.heads / c.group};
}

// The reference's condition counts what rounding of the logits does; the rest are two sums, over
// the head's width and over the keys. Probabilities and, in backward, the logits' gradients may be
// rounded to the compute dtype, as factors of products: one rounding of either, or of the output
// that backward reads.
double Roundings(const AttentionCase& c) { return SumRoundings(c.head_width + c.time) + 8; }

// Documents of 1, 2, 3, ... tokens: short ones, and ones longer than tiles of queries. Another
// sample begins with a longer one.
std::vector<int32_t> GrowingDocuments(const AttentionCase& c) {
  std::vector<int32_t> first;
  for (int64_t b = 0; b < c.batch; ++b) {
    int32_t begin = 0;
    auto length = static_cast<int32_t>(1 + 7 * b);
    for (int32_t t = 0; t < c.time; ++t) {
      if (t == begin + length) {
        begin = t;
        length = length > 20 ? 3 * length : length + 1;
      }
      first.push_back(begin);
    }
  }
  return first;
}

// Samples that are one document, and samples that are packed from several.
TEST_P(KernelsSuite, Attention) {
  for (const AttentionCase& c : kAttentions) {
    const std::vector<int32_t> first = GrowingDocuments(c);
    for (const absl::Span<const int32_t> documents :
         {absl::Span<const int32_t>(), absl::MakeConstSpan(first)}) {
      for (float dropout : {0.0f, 0.25f}) {
        SCOPED_TRACE(testing::Message()
                     << "time " << c.time << ", groups of " << c.group << ", dropout " << dropout
                     << (documents.empty() ? "" : ", within documents"));
        Attention attention = Options(c, dropout);
        if (!documents.empty()) attention.documents = {documents.data(), c.time};
        const Input qkv = Normal({c.batch, c.time, c.packed_width()}),
                    dy = Normal({c.batch, c.time, c.width()});
        Tensor y = Output(dy.shape), log_sum_exp = Output({c.batch, c.heads, c.time}, DType::kF32);
        kernels().AttentionForward(attention, qkv.tensor, y, log_sum_exp);
        const reference::Attended expected = reference::AttentionForward(attention, qkv);
        EXPECT_TRUE(Agrees(expected.y, y, Roundings(c), 1));
        EXPECT_TRUE(Agrees(expected.log_sum_exp, log_sum_exp, Roundings(c)));
        Tensor dqkv = Output(qkv.shape);
        kernels().AttentionBackward(attention, qkv.tensor, Given(expected.y).tensor,
                                    Given(expected.log_sum_exp, DType::kF32).tensor, dy.tensor,
                                    dqkv);
        EXPECT_TRUE(
            Agrees(reference::AttentionBackward(attention, qkv, dy), dqkv, Roundings(c), 1));
      }
    }
  }
}

// Logits of a few hundred: their exponentials are beyond fp32 unless the largest is taken off.
TEST_P(KernelsSuite, AttentionWithLargeLogits) {
  const AttentionCase c = {2, 2, 16, 70};
  const Attention attention = Options(c, 0);
  const Input qkv = Normal({2, 70, 96}, 0, 10), dy = Normal({2, 70, 32});
  Tensor y = Output(dy.shape), log_sum_exp = Output({2, 2, 70}, DType::kF32);
  Tensor dqkv = Output(qkv.shape);
  kernels().AttentionForward(attention, qkv.tensor, y, log_sum_exp);
  kernels().AttentionBackward(attention, qkv.tensor, y, log_sum_exp, dy.tensor, dqkv);
  const reference::Attended expected = reference::AttentionForward(attention, qkv);
  EXPECT_TRUE(Agrees(expected.y, y, Roundings(c), 1));
  EXPECT_TRUE(Agrees(expected.log_sum_exp, log_sum_exp, Roundings(c)));
  EXPECT_TRUE(Agrees(reference::AttentionBackward(attention, qkv, dy), dqkv, Roundings(c), 1));
}

// The heads of one layer, computed together and each by itself: the same masks.
TEST_P(KernelsSuite, AttentionOfOneHeadIsTheLayersHead) {
  constexpr int64_t kTime = 70, kHeads = 3, kWidth = 8;
  Attention attention = {.heads = kHeads,
                         .head_width = kWidth,
                         .dropout = {.probability = 0.3f, .key = 1, .counter = 2},
                         .total_heads = kHeads,
                         .first_head = 0};
  const Input qkv = Normal({2, kTime, 3 * kHeads * kWidth});
  Tensor whole = Output({2, kTime, kHeads * kWidth});
  Tensor sums = Output({2, kHeads, kTime}, DType::kF32);
  kernels().AttentionForward(attention, qkv.tensor, whole, sums);
  const std::vector<float> expected = Download(whole);
  attention.heads = 1;
  for (int64_t head = 0; head < kHeads; ++head) {
    attention.first_head = head;
    std::vector<float> alone, from_whole;
    for (int64_t row = 0; row < 2 * kTime; ++row) {
      for (int64_t which = 0; which < 3; ++which) {
        for (int64_t i = 0; i < kWidth; ++i) {
          alone.push_back(
              static_cast<float>(qkv[((row * 3 + which) * kHeads + head) * kWidth + i]));
        }
      }
      for (int64_t i = 0; i < kWidth; ++i) {
        from_whole.push_back(expected[(row * kHeads + head) * kWidth + i]);
      }
    }
    Tensor y = Output({2, kTime, kWidth}), log_sum_exp = Output({2, 1, kTime}, DType::kF32);
    kernels().AttentionForward(attention, Upload({2, kTime, 3 * kWidth}, alone), y, log_sum_exp);
    const std::vector<float> actual = Download(y);
    for (size_t i = 0; i < actual.size(); ++i) {
      const double tolerance = 1e-5 + 2 * UnitRoundoff(dtype()) * std::abs(from_whole[i]);
      ASSERT_NEAR(actual[i], from_whole[i], tolerance) << "head " << head << ", element " << i;
    }
  }
}

struct TokenLeavesCase {
  int64_t leaves;
  AttentionCase of;  // `time` divisible by 2 * leaves
};
constexpr TokenLeavesCase kTokenLeaves[] = {
    {2, {2, 3, 5, 4}},      {2, {2, 2, 20, 60}},     {2, {1, 2, 17, 260}},   {2, {1, 1, 128, 196}},
    {3, {1, 1, 8, 6}},      {3, {2, 2, 16, 78}},     {4, {3, 1, 12, 8}},     {4, {1, 1, 64, 408}},
    {5, {2, 1, 20, 100}},   {8, {1, 2, 16, 176}},    {2, {2, 6, 20, 60, 3}}, {3, {1, 4, 16, 78, 2}},
    {4, {2, 2, 12, 72, 2}}, {7, {1, 4, 16, 112, 4}},
};

// Operands of a case of token leaves; all rows are in the order of leaves.
Shape TokenLeavesShape(const TokenLeavesCase& c, int64_t width) {
  return {c.leaves * c.of.batch, c.of.time / c.leaves, width};
}

// Calls add(left, right) for the additions of a tree over `count` values from value `first` on, by
// the tree's definition: it splits at the largest power of two below `count`.
void ForAdditions(int64_t first, int64_t count,
                  const std::function<void(int64_t left, int64_t right)>& add) {
  if (count == 1) return;
  int64_t split = 1;
  while (2 * split < count) split *= 2;
  ForAdditions(first, split, add);
  ForAdditions(first + split, count - split, add);
  add(first, first + split);
}

TEST_P(KernelsSuite, AttentionByTokenLeaves) {
  for (const TokenLeavesCase& c : kTokenLeaves) {
    for (float dropout : {0.0f, 0.25f}) {
      SCOPED_TRACE(testing::Message()
                   << c.leaves << " leaves of time " << c.of.time << ", dropout " << dropout);
      Attention attention = Options(c.of, dropout);
      // With and without documents in turn.
      const std::vector<int32_t> first = GrowingDocuments(c.of);
      if (dropout > 0) attention.documents = {first.data(), c.of.time};
      const Input qkv = Normal(TokenLeavesShape(c, c.of.packed_width())),
                  dy = Normal(TokenLeavesShape(c, c.of.width()));
      Tensor y = Output(dy.shape), dqkv = Output(qkv.shape);
      Tensor log_sum_exp = Output({dy.shape[0], c.of.heads, dy.shape[1]}, DType::kF32);
      kernels().AttentionForwardByTokenLeaves(attention, c.leaves, qkv.tensor, y, log_sum_exp);
      const reference::Attended expected = reference::AttentionForward(attention, qkv, c.leaves);
      EXPECT_TRUE(Agrees(expected.y, y, Roundings(c.of), 1));
      EXPECT_TRUE(Agrees(expected.log_sum_exp, log_sum_exp, Roundings(c.of)));
      kernels().AttentionBackwardByTokenLeaves(
          attention, c.leaves, qkv.tensor, Given(expected.y).tensor,
          Given(expected.log_sum_exp, DType::kF32).tensor, dy.tensor, dqkv);
      // Each node of the tree is rounded, which counts as one of the intermediate results.
      const double nodes = 1 + std::ceil(std::log2(static_cast<double>(c.leaves)));
      EXPECT_TRUE(Agrees(reference::AttentionBackward(attention, qkv, dy, c.leaves), dqkv,
                         Roundings(c.of), 1 + nodes));
    }
  }
}

// As AttentionWithLargeLogits: leaves whose largest logits are hundreds apart are merged.
TEST_P(KernelsSuite, AttentionByTokenLeavesWithLargeLogits) {
  const TokenLeavesCase c = {4, {2, 2, 16, 72}};
  const Attention attention = Options(c.of, 0);
  const Input qkv = Normal(TokenLeavesShape(c, 96), 0, 10), dy = Normal(TokenLeavesShape(c, 32));
  Tensor y = Output(dy.shape), log_sum_exp = Output({8, 2, 18}, DType::kF32);
  Tensor dqkv = Output(qkv.shape);
  kernels().AttentionForwardByTokenLeaves(attention, 4, qkv.tensor, y, log_sum_exp);
  kernels().AttentionBackwardByTokenLeaves(attention, 4, qkv.tensor, y, log_sum_exp, dy.tensor,
                                           dqkv);
  const reference::Attended expected = reference::AttentionForward(attention, qkv, 4);
  EXPECT_TRUE(Agrees(expected.y, y, Roundings(c.of), 1));
  EXPECT_TRUE(Agrees(expected.log_sum_exp, log_sum_exp, Roundings(c.of)));
  EXPECT_TRUE(
      Agrees(reference::AttentionBackward(attention, qkv, dy, 4), dqkv, Roundings(c.of), 4));
}

// Ranks that divide the leaves: each has a run of queries, which meet one run of keys after the
// other. Nodes of the trees are then added along trees over the ranks. Where each rank has one
// leaf, these are the trees over leaves by their definition.
TEST_P(KernelsSuite, AttentionOfPartsHasTheBitsOfTheWhole) {
  struct {
    int64_t leaves, ranks;
    AttentionCase of;
  } const cases[] = {
      {2, 2, {2, 1, 20, 60}},    {2, 2, {1, 1, 24, 224}},   {3, 3, {1, 4, 16, 78, 2}},
      {4, 2, {2, 2, 12, 72, 2}}, {4, 2, {1, 1, 8, 280}},    {4, 4, {1, 2, 8, 40}},
      {5, 5, {1, 2, 20, 60}},    {6, 3, {2, 1, 8, 60}},     {7, 1, {1, 2, 8, 42}},
      {8, 2, {1, 1, 16, 48}},    {8, 4, {1, 2, 16, 48, 2}}, {8, 8, {1, 2, 12, 48, 2}}};
  for (const auto& c : cases) {
    SCOPED_TRACE(testing::Message() << c.ranks << " ranks, " << c.leaves << " leaves of time "
                                    << c.of.time << ", groups of " << c.of.group);
    Attention attention = Options(c.of, 0.25f);
    const std::vector<int32_t> first = GrowingDocuments(c.of);
    if (c.of.group > 1) attention.documents = {first.data(), c.of.time};
    const int64_t width = c.of.width(), keys_width = 2 * attention.key_width();
    const TokenLeavesCase rows = {c.leaves, c.of};
    const Tensor qkv = Normal(TokenLeavesShape(rows, c.of.packed_width())).tensor,
                 dy = Normal(TokenLeavesShape(rows, width)).tensor;
    const Shape sums_shape = {dy.shape()[0], c.of.heads, dy.shape()[1]};
    const Tensor whole_y = Output(dy.shape()), whole_dqkv = Output(qkv.shape()),
                 whole_sums = Output(sums_shape, DType::kF32);
    kernels().AttentionForwardByTokenLeaves(attention, c.leaves, qkv, whole_y, whole_sums);
    kernels().AttentionBackwardByTokenLeaves(attention, c.leaves, qkv, whole_y, whole_sums, dy,
                                             whole_dqkv);
    const Tensor keys = Output(dy.shape().With(2, keys_width));
    kernels().CopyColumns(qkv, width, keys_width, keys, 0);
    // Copies of a rank's rows, and back.
    const auto move = [&](const Tensor& from, int64_t begin, const Tensor& to, int64_t at) {
      kernels().CopyColumns(from.Reshape({1, from.elements()}), begin,
                            std::min(from.elements(), to.elements()),
                            to.Reshape({1, to.elements()}), at);
    };
    const auto part_of = [&](const Tensor& x, int64_t rank) {
      const Tensor part = Output(x.shape().With(0, x.shape()[0] / c.ranks), x.dtype());
      move(x, rank * part.elements(), part, 0);
      return part;
    };
    const Tensor y = Output(dy.shape()), dqkv = Output(qkv.shape()),
                 sums = Output(sums_shape, DType::kF32);
    const int64_t run = c.leaves / c.ranks;
    std::vector<Tensor> dkeys;  // by rank of the queries
    for (int64_t rank = 0; rank < c.ranks; ++rank) {
      const Tensor own_qkv = part_of(qkv, rank), own_y = part_of(whole_y, rank),
                   own_sums = part_of(whole_sums, rank), own_dy = part_of(dy, rank);
      std::vector<AttentionSums> parts;
      std::vector<Tensor> dqueries;
      dkeys.push_back(Output(keys.shape()));
      for (int64_t other = 0; other < c.ranks; ++other) {
        const AttentionPart part = {
            .leaves = c.leaves, .queries = {rank * run, run}, .keys = {other * run, run}};
        const Tensor others_keys = part_of(keys, other);
        const Tensor part_dkeys = Output(others_keys.shape());
        parts.push_back({Output(own_sums.shape(), DType::kF32),
                         Output(own_sums.shape(), DType::kF32),
                         Output(own_y.shape(), DType::kF32)});
        kernels().AttentionOfPart(attention, part, own_qkv, others_keys, parts.back());
        // The first columns of rows that have others too, or whole rows.
        dqueries.push_back(Output((rank % 2 == 0 ? own_qkv : own_y).shape()));
        kernels().AttentionOfPartBackward(attention, part, own_qkv, others_keys, own_y, own_sums,
                                          own_dy, dqueries.back(), part_dkeys);
        move(part_dkeys, 0, dkeys.back(), other * part_dkeys.elements());
      }
      ForAdditions(0, c.ranks, [&](int64_t left, int64_t right) {
        kernels().AddAttention(attention, parts[right], parts[left]);
        kernels().Add(dqueries[left], dqueries[right], dqueries[left]);
      });
      const Tensor part_y = Output(own_y.shape()),
                   part_sums = Output(own_sums.shape(), DType::kF32),
                   part_dqkv = Output(own_qkv.shape());
      kernels().FinishAttention(attention, parts[0], part_y, part_sums);
      kernels().CopyColumns(dqueries[0], 0, width, part_dqkv, 0);
      move(part_y, 0, y, rank * part_y.elements());
      move(part_sums, 0, sums, rank * part_sums.elements());
      move(part_dqkv, 0, dqkv, rank * part_dqkv.elements());
    }
    ForAdditions(0, c.ranks, [&](int64_t left, int64_t right) {
      kernels().Add(dkeys[left], dkeys[right], dkeys[left]);
    });
    kernels().CopyColumns(dkeys[0], 0, keys_width, dqkv, width);
    EXPECT_TRUE(SameBits(whole_y, y));
    EXPECT_TRUE(SameBits(whole_sums, sums));
    EXPECT_TRUE(SameBits(whole_dqkv, dqkv));
  }
}

// With two leaves, the first chunk of queries of leaf 0 sees no key of leaf 1, and no query of leaf
// 1 sees the second chunk of keys of leaf 0.
TEST_P(KernelsSuite, AttentionOfUnseenKeysChangesNoSum) {
  constexpr int64_t kChunk = 5, kWidth = 12;
  const Attention attention = {.heads = 1, .head_width = kWidth, .dropout = {}, .total_heads = 1};
  const Shape shape = {1, 2 * kChunk, kWidth};
  const Tensor queries = Normal(shape.With(2, 3 * kWidth)).tensor,
               keys = Normal(shape.With(2, 2 * kWidth)).tensor, y = Normal(shape).tensor,
               dy = Normal(shape).tensor;
  const Tensor log_sum_exp = Normal({1, 1, 2 * kChunk}, 0, 1, DType::kF32).tensor;
  const auto is_minus_zero = [](float x) { return x == 0 && std::signbit(x); };
  for (const int64_t leaf : {0, 1}) {
    SCOPED_TRACE(leaf);
    const AttentionPart part = {.leaves = 2, .queries = {leaf, 1}, .keys = {1 - leaf, 1}};
    const AttentionSums sums = {.largest = Output(log_sum_exp.shape(), DType::kF32),
                                .sums = Output(log_sum_exp.shape(), DType::kF32),
                                .outputs = Output(shape, DType::kF32)};
    kernels().AttentionOfPart(attention, part, queries, keys, sums);
    const Tensor dqueries = Output(shape), dkeys = Output(keys.shape());
    kernels().AttentionOfPartBackward(attention, part, queries, keys, y, log_sum_exp, dy, dqueries,
                                      dkeys);
    const std::vector<float> largest = Download(sums.largest), sum = Download(sums.sums),
                             outputs = Download(sums.outputs), dquery = Download(dqueries),
                             dkey = Download(dkeys);
    for (int64_t i = 0; i < 2 * kChunk; ++i) {
      const bool sees = leaf == 1 || i >= kChunk, is_seen = leaf == 0 || i < kChunk;
      EXPECT_EQ(largest[i] == std::numeric_limits<float>::lowest(), !sees) << i;
      EXPECT_EQ(sum[i] == 0, !sees) << i;
      EXPECT_EQ(outputs[i * kWidth] == 0, !sees) << i;
      EXPECT_EQ(is_minus_zero(dquery[i * kWidth]), !sees) << i;
      EXPECT_EQ(is_minus_zero(dkey[i * 2 * kWidth]), !is_seen) << i;
      EXPECT_EQ(is_minus_zero(dkey[(i * 2 + 1) * kWidth]), !is_seen) << i;
    }
  }
}

TEST_P(KernelsSuite, SequencesRepeatTheirBits) {
  for (const AttentionCase& c : {AttentionCase{3, 2, 12, 130}, AttentionCase{2, 1, 64, 130}}) {
    const Attention attention = Options(c, 0.1f);
    const int64_t width = c.heads * c.head_width;
    const Input qkv = Normal({c.batch, c.time, 3 * width}), dy = Normal({c.batch, c.time, width});
    const Tensor ids = Upload(Integers(c.batch * c.time, 0, 9));
    std::vector<std::vector<float>> first;
    for (int round = 0; round < 3; ++round) {
      const Tensor out[] = {Output(dy.shape), Output({c.batch, c.heads, c.time}, DType::kF32),
                            Output(qkv.shape), Output({10, width})};
      kernels().AttentionForward(attention, qkv.tensor, out[0], out[1]);
      kernels().AttentionBackward(attention, qkv.tensor, out[0], out[1], dy.tensor, out[2]);
      kernels().EmbeddingBackward(ids, dy.tensor, Write::kOverwrite, out[3]);
      for (size_t i = 0; i < 4; ++i) {
        if (round == 0) first.push_back(Download(out[i]));
        EXPECT_TRUE(SameBits(first[i], Download(out[i]))) << i;
      }
    }
  }
}

}  // namespace
}  // namespace lockstep
