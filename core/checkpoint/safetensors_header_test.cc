#include "core/checkpoint/safetensors_header.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Pair;
using ::testing::StartsWith;

// What is wrong with a header, after the file's name.
std::string Problem(const std::string& json, int64_t data_bytes) {
  const absl::Status status = ParseSafetensorsHeader(json, data_bytes, "f").status();
  if (status.ok()) return "";
  EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
  const std::string message(status.message());
  const std::string prefix = "\"f\" is no sound safetensors file: ";
  EXPECT_THAT(message, AllOf(StartsWith(prefix), EndsWith(kDamageRemedy)));
  return message.substr(prefix.size(), message.size() - prefix.size() - std::strlen(kDamageRemedy));
}

// The same for a header with one tensor "w".
std::string ProblemWith(const std::string& dtype, const std::string& shape,
                        const std::string& offsets, int64_t data_bytes) {
  return Problem(
      R"({"w":{"dtype":)" + dtype + R"(,"shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
      data_bytes);
}

TEST(SafetensorsHeaderTest, ParsesInTheOrderOfTheData) {
  const absl::StatusOr<SafetensorsHeader> header =
      ParseSafetensorsHeader(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[2,26]},)"
                             R"("__metadata__":{"format":"pt","empty":""},)"
                             R"("é\n":{"dtype":"BF16","shape":[],"data_offsets":[0,2]},)"
                             R"("none":{"dtype":"I64","shape":[4,0],"data_offsets":[26,26]}}   )",
                             26, "f");
  ASSERT_TRUE(header.ok()) << header.status();
  EXPECT_THAT(header->metadata, ElementsAre(Pair("empty", ""), Pair("format", "pt")));
  ASSERT_EQ(header->tensors.size(), 3u);
  EXPECT_EQ(header->tensors[0].name, "é\n");
  EXPECT_EQ(header->tensors[0].dtype, "BF16");
  EXPECT_THAT(header->tensors[0].shape, IsEmpty());
  EXPECT_EQ(header->tensors[0].bytes, 2);
  EXPECT_EQ(header->tensors[1].name, "a");
  EXPECT_THAT(header->tensors[1].shape, ElementsAre(2, 3));
  EXPECT_EQ(header->tensors[1].begin, 2);
  EXPECT_EQ(header->tensors[1].bytes, 24);
  EXPECT_EQ(header->tensors[2].name, "none");
  EXPECT_EQ(header->tensors[2].bytes, 0);
}

TEST(SafetensorsHeaderTest, AcceptsAnEmptyFile) {
  EXPECT_EQ(Problem("{}", 0), "");
  EXPECT_EQ(Problem(R"({"__metadata__":{}}  )", 0), "");
}

TEST(SafetensorsHeaderTest, RefusesWhatIsNoJsonObject) {
  EXPECT_EQ(Problem("", 0), "its header does not begin with \"{\"");
  EXPECT_EQ(Problem(" {}", 0), "its header does not begin with \"{\"");
  EXPECT_EQ(Problem("[]", 0), "its header does not begin with \"{\"");
  EXPECT_EQ(Problem("{\"a\":", 0), "its header is not valid JSON at byte 6");
  EXPECT_EQ(Problem("{} x", 0), "its header is not valid JSON at byte 4");
  EXPECT_EQ(Problem("{\"\xff\":1}", 0), "its header is not valid JSON at byte 3");
  EXPECT_EQ(Problem("{\"a\":1e999}", 0), "its header holds a number that is too large");
  EXPECT_EQ(Problem("{\"a\":{\"b\":[[1]]}}", 0),
            "its header holds lists or objects too deep inside others");
}

TEST(SafetensorsHeaderTest, RefusesDepthWithoutBuildingIt) {
  EXPECT_EQ(Problem("{\"a\":" + std::string(1'000'000, '[') + std::string(1'000'000, ']') + "}", 0),
            "its header holds lists or objects too deep inside others");
  EXPECT_THAT(Problem("{\"a\":" + std::string(1'000'000, '['), 0), HasSubstr("not valid JSON"));
}

TEST(SafetensorsHeaderTest, RefusesNamesThatComeTwice) {
  const std::string tensor = R"({"dtype":"U8","shape":[1],"data_offsets":[0,1]})";
  EXPECT_EQ(Problem(R"({"a":)" + tensor + R"(,"\u0061":)" + tensor + "}", 1),
            "its header has \"a\" twice");
  EXPECT_EQ(Problem(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", 1),
            "its header has \"dtype\" twice");
  EXPECT_EQ(Problem(R"({"__metadata__":{},"__metadata__":{}})", 0),
            "its header has \"__metadata__\" twice");
  EXPECT_EQ(Problem(R"({"__metadata__":{"k":"1","k":"2"}})", 0), "its header has \"k\" twice");
  // The same word in different objects is fine.
  EXPECT_EQ(Problem(R"({"dtype":)" + tensor + R"(,"__metadata__":{"dtype":"x"}})", 1), "");
}

TEST(SafetensorsHeaderTest, RefusesOtherMetadata) {
  EXPECT_EQ(Problem(R"({"__metadata__":"x"})", 0), "its __metadata__ is no map");
  EXPECT_EQ(Problem(R"({"__metadata__":{"k":1}})", 0), "its __metadata__ \"k\" is no string");
}

TEST(SafetensorsHeaderTest, RefusesIncompleteOrUnknownDescriptions) {
  const std::string problem =
      "tensor \"w\" is not described by \"dtype\", \"shape\" and \"data_offsets\", and only these";
  EXPECT_EQ(Problem(R"({"w":3})", 0), problem);
  EXPECT_EQ(Problem(R"({"w":{"dtype":"U8","shape":[0]}})", 0), problem);
  EXPECT_EQ(Problem(R"({"w":{"dtype":"U8","shape":[0],"offsets":[0,0]}})", 0), problem);
  EXPECT_EQ(Problem(R"({"w":{"dtype":"U8","shape":[0],"data_offsets":[0,0],"x":1}})", 0), problem);
}

TEST(SafetensorsHeaderTest, RefusesUnknownDtypes) {
  EXPECT_EQ(ProblemWith("\"F33\"", "[1]", "[0,4]", 4), "tensor \"w\" has an unknown dtype \"F33\"");
  EXPECT_EQ(ProblemWith("\"f32\"", "[1]", "[0,4]", 4), "tensor \"w\" has an unknown dtype \"f32\"");
  EXPECT_EQ(ProblemWith("7", "[1]", "[0,4]", 4), "tensor \"w\" has a dtype that is no string");
}

TEST(SafetensorsHeaderTest, RefusesOtherShapesAndOffsets) {
  const std::string shape = "tensor \"w\" has a shape that is no list of dimensions";
  for (const char* bad : {"1", "{}", "[-1]", "[1.0]", "[\"1\"]", "[null]", "[9223372036854775808]",
                          "[18446744073709551616]"}) {
    EXPECT_EQ(ProblemWith("\"F32\"", bad, "[0,4]", 4), shape) << bad;
  }
  const std::string offsets = "tensor \"w\" has data_offsets that are no [begin, end]";
  for (const char* bad : {"4", "[]", "[0]", "[0,4,8]", "[4,0]", "[-4,0]", "[0,4.0]", "[true,4]"}) {
    EXPECT_EQ(ProblemWith("\"F32\"", "[1]", bad, 4), offsets) << bad;
  }
}

TEST(SafetensorsHeaderTest, RefusesSizesThatDisagree) {
  EXPECT_EQ(ProblemWith("\"F32\"", "[2, 3]", "[0,23]", 23),
            "tensor \"w\" has 23 bytes, which do not fit its dtype F32 and shape [2, 3]");
  EXPECT_EQ(ProblemWith("\"F16\"", "[]", "[0,4]", 4),
            "tensor \"w\" has 4 bytes, which do not fit its dtype F16 and shape []");
  // 2^32 * 2^32 wraps around to 0 in 64 bits.
  EXPECT_THAT(ProblemWith("\"U8\"", "[4294967296, 4294967296]", "[0,0]", 0),
              HasSubstr("do not fit"));
}

TEST(SafetensorsHeaderTest, RefusesRangesThatDoNotTileTheData) {
  const auto two = [](const std::string& a, const std::string& b, int64_t data_bytes) {
    return Problem(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + a +
                       R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + b + "}}",
                   data_bytes);
  };
  EXPECT_EQ(two("[4,8]", "[0,4]", 8), "");
  EXPECT_EQ(two("[0,4]", "[3,7]", 7), "tensor \"b\" overlaps tensor \"a\"");
  EXPECT_EQ(two("[0,4]", "[0,4]", 4), "tensor \"b\" overlaps tensor \"a\"");
  EXPECT_EQ(two("[0,4]", "[5,9]", 9),
            "between tensor \"a\" and tensor \"b\" lie 1 bytes that belong to no tensor");
  EXPECT_EQ(two("[1,5]", "[5,9]", 9),
            "between the start of the data and tensor \"a\" lie 1 bytes that belong to no tensor");
  EXPECT_EQ(two("[0,4]", "[4,8]", 9), "1 bytes at its end belong to no tensor");
  EXPECT_EQ(two("[0,4]", "[4,8]", 7),
            "tensor \"b\" ends at byte 8 of the data, of which the file has only 7: it was cut "
            "short");
  EXPECT_EQ(Problem("{}", 1), "1 bytes at its end belong to no tensor");
}

TEST(SafetensorsHeaderTest, MessagesStayShortAndPrintable) {
  const std::string problem = Problem("{\"" + std::string(5'000, 'x') + "\\u0000\\n\":1}", 0);
  EXPECT_LT(problem.size(), 300u);
  EXPECT_THAT(Problem(R"({"a\n\u0007":1})", 0), StartsWith("tensor \"a\\n\\007\" is not"));
}

TEST(SafetensorsHeaderTest, KnowsTheSizesOfDtypes) {
  for (const char* eight : {"F64", "I64", "U64"}) EXPECT_EQ(SafetensorsElementBytes(eight), 8);
  for (const char* four : {"F32", "I32", "U32"}) EXPECT_EQ(SafetensorsElementBytes(four), 4);
  for (const char* two : {"F16", "BF16", "I16", "U16"}) EXPECT_EQ(SafetensorsElementBytes(two), 2);
  for (const char* one : {"U8", "I8", "BOOL", "F8_E4M3", "F8_E5M2"}) {
    EXPECT_EQ(SafetensorsElementBytes(one), 1);
  }
  EXPECT_EQ(SafetensorsElementBytes(""), std::nullopt);
}

SafetensorsHeader Sample() {
  return {.tensors = {{.name = "blocks.0.attention.weight", .dtype = "F32", .shape = {3, 5}},
                      {.name = "quote \" \n é", .dtype = "BF16", .shape = {7}},
                      {.name = "none", .dtype = "F16", .shape = {2, 0}},
                      {.name = "step", .dtype = "I64"}},
          .metadata = {{"format", "pt"}, {"config", "a = \"1\"\nb = 2\n"}}};
}

TEST(SafetensorsHeaderTest, LaysTensorsOutOneAfterTheOther) {
  SafetensorsHeader header = Sample();
  const std::string bytes = LayOutSafetensors(&header);
  EXPECT_EQ(bytes.size() % 64, 0u);
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), 8);
  ASSERT_EQ(length, bytes.size() - 8);

  // Another parser reads it, and what it finds is what was asked for.
  const auto json = nlohmann::json::parse(bytes.substr(8));
  EXPECT_EQ(json, nlohmann::json::parse(R"({
    "__metadata__": {"format": "pt", "config": "a = \"1\"\nb = 2\n"},
    "blocks.0.attention.weight": {"dtype": "F32", "shape": [3, 5], "data_offsets": [0, 60]},
    "quote \" \n é": {"dtype": "BF16", "shape": [7], "data_offsets": [60, 74]},
    "none": {"dtype": "F16", "shape": [2, 0], "data_offsets": [74, 74]},
    "step": {"dtype": "I64", "shape": [], "data_offsets": [74, 82]}
  })"));
  EXPECT_EQ(header.tensors[1].begin, 60);
  EXPECT_EQ(header.tensors[3].bytes, 8);
}

TEST(SafetensorsHeaderTest, LayOutRefusesBrokenPromises) {
  SafetensorsHeader twice{.tensors = {{.name = "a", .dtype = "U8"}, {.name = "a", .dtype = "U8"}},
                          .metadata = {}};
  EXPECT_DEATH(LayOutSafetensors(&twice), "two tensors are called a");
  SafetensorsHeader unknown{.tensors = {{.name = "a", .dtype = "f32"}}, .metadata = {}};
  EXPECT_DEATH(LayOutSafetensors(&unknown), "unknown dtype f32");
  SafetensorsHeader reserved{.tensors = {{.name = "__metadata__", .dtype = "U8"}}, .metadata = {}};
  EXPECT_DEATH(LayOutSafetensors(&reserved), "two tensors");
}

// Changes a header in one to four places, with a taste for what a parser may stumble over.
std::string Mutate(std::string text, std::mt19937* random) {
  static const std::vector<std::string> kPieces = {"{",
                                                   "}",
                                                   "[",
                                                   "]",
                                                   "\"",
                                                   ",",
                                                   ":",
                                                   "\\",
                                                   " ",
                                                   "\n",
                                                   "0",
                                                   "1",
                                                   "-",
                                                   ".",
                                                   "e",
                                                   "null",
                                                   "true",
                                                   "-1",
                                                   "1e999",
                                                   "9223372036854775807",
                                                   "18446744073709551615",
                                                   "18446744073709551616",
                                                   "\"F32\"",
                                                   "\"F99\"",
                                                   "\"dtype\"",
                                                   "\"shape\":[0]",
                                                   "\"data_offsets\"",
                                                   "[[[[",
                                                   "{\"a\":{",
                                                   "\"__metadata__\":{}",
                                                   "\\u0000",
                                                   "\xff",
                                                   std::string(1, '\0'),
                                                   "[0,0]",
                                                   "[4,8]"};
  const auto below = [random](size_t n) { return static_cast<size_t>((*random)() % n); };
  for (size_t i = 1 + below(4); i > 0; --i) {
    const size_t at = below(text.size() + 1);
    switch (below(5)) {
      case 0:
        text.insert(at, kPieces[below(kPieces.size())]);
        break;
      case 1:
        text.erase(at, 1 + below(8));
        break;
      case 2:
        if (at < text.size()) text[at] = static_cast<char>((*random)());
        break;
      case 3:  // a stretch of the header once more
        text.insert(at, text.substr(below(text.size() + 1), below(80)));
        break;
      case 4:  // another digit for a digit
        if (const size_t digit = text.find_first_of("0123456789", at); digit != text.npos) {
          text[digit] = static_cast<char>('0' + below(10));
        }
        break;
    }
  }
  return text;
}

// What ParseSafetensorsHeader promises about all that it accepts, checked by counting each byte.
void ExpectSound(const SafetensorsHeader& header, int64_t data_bytes) {
  std::vector<int> owners(static_cast<size_t>(data_bytes));
  std::vector<std::string> names;
  for (const SafetensorsTensor& tensor : header.tensors) {
    int64_t bytes = SafetensorsElementBytes(tensor.dtype).value();
    for (const int64_t dimension : tensor.shape) bytes *= dimension;
    ASSERT_EQ(bytes, tensor.bytes);
    for (int64_t i = 0; i < bytes; ++i) ++owners.at(static_cast<size_t>(tensor.begin + i));
    EXPECT_THAT(names, testing::Not(testing::Contains(tensor.name)));
    names.push_back(tensor.name);
  }
  EXPECT_THAT(owners, testing::Each(1));
}

TEST(SafetensorsHeaderTest, MutatedHeadersAreRefusedOrSound) {
  std::mt19937 random(1);
  SafetensorsHeader sample = Sample();
  const std::string original = LayOutSafetensors(&sample).substr(8);
  ASSERT_EQ(Problem(original, 82), "");
  int accepted = 0;
  int refused = 0;
  for (int i = 0; i < 20'000; ++i) {
    const std::string mutated = Mutate(original, &random);
    const int64_t data_bytes = random() % 8 == 0 ? random() % 200 : 82;
    const auto header = ParseSafetensorsHeader(mutated, data_bytes, "f");
    if (header.ok()) {
      ++accepted;
      ExpectSound(*header, data_bytes);
    } else {
      ++refused;
      EXPECT_EQ(header.status().code(), absl::StatusCode::kInvalidArgument) << header.status();
    }
  }
  // Both kinds were met: names, metadata and spaces may change.
  EXPECT_GT(accepted, 500);
  EXPECT_GT(refused, 10'000);
}

}  // namespace
}  // namespace lockstep
