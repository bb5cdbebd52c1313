// Files of probes: written and read, damaged and refused; digests that add up.

#include <array>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <limits>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/base/parallel.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/probe/element_values.h"
#include "core/probe/probe_file.h"
#include "core/probe/probed_run.h"
#include "core/probe/tensor_digest.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::HasSubstr;

const std::vector<float> kElements = {1, -2, 3, 4, 0, -6};

const uint8_t* Bytes(const std::vector<float>& elements) {
  return reinterpret_cast<const uint8_t*>(elements.data());
}

TensorDigest Digest(const std::vector<float>& elements, const TensorSlice& held) {
  return DigestOf(DType::kF32, Bytes(elements), held);
}

// Columns [first, first + count) of [2, 3].
TensorSlice Columns(int64_t first, int64_t count) {
  return SliceOf({2, 3}, {.dimension = 1, .ranges = {{.first = first, .count = count}}});
}

TEST(TensorDigestTest, AddsUpOverShards) {
  const TensorDigest whole = Digest(kElements, WholeSlice({2, 3}));
  TensorDigest sum = Digest({1, 4}, Columns(0, 1));
  sum.Add(Digest({-2, 3, 0, -6}, Columns(1, 2)));
  EXPECT_EQ(sum.hash, whole.hash);
  EXPECT_DOUBLE_EQ(sum.norm(), std::sqrt(66.0));
  EXPECT_EQ(whole.largest, 6);
}

TEST(TensorDigestTest, TellsPlacesAndSignsOfZeroApart) {
  const TensorSlice whole = WholeSlice({2, 3});
  const auto hash = Digest(kElements, whole).hash;
  EXPECT_NE(Digest({-2, 1, 3, 4, 0, -6}, whole).hash, hash);
  EXPECT_NE(Digest({1, -2, 3, 4, -0.0f, -6}, whole).hash, hash);
}

TEST(TensorDigestTest, CountsWhatIsNotFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  const TensorDigest digest = Digest({infinity, std::nanf(""), 3, 4}, WholeSlice({4}));
  EXPECT_EQ(digest.not_finite, 2);
  EXPECT_EQ(digest.norm(), 5);
  EXPECT_EQ(digest.largest, 4);
}

// The definition, element by element.
std::array<uint64_t, 2> HashByDefinition(const std::vector<float>& elements) {
  const auto mix = [](uint64_t x) {
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    return x ^ (x >> 31);
  };
  std::array<uint64_t, 2> hash = {0, 0};
  for (size_t i = 0; i < elements.size(); ++i) {
    uint32_t bits = 0;
    std::memcpy(&bits, &elements[i], sizeof(bits));
    const uint64_t first = mix(mix(i + 0x9e3779b97f4a7c15) ^ bits);
    hash[0] += first;
    hash[1] += mix(first + 0xd1b54a32d192ed03);
  }
  return hash;
}

TEST(TensorDigestTest, HasTheSameBitsForAnyNumberOfThreads) {
  std::vector<float> elements(100'003);
  for (size_t i = 0; i < elements.size(); ++i) elements[i] = std::sin(static_cast<float>(i));
  const TensorSlice whole = WholeSlice({static_cast<int64_t>(elements.size())});
  const int before = MaxThreads();
  SetThreads(1);
  const TensorDigest one = Digest(elements, whole);
  SetThreads(3);
  const TensorDigest three = Digest(elements, whole);
  SetThreads(before);
  EXPECT_EQ(one.hash, HashByDefinition(elements));
  EXPECT_EQ(three.hash, one.hash);
  EXPECT_EQ(three.squares, one.squares);
  EXPECT_EQ(three.largest, one.largest);
}

TEST(TensorDigestTest, KnowsAllTypes) {
  const auto largest = [](DType dtype, uint64_t bits) {
    uint8_t bytes[8];
    std::memcpy(bytes, &bits, sizeof(bits));
    return DigestOf(dtype, bytes, WholeSlice({1})).largest;
  };
  EXPECT_EQ(largest(DType::kF64, 0xc008000000000000), 3);
  EXPECT_EQ(largest(DType::kF32, 0xc0400000), 3);
  EXPECT_EQ(largest(DType::kF16, 0xc200), 3);
  EXPECT_EQ(largest(DType::kBF16, 0xc040), 3);
  EXPECT_EQ(largest(DType::kI64, ~uint64_t{2}), 3);
  EXPECT_EQ(largest(DType::kI32, 0xfffffffd), 3);
  EXPECT_EQ(largest(DType::kU8, 3), 3);
}

TEST(UlpDistanceTest, CountsNumbersInBetween) {
  const auto distance = [](float a, float b) {
    uint32_t bits[2];
    std::memcpy(&bits[0], &a, sizeof(a));
    std::memcpy(&bits[1], &b, sizeof(b));
    return UlpDistance(DType::kF32, bits[0], bits[1]);
  };
  EXPECT_EQ(distance(1, 1 + 0x1p-23f), 1);
  EXPECT_EQ(distance(1 + 0x1p-23f, 1 - 0x1p-24f), 2);
  EXPECT_EQ(distance(0, -0.0f), 0);
  EXPECT_EQ(distance(0x1p-149f, -0x1p-149f), 2);
  EXPECT_EQ(distance(std::nanf(""), 1), -1);
  EXPECT_EQ(UlpDistance(DType::kBF16, 0x3f80, 0x3f82), 2);
  EXPECT_EQ(UlpDistance(DType::kI32, 7, 4), 3);
}

class ProbeFilesTest : public testing::Test {
 protected:
  ProbeFilesTest() : run_(testing::TempDir() + "/probed") { std::filesystem::remove_all(run_); }

  std::string Folder() const { return absl::StrCat(run_, "/", kProbeFolder); }
  std::string Path(int64_t rank, const char* ending = "jsonl") const {
    return absl::StrCat(Folder(), "/step-000003.rank-0000", rank, ".", ending);
  }

  // A rank of two with some columns of a tensor.
  void Write(int64_t rank, const TensorSlice& held, const std::vector<float>& elements,
             const std::string& workload = "gpt") {
    const ProbeHeader header = {.program = "test",
                                .workload = workload,
                                .model = "m",
                                .step = 3,
                                .rank = rank,
                                .ranks = 2,
                                .blocks = {"block"}};
    absl::StatusOr<ProbeWriter> writer = ProbeWriter::Open(Folder(), header, true);
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_TRUE(
        writer->Add({.place = "block.layer", .number = 1, .held = held}, Bytes(elements)).ok());
    ASSERT_TRUE(writer->Commit().ok());
  }
  void WriteBoth() {
    Write(0, Columns(0, 1), {1, 4});
    Write(1, Columns(1, 2), {-2, 3, 0, -6});
  }
  std::string Error() const { return std::string(ReadProbedRun(run_).status().message()); }

  const std::string run_;
};

TEST_F(ProbeFilesTest, ShardsOfTwoRanksBecomeTheWhole) {
  WriteBoth();
  const absl::StatusOr<ProbedRun> run = ReadProbedRun(run_);
  ASSERT_TRUE(run.ok()) << run.status();
  const ProbedWhole* tensor = run->Find({.step = 3, .number = 1, .place = "block.layer"});
  ASSERT_NE(tensor, nullptr);
  EXPECT_TRUE(tensor->is_complete());
  EXPECT_EQ(tensor->digest.hash, Digest(kElements, WholeSlice({2, 3})).hash);
  const std::string values = run->Values(*tensor).value();
  EXPECT_EQ(std::memcmp(values.data(), kElements.data(), values.size()), 0);
  EXPECT_EQ(tensor->key.ToString(), "step 4, micro-batch 1, forward of block.layer");
}

TEST_F(ProbeFilesTest, CopiesThatDifferAreNoted) {
  Write(0, WholeSlice({2}), {1, 2});
  Write(1, WholeSlice({2}), {1, 3});
  EXPECT_EQ(ReadProbedRun(run_)->tensors[0].conflict, "ranks 0 and 1 have copies");
}

TEST_F(ProbeFilesTest, AMissingShardLeavesTheTensorIncomplete) {
  Write(0, Columns(0, 1), {1, 4});
  Write(1, Columns(0, 1), {1, 4});
  EXPECT_FALSE(ReadProbedRun(run_)->tensors[0].is_complete());
}

TEST_F(ProbeFilesTest, AnyFlippedBitOfTheRowsIsSeen) {
  WriteBoth();
  const std::string text = ReadFile(Path(0)).value();
  for (size_t i = 0; i < text.size(); ++i) {
    std::string damaged = text;
    damaged[i] = static_cast<char>(damaged[i] ^ 1);
    ASSERT_TRUE(WriteFileAtomically(Path(0), damaged).ok());
    EXPECT_FALSE(ReadProbeFile(Path(0)).ok()) << i;
  }
}

TEST_F(ProbeFilesTest, DamagedValuesAreRefused) {
  WriteBoth();
  std::string values = ReadFile(Path(1, "values")).value();
  values[5] = static_cast<char>(values[5] ^ 4);
  ASSERT_TRUE(WriteFileAtomically(Path(1, "values"), values).ok());
  const ProbedRun run = ReadProbedRun(run_).value();
  EXPECT_THAT(run.Values(run.tensors[0]).status().message(),
              HasSubstr("is damaged: the values of block.layer are not those of their hash"));
}

TEST_F(ProbeFilesTest, ValuesThatAreCutShortAreRefused) {
  WriteBoth();
  const std::string values = ReadFile(Path(1, "values")).value();
  for (const size_t length : {values.size() - 1, size_t{0}}) {
    ASSERT_TRUE(WriteFileAtomically(Path(1, "values"), values.substr(0, length)).ok());
    const ProbedRun run = ReadProbedRun(run_).value();
    EXPECT_THAT(run.Values(run.tensors[0]).status().message(),
                HasSubstr("has no values of block.layer; run again with --set probe.values=true"));
  }
}

TEST_F(ProbeFilesTest, WhatIsCutShortIsRefused) {
  WriteBoth();
  const std::string text = ReadFile(Path(0)).value();
  const size_t last_row = text.rfind('\n', text.size() - 2) + 1;
  ASSERT_TRUE(WriteFileAtomically(Path(0), text.substr(0, last_row)).ok());
  EXPECT_THAT(Error(), HasSubstr("is missing: the file was cut short"));
  ASSERT_TRUE(WriteFileAtomically(Path(0), "").ok());
  EXPECT_THAT(Error(), HasSubstr("the file is empty"));
}

TEST_F(ProbeFilesTest, AMissingRankIsNamed) {
  Write(0, Columns(0, 1), {1, 4});
  EXPECT_THAT(Error(), HasSubstr("step 4 has probes of 1 of 2 ranks"));
}

TEST_F(ProbeFilesTest, FilesOfTwoRunsAreRefused) {
  Write(0, Columns(0, 1), {1, 4});
  Write(1, Columns(1, 2), {-2, 3, 0, -6}, "another");
  EXPECT_THAT(Error(), HasSubstr("belongs to another run than"));
}

TEST_F(ProbeFilesTest, StepsOfTwoLegsBelongToOneRun) {
  const auto write = [this](int64_t step, const char* program, int64_t ranks, bool has_legs) {
    for (int64_t rank = 0; rank < ranks; ++rank) {
      auto writer = ProbeWriter::Open(Folder(),
                                      {.program = program,
                                       .workload = "gpt",
                                       .model = "m",
                                       .step = step,
                                       .rank = rank,
                                       .ranks = ranks,
                                       .blocks = {"block"},
                                       .has_legs = has_legs},
                                      /*with_values=*/false);
      ASSERT_TRUE(writer.ok()) << writer.status();
      ASSERT_TRUE(
          writer->Add({.place = "block.layer", .held = WholeSlice({2, 3})}, Bytes(kElements)).ok());
      ASSERT_TRUE(writer->Commit().ok());
    }
  };
  write(2, "one", 1, true);
  write(3, "two", 2, true);
  const absl::StatusOr<ProbedRun> run = ReadProbedRun(run_);
  ASSERT_TRUE(run.ok()) << run.status();
  EXPECT_EQ(run->tensors.size(), 2u);
  EXPECT_EQ(run->Programs(), "one, 1 ranks; two, 2 ranks");
  std::filesystem::remove(Path(1));
  EXPECT_THAT(Error(), HasSubstr("step 4 has probes of 1 of 2 ranks"));
  write(3, "two", 2, false);
  EXPECT_THAT(Error(), HasSubstr("belongs to another run than"));
  write(3, "two", 2, true);
  write(3, "one", 1, true);  // rank 0 of another leg in the same step
  EXPECT_THAT(Error(), HasSubstr("belongs to another run than"));
}

TEST_F(ProbeFilesTest, ARunWithoutProbesSaysHowToGetThem) {
  EXPECT_THAT(Error(), HasSubstr("holds no probes; run again with --set probe.steps=3"));
}

}  // namespace
}  // namespace lockstep
