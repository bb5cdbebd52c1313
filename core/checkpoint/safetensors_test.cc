#include "core/checkpoint/safetensors.h"

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <numeric>  // std::iota
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/file.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;

std::string PathFor(const std::string& name) {
  const auto* test = testing::UnitTest::GetInstance()->current_test_info();
  return testing::TempDir() + "/safetensors_test." + test->name() + "." + name;
}

std::string Message(const absl::Status& status) { return std::string(status.message()); }

// A file as its format describes it, put together by hand.
std::string FileBytes(const std::string& json, const std::string& data) {
  std::string bytes;
  uint64_t length = json.size();
  for (int i = 0; i < 8; ++i, length >>= 8) bytes += static_cast<char>(length & 0xff);
  return bytes + json + data;
}

// Without waiting for the disk, as fuzzing writes many.
void Write(const std::string& path, const std::string& contents) {
  std::ofstream(path, std::ios::binary) << contents;
}

template <typename T>
absl::StatusOr<std::vector<T>> ReadAll(const SafetensorsReader& reader, const std::string& name) {
  const SafetensorsTensor* tensor = reader.Find(name);
  if (tensor == nullptr) return absl::NotFoundError(name);
  std::vector<T> values(static_cast<size_t>(tensor->bytes) / sizeof(T));
  const absl::Status status = reader.Read(*tensor, std::as_writable_bytes(std::span(values)));
  if (!status.ok()) return status;
  return values;
}

TEST(SafetensorsReaderTest, ReadsAFileMadeByHand) {
  const std::string path = PathFor("file");
  const float values[] = {1.5f, -2.0f, 0.25f};
  std::string data("\x01\x02\x03\x04", 4);
  data.append(reinterpret_cast<const char*>(values), sizeof(values));
  Write(path, FileBytes(R"({"w":{"dtype":"F32","shape":[3],"data_offsets":[4,16]},)"
                        R"("bytes":{"dtype":"U8","shape":[2,2],"data_offsets":[0,4]},)"
                        R"("__metadata__":{"format":"pt"}})",
                        data));
  absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(reader->path(), path);
  EXPECT_THAT(reader->metadata(), ElementsAre(Pair("format", "pt")));
  ASSERT_EQ(reader->tensors().size(), 2u);
  EXPECT_EQ(reader->tensors()[0].name, "bytes");
  EXPECT_EQ(reader->Find("missing"), nullptr);
  EXPECT_THAT(ReadAll<float>(*reader, "w").value(), ElementsAre(1.5f, -2.0f, 0.25f));
  EXPECT_THAT(ReadAll<uint8_t>(*reader, "bytes").value(), ElementsAre(1, 2, 3, 4));

  // A part: the last two of the three.
  std::vector<float> part(2);
  ASSERT_EQ(reader->Read(*reader->Find("w"), std::as_writable_bytes(std::span(part)), 4),
            absl::OkStatus());
  EXPECT_THAT(part, ElementsAre(-2.0f, 0.25f));

  // Moving it keeps the file open.
  SafetensorsReader moved = *std::move(reader);
  EXPECT_THAT(ReadAll<uint8_t>(moved, "bytes").value(), ElementsAre(1, 2, 3, 4));
}

TEST(SafetensorsReaderTest, RefusesFilesWithoutAHeader) {
  const std::string path = PathFor("file");
  const auto problem = [&](const std::string& contents) {
    Write(path, contents);
    const std::string message = Message(SafetensorsReader::Open(path).status());
    const std::string prefix = "\"" + path + "\" is no sound safetensors file: ";
    EXPECT_THAT(message,
                testing::AllOf(testing::StartsWith(prefix), testing::EndsWith(kDamageRemedy)));
    return message.substr(prefix.size(),
                          message.size() - prefix.size() - std::strlen(kDamageRemedy));
  };
  EXPECT_EQ(problem(""), "it has only 0 bytes");
  EXPECT_EQ(problem("1234567"), "it has only 7 bytes");
  EXPECT_EQ(problem(std::string("\x03\0\0\0\0\0\0\0{}", 10)),
            "its header should have 3 bytes, but the whole file has 10");
  EXPECT_EQ(problem("PK\x03\x04 a file of another kind"),
            "its header should have 7358988581257562960 bytes, but the whole file has 27");
  EXPECT_EQ(problem(std::string(8, '\xff') + "{}"),
            "its header should have 18446744073709551615 bytes, but the whole file has 10");
  EXPECT_EQ(problem(std::string(8, '\0')), "its header does not begin with \"{\"");
  EXPECT_EQ(problem(FileBytes("{\"a\"}", "")), "its header is not valid JSON at byte 5");
  EXPECT_EQ(problem(FileBytes("{}", "x")), "1 bytes at its end belong to no tensor");
}

TEST(SafetensorsReaderTest, RefusesHeadersThatAreTooLong) {
  const std::string path = PathFor("file");
  Write(path, FileBytes("{}", "").replace(0, 8, std::string("\x01\xe1\xf5\x05\0\0\0\0", 8)));
  std::filesystem::resize_file(path, 200'000'000);  // a hole: takes no room on the disk
  EXPECT_THAT(Message(SafetensorsReader::Open(path).status()),
              HasSubstr("its header has 100000001 bytes, more than the 100000000 that the format"));
  std::filesystem::remove(path);
}

TEST(SafetensorsReaderTest, NamesFilesThatCannotBeRead) {
  const std::string path = PathFor("missing");
  const absl::Status missing = SafetensorsReader::Open(path).status();
  EXPECT_EQ(missing.code(), absl::StatusCode::kNotFound);
  EXPECT_EQ(Message(missing), "cannot read \"" + path + "\": No such file or directory");
  EXPECT_THAT(Message(SafetensorsReader::Open(testing::TempDir()).status()),
              HasSubstr("it is a directory"));
}

TEST(SafetensorsReaderTest, NoticesAFileThatShrinks) {
  const std::string path = PathFor("file");
  Write(path, FileBytes(R"({"w":{"dtype":"U8","shape":[9],"data_offsets":[0,9]}})", "123456789"));
  absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  std::filesystem::resize_file(path, std::filesystem::file_size(path) - 3);
  const absl::Status status = ReadAll<uint8_t>(*reader, "w").status();
  EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss);
  EXPECT_THAT(Message(status), HasSubstr("earlier than when it was opened"));
}

TEST(SafetensorsWriterTest, WritesWhatTheFormatAsksFor) {
  const std::string path = PathFor("file");
  std::vector<float> weights(1000);
  std::iota(weights.begin(), weights.end(), -500.0f);
  const std::vector<int64_t> step = {77};
  const auto weight_bytes = std::as_bytes(std::span(weights));
  {
    absl::StatusOr<SafetensorsWriter> writer =
        SafetensorsWriter::Open(path,
                                {{.name = "empty", .dtype = "F32", .shape = {0}},
                                 {.name = "w", .dtype = "F32", .shape = {10, 100}},
                                 {.name = "hollow", .dtype = "F32", .shape = {3, 0}},
                                 {.name = "step", .dtype = "I64"}},
                                {{"format", "lockstep"}});
    ASSERT_TRUE(writer.ok()) << writer.status();
    ASSERT_EQ(writer->Append("empty", {}), absl::OkStatus());
    ASSERT_EQ(writer->Append("w", weight_bytes.first(1)), absl::OkStatus());
    ASSERT_EQ(writer->Append("w", weight_bytes.subspan(1)), absl::OkStatus());
    ASSERT_EQ(writer->Append("step", std::as_bytes(std::span(step))), absl::OkStatus());
    EXPECT_FALSE(std::filesystem::exists(path)) << "it appears when it is whole";
    ASSERT_EQ(writer->Commit(), absl::OkStatus());
  }
  // The data, found by the format's rules alone.
  const std::string file = ReadFile(path).value();
  ASSERT_GE(file.size(), 8u);
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(file[i]);
  const std::string data = file.substr(8 + length);
  EXPECT_EQ((8 + length) % 64, 0u);
  ASSERT_EQ(data.size(), 4008u);
  EXPECT_EQ(std::memcmp(data.data(), weights.data(), 4000), 0);
  EXPECT_EQ(std::memcmp(data.data() + 4000, step.data(), 8), 0);

  absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_EQ(ReadAll<float>(*reader, "w").value(), weights);
  EXPECT_THAT(ReadAll<int64_t>(*reader, "step").value(), ElementsAre(77));
  EXPECT_THAT(reader->Find("hollow")->shape, ElementsAre(3, 0));
  EXPECT_THAT(reader->metadata(), ElementsAre(Pair("format", "lockstep")));
}

// The sum that core/base/checksum.h describes, with plain loops.
uint64_t Checksum(const std::vector<uint64_t>& elements, uint64_t first = 0) {
  uint64_t sum = 0;
  for (size_t i = 0; i < elements.size(); ++i) {
    uint64_t x = (first + i + 1) * 0x9e3779b97f4a7c15 + elements[i];
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
    x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
    sum += x ^ (x >> 31);
  }
  return sum;
}

// Two tensors, of which the first has more than a block.
constexpr int64_t kManyElements = (int64_t{1} << 18) + 5;

void WriteWithChecksumsInMetadata(const std::string& path, const std::vector<float>& many,
                                  const std::vector<uint8_t>& few) {
  absl::StatusOr<SafetensorsWriter> writer = SafetensorsWriter::Open(
      path,
      {{.name = "many", .dtype = "F32", .shape = {std::ssize(many)}},
       {.name = "few", .dtype = "U8", .shape = {std::ssize(few)}}},
      {{"format", "pt"}, {"quoted", "\"lockstep.checksums\":\""}}, WithChecksums::kInMetadata);
  ASSERT_TRUE(writer.ok()) << writer.status();
  ASSERT_EQ(writer->Append("many", std::as_bytes(std::span(many))), absl::OkStatus());
  ASSERT_EQ(writer->Append("few", std::as_bytes(std::span(few))), absl::OkStatus());
  ASSERT_EQ(writer->Commit(), absl::OkStatus());
}

TEST(SafetensorsWriterTest, MetadataMayHoldTheChecksums) {
  const std::string path = PathFor("file");
  std::vector<float> many(kManyElements);
  std::iota(many.begin(), many.end(), 1.0f);
  WriteWithChecksumsInMetadata(path, many, {7, 8, 9});
  // Found by the format's rules alone.
  const std::string file = ReadFile(path).value();
  uint64_t length = 0;
  for (size_t i = 8; i-- > 0;) length = length << 8 | static_cast<unsigned char>(file[i]);
  EXPECT_EQ(file.size(), 8 + length + 4 * kManyElements + 3) << "there is no tensor more";
  const std::string before = ",\"lockstep.checksums\":\"";
  const size_t digits = file.find(before) + before.size();
  ASSERT_LT(digits, 8 + length);
  EXPECT_EQ(file[digits + 4 * 16], '"');
  std::string first_bytes = file.substr(0, 8 + length);
  first_bytes.replace(digits, 4 * 16, 4 * 16, '0');
  std::vector<uint64_t> words;
  for (const float value : many) {
    uint32_t bits;
    std::memcpy(&bits, &value, sizeof(bits));
    words.push_back(bits);
  }
  std::vector<uint64_t> bytes;
  for (const char byte : first_bytes) bytes.push_back(static_cast<unsigned char>(byte));
  const auto block = words.begin() + (1 << 18);
  const std::vector<uint64_t> expected = {Checksum(bytes), Checksum({words.begin(), block}),
                                          Checksum({block, words.end()}, 1 << 18),
                                          Checksum({7, 8, 9})};
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(std::stoull(file.substr(digits + 16 * i, 16), nullptr, 16), expected[i]) << i;
  }

  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  ASSERT_TRUE(reader.ok()) << reader.status();
  EXPECT_TRUE(reader->has_checksums());
  EXPECT_THAT(reader->metadata(),
              ElementsAre(Pair("format", "pt"), Pair("quoted", "\"lockstep.checksums\":\"")));
  EXPECT_TRUE(ReadAll<float>(*reader, "many").value() == many);
  EXPECT_THAT(ReadAll<uint8_t>(*reader, "few").value(), ElementsAre(7, 8, 9));
}

absl::Status ReadBoth(const std::string& path) {
  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  if (!reader.ok()) return reader.status();
  const absl::Status many = ReadAll<float>(*reader, "many").status();
  return many.ok() ? ReadAll<uint8_t>(*reader, "few").status() : many;
}

TEST(SafetensorsReaderTest, ChecksumsInMetadataShowWhatIsDamaged) {
  const std::string path = PathFor("file");
  std::vector<float> many(kManyElements);
  WriteWithChecksumsInMetadata(path, many, {7, 8, 9});
  const std::string good = ReadFile(path).value();
  const auto damage = [&](size_t at) {
    std::string bytes = good;
    bytes[at] = static_cast<char>(bytes[at] ^ 1);
    Write(path, bytes);
    const absl::Status status = ReadBoth(path);
    EXPECT_EQ(status.code(), absl::StatusCode::kDataLoss) << status;
    return Message(status);
  };
  EXPECT_THAT(damage(good.size() - 4),
              HasSubstr("bytes 1048576 to 1048595 of tensor 'many' do not have the checksum"));
  EXPECT_THAT(damage(good.size() - 1), HasSubstr("bytes 0 to 2 of tensor 'few' do not have"));
  EXPECT_THAT(damage(good.find("\"pt\"") + 1),
              testing::AllOf(HasSubstr("its header does not have the checksum"),
                             HasSubstr("remove \"lockstep.checksums\" from its metadata")));
}

// Whichever bit of a small file is flipped, nothing else is read than what was written.
TEST(SafetensorsReaderTest, NoFlippedBitChangesWhatIsRead) {
  const std::string path = PathFor("file");
  const std::vector<float> many = {1.5f, -2.0f};
  const std::vector<uint8_t> few = {7, 8, 9};
  WriteWithChecksumsInMetadata(path, many, few);
  const std::string good = ReadFile(path).value();
  int64_t read = 0;
  for (size_t bit = 0; bit < 8 * good.size(); ++bit) {
    std::string flipped = good;
    flipped[bit / 8] = static_cast<char>(flipped[bit / 8] ^ 1 << bit % 8);
    Write(path, flipped);
    const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
    if (!reader.ok()) continue;
    const auto many_read = ReadAll<float>(*reader, "many");
    const auto few_read = ReadAll<uint8_t>(*reader, "few");
    if (!many_read.ok() || !few_read.ok()) continue;
    ++read;
    EXPECT_EQ(*many_read, many) << bit;
    EXPECT_EQ(*few_read, few) << bit;
    EXPECT_EQ(reader->tensors().size(), 2u) << bit;
  }
  // What goes unseen is a bit of the name of the checksums, without which there are none.
  EXPECT_LE(read, 8 * std::ssize(std::string("lockstep.checksums")));
}

TEST(SafetensorsWriterTest, WithoutCommitNothingChanges) {
  const std::string path = PathFor("file");
  Write(path, "old");
  {
    absl::StatusOr<SafetensorsWriter> writer =
        SafetensorsWriter::Open(path, {{.name = "a", .dtype = "U8", .shape = {4}}});
    ASSERT_TRUE(writer.ok()) << writer.status();
  }
  EXPECT_EQ(ReadFile(path).value(), "old");
}

TEST(SafetensorsWriterTest, BrokenPromisesEndTheProgram) {
  const auto open = [] {
    return SafetensorsWriter::Open(PathFor("file"), {{.name = "a", .dtype = "U8", .shape = {4}},
                                                     {.name = "b", .dtype = "U8", .shape = {4}}})
        .value();
  };
  const std::vector<std::byte> bytes(8);
  SafetensorsWriter writer = open();
  EXPECT_DEATH((void)writer.Append("b", bytes), "in the order in which they were declared");
  EXPECT_DEATH((void)writer.Append("a", bytes), "too many bytes for a");
  EXPECT_DEATH((void)writer.Commit(), "a lacks bytes");
}

TEST(SafetensorsWriterTest, ErrorsNameThePath) {
  const std::string path = PathFor("missing") + "/file";
  EXPECT_THAT(Message(SafetensorsWriter::Open(path, {}).status()), HasSubstr(path));
}

// Reads all that a file claims to hold. Errors are fine, crashes are not.
void ReadEverything(const std::string& path) {
  const absl::StatusOr<SafetensorsReader> reader = SafetensorsReader::Open(path);
  if (!reader.ok()) {
    EXPECT_THAT(Message(reader.status()), HasSubstr(path));
    return;
  }
  for (const SafetensorsTensor& tensor : reader->tensors()) {
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes));
    EXPECT_EQ(reader->Read(tensor, bytes), absl::OkStatus());
  }
}

TEST(SafetensorsReaderTest, MutatedFilesAreRefusedOrReadable) {
  const std::string path = PathFor("file");
  const std::string original =
      FileBytes(R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                R"("b":{"dtype":"U8","shape":[5],"data_offsets":[24,29]}} )",
                std::string(29, 'd'));
  for (size_t size = 0; size <= original.size(); ++size) {
    Write(path, original.substr(0, size));
    ReadEverything(path);
    EXPECT_EQ(SafetensorsReader::Open(path).ok(), size == original.size()) << size;
  }
  std::mt19937 random(1);
  for (int i = 0; i < 3'000; ++i) {
    std::string mutated = original;
    for (size_t change = 0; change <= random() % 3; ++change) {
      mutated[random() % mutated.size()] = static_cast<char>(random());
    }
    if (random() % 4 == 0) mutated.resize(random() % (original.size() + 20));
    Write(path, mutated);
    ReadEverything(path);
  }
}

}  // namespace
}  // namespace lockstep
