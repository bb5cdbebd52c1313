#include "core/checkpoint/published_weights.h"

#include <algorithm>
#include <cmath>  // std::nanf
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <limits>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/file.h"
#include "core/checkpoint/checkpoint.h"
#include "core/checkpoint/testing/safetensors_by_hand.h"
#include "core/checkpoint/weights.h"
#include "core/comm/launch.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

using Layout = PublishedTensor::Layout;
using Rows = PublishedTensor::Rows;

// A matrix [5, 3] that lies there as [3, 5], a bias, and a table [4, 3] that lies there with two
// more rows and is tied. Small whole numbers, which 16 bits hold as well.
float Weight(int64_t out, int64_t in) { return static_cast<float>(10 * out + in); }
float Bias(int64_t, int64_t i) { return static_cast<float>(-i); }
float Table(int64_t row, int64_t column) { return static_cast<float>(100 + 3 * row + column); }

const PublishedNames kNames = {.prefix = "model.",
                               .tensors = {{"ours.weight", "w", Layout::kTransposed},
                                           {"ours.bias", "b"},
                                           {"ours.table", "t", Layout::kSame, Rows::kFirst}},
                               .tied = {{"ours.table", "head"}},
                               .ignored = {"mask"}};

constexpr int64_t kManyBytes = 1 << 20;

class PublishedWeightsTest : public ::testing::Test {
 protected:
  PublishedWeightsTest() {
    const auto* test = testing::UnitTest::GetInstance()->current_test_info();
    folder_ = absl::StrCat(testing::TempDir(), "/published_weights_test.", test->name());
    std::filesystem::create_directories(folder_);
    path_ = folder_ + "/file.safetensors";
  }
  ~PublishedWeightsTest() override { std::filesystem::remove_all(folder_); }

  static SafetensorsByHand File(const std::string& prefix = "", const std::string& dtype = "F32") {
    SafetensorsByHand file;
    file.Add(
        prefix + "w", 3, 5, [](int64_t in, int64_t out) { return Weight(out, in); }, dtype);
    file.AddVector(prefix + "b", 5, Bias);
    file.Add(prefix + "t", 6, 3, Table, dtype);
    return file;
  }

  void Write(const std::string& bytes) const { std::ofstream(path_, std::ios::binary) << bytes; }

  StateTensor Whole(const std::string& name, const Shape& shape) {
    return {.name = name, .tensor = kernels_.Empty(shape), .full_shape = shape};
  }
  std::vector<StateTensor> State() {
    return {Whole("ours.weight", {5, 3}), Whole("ours.bias", {5}), Whole("ours.table", {4, 3})};
  }

  // Loads parts, and compares each element with what the formulas say of it.
  void ExpectLoads(const std::vector<StateTensor>& state) {
    for (const StateTensor& part : state) kernels_.Fill(part.tensor, -777);
    const absl::Status status = LoadWeights(path_, kNames, state, kernels_);
    ASSERT_TRUE(status.ok()) << status;
    for (const StateTensor& part : state) {
      const auto formula = part.name == "ours.weight" ? Weight
                           : part.name == "ours.bias" ? Bias
                                                      : Table;
      const int64_t columns = part.full_shape[part.full_shape.rank() - 1];
      for (const ElementRange& range : part.held().ElementRanges()) {
        for (int64_t i = 0; i < range.elements; ++i) {
          const int64_t whole = range.in_whole + i;
          ASSERT_EQ(part.tensor.data<float>()[range.in_slice + i],
                    formula(whole / columns, whole % columns))
              << part.name << " element " << whole;
        }
      }
    }
  }

  std::string Problem(const std::vector<StateTensor>& state) {
    const absl::Status status = LoadWeights(path_, kNames, state, kernels_);
    EXPECT_EQ(CheckWeights(path_, kNames, state), status);
    EXPECT_EQ(status.code(), absl::StatusCode::kFailedPrecondition) << status;
    return std::string(status.message());
  }

  std::string folder_, path_;
  CpuAllocator allocator_;
  CpuKernels kernels_{allocator_};
};

// What is counted in training starts anew.
TEST_F(PublishedWeightsTest, StatisticsThatAreNotPublishedStay) {
  Write(File().Bytes());
  std::vector<StateTensor> state = State();
  state.push_back(Whole("router.running_load", {2}));
  kernels_.Fill(state.back().tensor, 3);
  const absl::Status status = LoadWeights(path_, kNames, state, kernels_);
  ASSERT_TRUE(status.ok()) << status;
  EXPECT_EQ(state.back().tensor.data<float>()[1], 3);
  EXPECT_EQ(state.front().tensor.data<float>()[4], Weight(1, 1));
}

TEST_F(PublishedWeightsTest, ReadsWholeTensors) {
  for (const char* prefix : {"", "model."}) {
    for (const char* dtype : {"F32", "F16", "BF16"}) {
      Write(File(prefix, dtype).Bytes());
      ExpectLoads(State());
    }
  }
}

// As ranks of fsdp hold them: any range of the elements.
TEST_F(PublishedWeightsTest, ReadsAnyRange) {
  Write(File().Bytes());
  for (const StateTensor& whole : State()) {
    const int64_t elements = whole.full_shape.elements();
    for (int64_t first = 0; first <= elements; ++first) {
      for (int64_t last = first; last <= elements; ++last) {
        std::vector<StateTensor> state = State();
        for (StateTensor& part : state) {
          if (part.name != whole.name) continue;
          part.tensor = kernels_.Empty({last - first});
          part.first = first;
        }
        ExpectLoads(state);
      }
    }
  }
}

// As ranks of tp hold them: rows, columns, several ranges of them.
TEST_F(PublishedWeightsTest, ReadsAnySlice) {
  Write(File().Bytes());
  const auto with_slice = [this](const std::string& name, const Slice& slice) {
    std::vector<StateTensor> state = State();
    for (StateTensor& part : state) {
      if (part.name != name) continue;
      part.slice = slice;
      part.tensor = kernels_.Empty(slice.ShapeOf(part.full_shape));
    }
    return state;
  };
  for (int64_t first = 0; first < 3; ++first) {
    for (int64_t count = 1; first + count <= 3; ++count) {
      for (const char* name : {"ours.weight", "ours.table"}) {
        for (int64_t dimension : {0, 1}) {
          ExpectLoads(with_slice(name, {.dimension = dimension, .ranges = {{first, count}}}));
        }
      }
    }
  }
  ExpectLoads(with_slice("ours.weight", {.dimension = 0, .ranges = {{0, 1}, {2, 1}, {4, 1}}}));
  ExpectLoads(with_slice("ours.weight", {.dimension = 0, .ranges = {{0, 2}, {3, 2}}}));
  ExpectLoads(with_slice("ours.weight", {.dimension = 1, .ranges = {{0, 1}, {2, 1}}}));
}

// Larger than what is read together, and than a block of checksums.
TEST_F(PublishedWeightsTest, ReadsLongMatrices) {
  constexpr int64_t kOut = 90'000, kIn = 7;
  const auto value = [](int64_t out, int64_t in) { return static_cast<float>(out * kIn + in); };
  SafetensorsByHand file;
  file.Add("w", kIn, kOut, [&](int64_t in, int64_t out) { return value(out, in); });
  Write(file.Bytes());
  const PublishedNames names = {
      .prefix = "", .tensors = {{"w", "w", Layout::kTransposed}}, .tied = {}, .ignored = {}};
  const std::vector<StateTensor> state = {Whole("w", {kOut, kIn})};
  const auto expect = [&] {
    ASSERT_EQ(LoadWeights(path_, names, state, kernels_), absl::OkStatus());
    for (int64_t i = 0; i < kOut * kIn; ++i) {
      ASSERT_EQ(state[0].tensor.data<float>()[i], static_cast<float>(i));
    }
  };
  expect();
  // With checksums.
  ASSERT_EQ(WritePublishedModel(folder_ + "/written", names, state, kManyBytes, kernels_),
            absl::OkStatus());
  path_ = folder_ + "/written";
  kernels_.Fill(state[0].tensor, -777);
  expect();
}

TEST_F(PublishedWeightsTest, ListsAllThatDoesNotFit) {
  SafetensorsByHand file = File("model.");
  file.Remove("model.b");
  file.Add("model.t", 3, 3, Table);  // too few rows
  file.Add("model.w", 5, 3, Weight);
  file.Add("model.extra", 1, 1, Table);
  file.Add("w", 3, 5, Table);           // has no prefix, as others have
  file.Add("model.mask", 2, 2, Table);  // fine
  Write(file.Bytes());
  EXPECT_EQ(Problem(State()),
            absl::StrCat("\"", path_,
                         "\" does not fit this model:\n"
                         "  'model.w' has the shape [5, 3], but this model's is [3, 5]\n"
                         "  'model.b' is missing\n"
                         "  'model.t' has the shape [3, 3], but this model's is [4, 3]\n"
                         "  'model.extra' is no tensor of this model\n"
                         "  'w' is no tensor of this model"));
  // Files of another kind altogether.
  file = File();
  file.Add("t", 6, 4, Table);
  Write(file.Bytes());
  EXPECT_THAT(Problem(State()), HasSubstr("'t' has the shape [6, 4], but this model's is [4, 3]"));
  Write(SafetensorsByHand().Bytes());
  EXPECT_THAT(Problem(State()), AllOf(HasSubstr("'w' is missing"), HasSubstr("'t' is missing")));
}

TEST_F(PublishedWeightsTest, RefusesDtypesThatAreNoWeights) {
  SafetensorsByHand file = File();
  file.Add(
      "w", 3, 5, [](int64_t, int64_t) { return 0.0f; }, "I16");
  Write(file.Bytes());
  EXPECT_THAT(Problem(State()), HasSubstr("'w' is I16; only F32, F16 and BF16 are read"));
}

TEST_F(PublishedWeightsTest, ATiedTensorMayComeTwice) {
  SafetensorsByHand file = File("model.");
  file.Add("head", 6, 3, Table);  // under no prefix
  Write(file.Bytes());
  ExpectLoads(State());
  // Another value, in its third row.
  file.Add("head", 6, 3,
           [](int64_t row, int64_t column) { return Table(row, column) + (row == 2 ? 1 : 0); });
  Write(file.Bytes());
  const absl::Status status = LoadWeights(path_, kNames, State(), kernels_);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("'head' differs from 'model.t', but here they are one tensor"));
  // A rank looks at what it holds.
  std::vector<StateTensor> state = State();
  state[2].slice = Slice{.dimension = 0, .ranges = {{0, 2}}};
  state[2].tensor = kernels_.Empty({2, 3});
  ExpectLoads(state);
  file.Add("head", 3, 3, Table);
  Write(file.Bytes());
  EXPECT_THAT(Problem(State()), HasSubstr("'head' has the shape [3, 3]"));
}

// What is written lies where the format and the names say, which another parser finds.
TEST_F(PublishedWeightsTest, WritesWhatOthersRead) {
  Write(File().Bytes());
  const std::vector<StateTensor> state = State();
  ExpectLoads(state);
  const std::string written = folder_ + "/written", path = written + "/model.safetensors";
  ASSERT_EQ(WritePublishedModel(written, kNames, state, kManyBytes, kernels_), absl::OkStatus());
  EXPECT_FALSE(std::filesystem::exists(written + "/config.json"));  // nothing is known
  const std::string bytes = *ReadFile(path);
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(bytes[i]);
  auto header = nlohmann::json::parse(bytes.substr(8, length));
  auto metadata = header["__metadata__"];
  header.erase("__metadata__");
  EXPECT_EQ(metadata["format"], "pt");
  // One for the header and one for each tensor.
  EXPECT_EQ(metadata["lockstep.checksums"].get<std::string>().size(), 16u * 4);
  EXPECT_EQ(metadata.size(), 2u);
  EXPECT_EQ(header, nlohmann::json::parse(R"({
    "w": {"dtype": "F32", "shape": [3, 5], "data_offsets": [0, 60]},
    "b": {"dtype": "F32", "shape": [5], "data_offsets": [60, 80]},
    "t": {"dtype": "F32", "shape": [4, 3], "data_offsets": [80, 128]}
  })"));
  std::vector<float> values(32);
  ASSERT_EQ(bytes.size(), 8 + length + 128);
  std::copy_n(bytes.data() + 8 + length, 128, reinterpret_cast<char*>(values.data()));
  for (int64_t in = 0; in < 3; ++in) {
    for (int64_t out = 0; out < 5; ++out) EXPECT_EQ(values[in * 5 + out], Weight(out, in));
  }
  for (const std::string& named : {path, written}) {
    path_ = named;
    ExpectLoads(State());
  }
}

TEST_F(PublishedWeightsTest, DamagedWeightsAreNotRead) {
  Write(File().Bytes());
  const std::vector<StateTensor> state = State();
  ExpectLoads(state);
  ASSERT_EQ(WritePublishedModel(folder_ + "/written", kNames, state, kManyBytes, kernels_),
            absl::OkStatus());
  path_ = folder_ + "/written";
  const std::string file = path_ + "/model.safetensors";
  const std::string good = *ReadFile(file);
  // 60 bytes of w, 20 of b, 48 of t.
  for (const auto& [from_end, tensor] : {std::pair(128, "'w'"), {50, "'b'"}, {1, "'t'"}}) {
    std::string bytes = good;
    char& byte = bytes[bytes.size() - static_cast<size_t>(from_end)];
    byte = static_cast<char>(byte ^ 1);
    std::ofstream(file, std::ios::binary) << bytes;
    const absl::Status status = LoadWeights(path_, kNames, State(), kernels_);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    EXPECT_THAT(std::string(status.message()),
                AllOf(HasSubstr(file),
                      HasSubstr(absl::StrCat("of tensor ", tensor, " do not have the checksum"))));
  }
}

TEST_F(PublishedWeightsTest, WeightsThatAreNotFiniteAreNotWritten) {
  Write(File().Bytes());
  const std::vector<StateTensor> state = State();
  ExpectLoads(state);
  for (const float bad : {std::numeric_limits<float>::infinity(), std::nanf("")}) {
    state[1].tensor.data<float>()[4] = bad;
    const std::string folder = folder_ + "/diverged";
    EXPECT_THAT(
        std::string(WritePublishedModel(folder, kNames, state, kManyBytes, kernels_).message()),
        AllOf(HasSubstr("'" + state[1].name + "' has elements that are infinite or NaN"),
              HasSubstr("nothing is written")));
    EXPECT_FALSE(std::filesystem::exists(folder));
  }
}

// The tensors of 60, 20 and 48 bytes, in files of at most 80 bytes and of one tensor each.
TEST_F(PublishedWeightsTest, WeightsMayBeDividedAmongFiles) {
  Write(File().Bytes());
  const std::vector<StateTensor> state = State();
  ExpectLoads(state);
  const std::string written = folder_ + "/written", index = "/model.safetensors.index.json";
  ASSERT_EQ(WritePublishedModel(written, kNames, state, 80, kernels_), absl::OkStatus());
  EXPECT_EQ(nlohmann::json::parse(*ReadFile(written + index)), nlohmann::json::parse(R"({
    "metadata": {"total_size": 128},
    "weight_map": {"w": "model-00001-of-00002.safetensors",
                   "b": "model-00001-of-00002.safetensors",
                   "t": "model-00002-of-00002.safetensors"}
  })"));
  for (const std::string& named : {written, written + index}) {
    path_ = named;
    ExpectLoads(State());
  }
  ASSERT_EQ(WritePublishedModel(written + "3", kNames, state, 1, kernels_), absl::OkStatus());
  path_ = written + "3";
  ExpectLoads(State());
  std::filesystem::remove(path_ + "/model-00002-of-00003.safetensors");
  EXPECT_THAT(std::string(CheckWeights(path_, kNames, State()).message()),
              HasSubstr("model-00002-of-00003.safetensors"));
  for (const char* text : {"", "{}", R"({"weight_map": {}})", R"({"weight_map": {"w": 3}})",
                           R"({"weight_map": {"w": "../file.safetensors"}})"}) {
    std::ofstream(path_ + index) << text;
    EXPECT_THAT(Problem(State()), HasSubstr("has no \"weight_map\"")) << text;
  }
}

// A weight [5, 3] that is published as its first two rows and the others, as ranks hold it.
TEST_F(PublishedWeightsTest, AParameterMayBeSeveralTensors) {
  const PublishedNames names = {
      .prefix = "",
      .tensors = {{.parameter = "w", .name = "a", .of_parameter = {0, 2}},
                  {.parameter = "w", .name = "b", .of_parameter = {2, 3}}},
      .tied = {},
      .ignored = {}};
  SafetensorsByHand file;
  file.Add("a", 2, 3, Weight);
  file.Add("b", 3, 3, [](int64_t row, int64_t column) { return Weight(row + 2, column); });
  Write(file.Bytes());
  const auto expect = [&](const StateTensor& part) {
    kernels_.Fill(part.tensor, -777);
    ASSERT_EQ(LoadWeights(path_, names, {part}, kernels_), absl::OkStatus());
    for (const ElementRange& range : part.held().ElementRanges()) {
      for (int64_t i = 0; i < range.elements; ++i) {
        const int64_t at = range.in_whole + i;
        ASSERT_EQ(part.tensor.data<float>()[range.in_slice + i], Weight(at / 3, at % 3)) << at;
      }
    }
  };
  const StateTensor whole = Whole("w", {5, 3});
  for (const Slice& slice :
       {Slice{.dimension = 0, .ranges = {{1, 1}, {3, 2}}},
        Slice{.dimension = 0, .ranges = {{1, 3}}}, Slice{.dimension = 1, .ranges = {{1, 2}}}}) {
    StateTensor part = Whole("w", {5, 3});
    part.slice = slice;
    part.tensor = kernels_.Empty(slice.ShapeOf(part.full_shape));
    expect(part);
  }
  for (int64_t first = 0; first < 15; ++first) {
    StateTensor part = Whole("w", {5, 3});
    part.tensor = kernels_.Empty({15 - first});
    part.first = first;
    expect(part);
  }
  expect(whole);
  ASSERT_EQ(WritePublishedModel(folder_ + "/written", names, {whole}, kManyBytes, kernels_),
            absl::OkStatus());
  path_ = folder_ + "/written";
  expect(Whole("w", {5, 3}));
  file.Remove("b");
  file.Add("a", 5, 3, Weight);
  path_ = folder_ + "/file.safetensors";
  Write(file.Bytes());
  EXPECT_THAT(std::string(CheckWeights(path_, names, {whole}).message()),
              AllOf(HasSubstr("'a' has the shape [5, 3], but this model's is [2, 3]"),
                    HasSubstr("'b' is missing")));
}

TEST_F(PublishedWeightsTest, AConfigBesideMustFit) {
  Write(File().Bytes());
  PublishedNames names = kNames;
  names.check_config = [](const std::string& text) {
    return text == "fits" ? absl::OkStatus() : absl::FailedPreconditionError("is \"" + text + "\"");
  };
  EXPECT_EQ(LoadWeights(path_, names, State(), kernels_), absl::OkStatus());  // there is none
  const std::string config = folder_ + "/config.json";
  std::ofstream(config) << "fits";
  EXPECT_EQ(LoadWeights(path_, names, State(), kernels_), absl::OkStatus());
  std::ofstream(config) << "other";
  EXPECT_EQ(CheckWeights(path_, names, State()),
            absl::FailedPreconditionError("\"" + config + "\" is \"other\""));
  names.config = "fits";
  ASSERT_EQ(WritePublishedModel(folder_ + "/written", names, State(), kManyBytes, kernels_),
            absl::OkStatus());
  EXPECT_EQ(CheckWeights(folder_ + "/written", names, State()), absl::OkStatus());
}

TEST_F(PublishedWeightsTest, WeightsOfACheckpointLoadToo) {
  Write(File().Bytes());
  std::vector<StateTensor> saved = State();
  ExpectLoads(saved);
  saved.push_back(Whole("optimizer.moment.ours.bias", {5}));
  kernels_.Fill(saved.back().tensor, 1);
  const auto save = [&](const std::vector<StateTensor>& state) {
    const absl::Status status = RunRanks(1, {}, [&](RankHandle& handle) {
      return SaveCheckpoint(folder_ + "/checkpoints", {.step = 3}, state, {}, kernels_,
                            handle.comm());
    });
    ASSERT_TRUE(status.ok()) << status;
    path_ = **NewestCheckpoint(folder_ + "/checkpoints");
  };
  save(saved);
  ExpectLoads(State());
  // Also where no names are known; and a run's directory stands for the newest of its own.
  EXPECT_EQ(CheckWeights(path_, {}, State()), absl::OkStatus());
  path_ = folder_;
  ExpectLoads(State());

  save({saved[0], saved[1]});
  EXPECT_THAT(Problem(State()), AllOf(HasSubstr("holds no tensor 'ours.table'"),
                                      HasSubstr("another model"), Not(HasSubstr("--out"))));
  saved.push_back(Whole("ours.more", {1}));
  save(saved);
  EXPECT_THAT(Problem(State()), HasSubstr("holds 4 tensors, but this run has 3"));
}

TEST_F(PublishedWeightsTest, SaysWhatIsNoFileOfWeights) {
  EXPECT_EQ(LoadWeights(path_, kNames, State(), kernels_).code(), absl::StatusCode::kNotFound);
  Write("no safetensors");
  EXPECT_THAT(std::string(CheckWeights(path_, kNames, State()).message()),
              HasSubstr("is no sound safetensors file"));
  Write(File().Bytes());
  EXPECT_THAT(std::string(CheckWeights(path_, {}, State()).message()),
              HasSubstr("is no checkpoint of a training run"));
}

// Changed or cut anywhere, a file is refused or read, and nothing outside of the tensors is
// touched, which AddressSanitizer would tell.
TEST_F(PublishedWeightsTest, MutatedFilesAreRefusedOrReadable) {
  const std::string original = File("model.").Bytes();
  std::mt19937 random(1);
  int read = 0, refused = 0;
  for (int i = 0; i < 2'000; ++i) {
    std::string mutated = original;
    for (size_t change = 0; change <= random() % 3; ++change) {
      const size_t at = random() % mutated.size();
      mutated[at] =
          random() % 2 == 0 ? static_cast<char>(random()) : "0123456789,\"}wbt"[random() % 16];
    }
    if (random() % 4 == 0) mutated.resize(random() % (original.size() + 20));
    Write(mutated);
    const absl::Status status = LoadWeights(path_, kNames, State(), kernels_);
    (status.ok() ? read : refused) += 1;
    const std::string message(status.message());
    EXPECT_TRUE(status.ok() || absl::StrContains(message, path_)) << message;
  }
  EXPECT_GT(read, 50);
  EXPECT_GT(refused, 500);
}

}  // namespace
}  // namespace lockstep
