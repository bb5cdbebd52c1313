#include "core/report/testing/event_scalars.h"

#include <algorithm>
#include <cstddef>
#include <cstdlib>  // std::strtod
#include <cstring>
#include <tuple>

#include "core/base/file.h"
#include "core/base/subprocess.h"
#include "core/report/event_file.h"
#include "gtest/gtest.h"

namespace lockstep {
namespace {

constexpr int kNoTensorBoard = 3;  // the exit code of the script below

// Prints tag, step and value of each scalar of a folder, a line each.
constexpr char kScript[] = R"(
import sys
try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError:
    sys.exit(3)
events = EventAccumulator(sys.argv[1], size_guidance={"scalars": 0, "tensors": 0})
events.Reload()
for tag in events.Tags()["scalars"]:
    for event in events.Scalars(tag):
        print(tag, event.step, repr(event.value), sep="\t")
)";

// A number of `sizeof(T)` bytes at `at`, which moves behind it.
template <typename T>
T Take(const std::string& bytes, size_t& at) {
  T value{};
  EXPECT_LE(at + sizeof(T), bytes.size());
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  at += sizeof(T);
  return value;
}

uint64_t TakeVarint(const std::string& bytes, size_t& at) {
  uint64_t value = 0;
  for (int shift = 0; at < bytes.size(); shift += 7) {
    const auto byte = static_cast<uint8_t>(bytes[at++]);
    value |= static_cast<uint64_t>(byte & 0x7f) << shift;
    if (byte < 0x80) break;
  }
  return value;
}

// A field of a protocol buffer: its number, and its value as an integer or as bytes.
struct Field {
  uint64_t number = 0, integer = 0;
  std::string bytes = {};
};

std::vector<Field> Fields(const std::string& message) {
  std::vector<Field> fields;
  for (size_t at = 0; at < message.size();) {
    const uint64_t key = TakeVarint(message, at);
    Field& field = fields.emplace_back(Field{.number = key >> 3});
    switch (key & 7) {
      case 0:
        field.integer = TakeVarint(message, at);
        break;
      case 1:
        field.integer = Take<uint64_t>(message, at);
        break;
      case 5:
        field.integer = Take<uint32_t>(message, at);
        break;
      default: {
        const uint64_t count = TakeVarint(message, at);
        field.bytes = message.substr(std::min(at, message.size()), count);
        at += count;
      }
    }
  }
  return fields;
}

// Fields of Event, Summary and Summary.Value, as in event_file.cc.
constexpr uint64_t kEventStep = 2, kEventSummary = 5, kValueTag = 1, kValueSimple = 2;

void AddScalars(const std::string& event, std::vector<EventScalar>& scalars) {
  int64_t step = 0;
  for (const Field& field : Fields(event)) {
    if (field.number == kEventStep) step = static_cast<int64_t>(field.integer);
    if (field.number != kEventSummary) continue;
    for (const Field& value : Fields(field.bytes)) {
      EventScalar& scalar = scalars.emplace_back(EventScalar{.tag = "", .step = step});
      for (const Field& part : Fields(value.bytes)) {
        if (part.number == kValueTag) scalar.tag = part.bytes;
        if (part.number != kValueSimple) continue;
        const auto bits = static_cast<uint32_t>(part.integer);
        float number = 0;
        std::memcpy(&number, &bits, sizeof(number));
        scalar.value = number;
      }
    }
  }
}

void Sort(std::vector<EventScalar>& scalars) {
  std::ranges::stable_sort(
      scalars, {}, [](const EventScalar& scalar) { return std::tie(scalar.tag, scalar.step); });
}

void ExpectTensorBoardFinds(const std::string& folder, const std::vector<EventScalar>& ours) {
  const auto result = RunProcess({.arguments = {"/usr/bin/env", "python3", "-c", kScript, folder}});
  ASSERT_TRUE(result.ok()) << result.status();
  if (result->exit_code == kNoTensorBoard || result->exit_code == 127) return;  // 127: no Python
  ASSERT_TRUE(result->ok()) << result->Describe() << "\n" << result->err;
  std::vector<EventScalar> theirs;
  std::string tag, step, value;
  for (size_t at = 0; at < result->out.size();) {
    for (std::string* word : {&tag, &step, &value}) {
      const size_t end = result->out.find_first_of("\t\n", at);
      *word = result->out.substr(at, end - at);
      at = end + 1;
    }
    theirs.push_back({tag, std::stoll(step), std::strtod(value.c_str(), nullptr)});
  }
  Sort(theirs);
  EXPECT_EQ(theirs, ours) << "as TensorBoard reads " << folder;
}

}  // namespace

std::vector<std::string> EventRecords(const std::string& bytes) {
  const auto unmasked = [](uint32_t masked) {
    const uint32_t rotated = masked - 0xa282ead8u;
    return rotated >> 17 | rotated << 15;
  };
  std::vector<std::string> records;
  for (size_t at = 0; at < bytes.size();) {
    const std::string length = bytes.substr(at, 8);
    const auto count = Take<uint64_t>(bytes, at);
    EXPECT_EQ(unmasked(Take<uint32_t>(bytes, at)), Crc32c(length));
    records.push_back(bytes.substr(at, count));
    at += count;
    EXPECT_EQ(unmasked(Take<uint32_t>(bytes, at)), Crc32c(records.back()));
  }
  return records;
}

std::vector<EventScalar> ReadEventScalars(const std::string& folder) {
  std::vector<EventScalar> scalars;
  const auto names = ListFolder(folder);
  EXPECT_TRUE(names.ok()) << names.status();
  if (!names.ok()) return scalars;
  for (const std::string& name : *names) {
    if (!name.starts_with("events.out.tfevents.")) continue;
    const auto bytes = ReadFile(folder + "/" + name);
    EXPECT_TRUE(bytes.ok()) << bytes.status();
    if (!bytes.ok()) continue;
    for (const std::string& record : EventRecords(*bytes)) AddScalars(record, scalars);
  }
  Sort(scalars);
  ExpectTensorBoardFinds(folder, scalars);
  return scalars;
}

}  // namespace lockstep
