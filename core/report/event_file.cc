#include "core/report/event_file.h"

#include <fcntl.h>      // O_CREAT
#include <nmmintrin.h>  // _mm_crc32_u8
#include <unistd.h>     // write, fsync, getpid, gethostname

#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cstddef>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

// Wire types of protocol buffers.
enum class Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

// Fields of the messages Event, SessionLog, Summary and Summary.Value.
constexpr int kEventWallTime = 1, kEventStep = 2, kEventFileVersion = 3, kEventSummary = 5,
              kEventSessionLog = 7;
constexpr int kSessionStatus = 1, kSessionStart = 1;
constexpr int kSummaryValue = 1, kValueTag = 1, kValueSimple = 2;

// The low bytes of `bits` first, as everywhere in these files.
template <typename Bits>
std::string LittleEndian(Bits bits) {
  std::string bytes;
  for (size_t i = 0; i < sizeof(bits); ++i) bytes += static_cast<char>(bits >> (8 * i));
  return bytes;
}

std::string Varint(uint64_t value) {
  std::string bytes;
  for (; value >= 0x80; value >>= 7) bytes += static_cast<char>(value | 0x80);
  return bytes + static_cast<char>(value);
}

std::string Key(int field, Wire wire) {
  return Varint(static_cast<uint64_t>(field) << 3 | static_cast<uint64_t>(wire));
}

std::string IntegerField(int field, int64_t value) {
  return Key(field, Wire::kVarint) + Varint(static_cast<uint64_t>(value));
}

std::string DoubleField(int field, double value) {
  return Key(field, Wire::kFixed64) + LittleEndian(std::bit_cast<uint64_t>(value));
}

std::string FloatField(int field, float value) {
  return Key(field, Wire::kFixed32) + LittleEndian(std::bit_cast<uint32_t>(value));
}

std::string BytesField(int field, const std::string& value) {
  return Key(field, Wire::kBytes) + Varint(value.size()) + value;
}

// The checksum as records have it, which is not the checksum of data that holds checksums.
uint32_t MaskedCrc(std::string_view data) { return std::rotr(Crc32c(data), 15) + 0xa282ead8u; }

std::string HostName() {
  std::array<char, 256> name{};
  return gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "host";
}

double SecondsOfEpoch() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration<double>(now).count();
}

}  // namespace

uint32_t Crc32c(std::string_view data) {
  uint32_t crc = ~0u;
  for (const char byte : data) crc = _mm_crc32_u8(crc, static_cast<unsigned char>(byte));
  return ~crc;
}

absl::StatusOr<EventFile> EventFile::Make(const std::string& folder, int64_t first_step) {
  LS_RETURN_IF_ERROR(MakeDirectories(folder));
  // TensorBoard reads the files of a folder in the order of their names; the time comes first.
  const auto nanos = std::chrono::system_clock::now().time_since_epoch().count();
  const std::string path =
      absl::StrFormat("%s/events.out.tfevents.%010d.%09d.%s.%d", folder, nanos / 1'000'000'000,
                      nanos % 1'000'000'000, HostName(), getpid());
  LS_ASSIGN_OR_RETURN(FileDescriptor opened,
                      OpenRegularFile(path, O_WRONLY | O_CREAT | O_EXCL | O_APPEND));
  EventFile file(path, std::move(opened));
  LS_RETURN_IF_ERROR(file.Write(BytesField(kEventFileVersion, "brain.Event:2")));
  if (first_step > 0) {
    LS_RETURN_IF_ERROR(
        file.Write(IntegerField(kEventStep, first_step) +
                   BytesField(kEventSessionLog, IntegerField(kSessionStatus, kSessionStart))));
  }
  return file;
}

absl::Status EventFile::Append(int64_t step, const Scalars& scalars) {
  std::string summary;
  for (const auto& [tag, value] : scalars) {
    summary += BytesField(kSummaryValue, BytesField(kValueTag, tag) +
                                             FloatField(kValueSimple, static_cast<float>(value)));
  }
  return Write(IntegerField(kEventStep, step) + BytesField(kEventSummary, summary));
}

absl::Status EventFile::Sync() {
  if (fsync(file_.get()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, absl::StrCat("cannot write \"", path_, "\""));
}

absl::Status EventFile::Write(const std::string& event) {
  const std::string data = DoubleField(kEventWallTime, SecondsOfEpoch()) + event;
  const std::string length = LittleEndian(uint64_t{data.size()});
  const std::string record =
      absl::StrCat(length, LittleEndian(MaskedCrc(length)), data, LittleEndian(MaskedCrc(data)));
  size_t written = 0;
  while (written < record.size()) {
    const ssize_t count = write(file_.get(), record.data() + written, record.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot write \"", path_, "\""));
    written += static_cast<size_t>(count);
  }
  return absl::OkStatus();
}

}  // namespace lockstep
