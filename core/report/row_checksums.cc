#include "core/report/row_checksums.h"

#include <fcntl.h>   // O_RDONLY
#include <unistd.h>  // pread

#include <cerrno>
#include <cstddef>
#include <limits>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/checksum.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/status.h"
#include "core/report/metrics.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

using Json = nlohmann::ordered_json;

// What a file holds from byte `begin` on.
absl::StatusOr<std::string> ReadFrom(const std::string& path, int64_t begin) {
  LS_ASSIGN_OR_RETURN(const FileDescriptor file, OpenRegularFile(path, O_RDONLY));
  std::string text;
  std::vector<char> block(1 << 16);
  while (true) {
    const ssize_t bytes =
        pread(file.get(), block.data(), block.size(), static_cast<off_t>(begin + std::ssize(text)));
    if (bytes < 0 && errno == EINTR) continue;
    if (bytes < 0) return absl::ErrnoToStatus(errno, absl::StrCat("cannot read \"", path, "\""));
    if (bytes == 0) return text;
    text.append(block.data(), static_cast<size_t>(bytes));
  }
}

uint64_t ChecksumFrom(int64_t begin, absl::string_view text) {
  return ChecksumOf(1, begin, std::as_bytes(std::span(text.data(), text.size())));
}

// How many bytes of `text`, which begins at byte `begin` of a file, are rows of steps below
// `steps`, up to the first other one.
size_t BytesBefore(int64_t steps, int64_t begin, const RowFormat& format, absl::string_view text) {
  size_t bytes = 0;
  bool is_header = begin == 0 && !format.header.empty();
  for (size_t end; (end = text.find('\n', bytes)) != absl::string_view::npos; bytes = end + 1) {
    if (std::exchange(is_header, false)) continue;
    const absl::StatusOr<int64_t> step =
        format.step_of_row(std::string(text.substr(bytes, end - bytes)));
    if (!step.ok() || *step >= steps) break;
  }
  return bytes;
}

// Rows of row_checksums.jsonl.
const RowFormat& kFormat = kMetricsJsonl;

// The member of a row that has the row's own checksum.
constexpr char kOwnChecksum[] = "row";

std::string Digits(uint64_t checksum) {
  return absl::StrCat(absl::Hex(checksum, absl::kZeroPad16));
}

// Whether a row is what was written, as far as the row itself can tell.
bool IsSound(Json row) {
  const auto stored = row.find(kOwnChecksum);
  if (stored == row.end()) return true;  // of an earlier version
  const Json checksum = *stored;
  row.erase(kOwnChecksum);
  return checksum == Digits(ChecksumOf(row.dump()));
}

absl::Status DamagedRow(const std::string& path, size_t line) {
  return absl::FailedPreconditionError(
      absl::StrCat(path, ":", line,
                   ": the row is not what was written: the file was changed or is damaged. Put it "
                   "back; or remove it, to go on without comparing what other files hold"));
}

// The rows of checkpoints with at most `steps` behind them.
absl::StatusOr<std::vector<Json>> RowsBefore(const std::string& path, int64_t steps) {
  std::vector<Json> rows;
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) return rows;
  if (!text.ok()) return text.status();
  std::vector<std::string> lines = absl::StrSplit(*text, '\n');
  lines.pop_back();  // a killed program may have left half a row
  for (size_t i = 0; i < lines.size(); ++i) {
    const absl::StatusOr<int64_t> step = kFormat.step_of_row(lines[i]);
    if (!step.ok()) return DamagedRow(path, i + 1);
    auto row = ParseJson<Json>(lines[i]);
    // Before its step is believed.
    if (!IsSound(row)) return DamagedRow(path, i + 1);
    if (*step >= steps) break;
    rows.push_back(std::move(row));
  }
  return rows;
}

// What a row says of a file; nullopt: nothing that can be read.
struct Entry {
  int64_t bytes = 0;
  uint64_t checksum = 0;
};
std::optional<Entry> EntryOf(const Json& row, const std::string& name) {
  const auto found = row.find(name);
  if (found == row.end() || !found->is_object()) return std::nullopt;
  const auto bytes = found->find("bytes"), checksum = found->find("checksum");
  Entry entry;
  if (bytes == found->end() || checksum == found->end() || !bytes->is_number_integer() ||
      !checksum->is_string() ||
      !absl::SimpleHexAtoi(checksum->get<std::string>(), &entry.checksum)) {
    return std::nullopt;
  }
  entry.bytes = bytes->get<int64_t>();
  return entry.bytes < 0 ? std::nullopt : std::optional(entry);
}

absl::Status CheckFile(const std::string& path, const std::string& name,
                       const std::vector<Json>& rows) {
  const absl::StatusOr<std::string> text = ReadFile(path);
  if (absl::IsNotFound(text.status())) return absl::OkStatus();
  if (!text.ok()) return text.status();
  int64_t first_step = 0;
  Entry sum;
  for (const Json& row : rows) {
    const int64_t last_step = row["step"].get<int64_t>();
    const std::optional<Entry> entry = EntryOf(row, name);
    if (!entry || entry->bytes < sum.bytes) continue;
    const auto begin = static_cast<size_t>(sum.bytes);
    const bool is_long_enough = entry->bytes <= std::ssize(*text);
    if (is_long_enough) {
      const auto size = static_cast<size_t>(entry->bytes - sum.bytes);
      sum.checksum += ChecksumFrom(sum.bytes, absl::string_view(*text).substr(begin, size));
      sum.bytes = entry->bytes;
    }
    if (!is_long_enough || sum.checksum != entry->checksum) {
      return absl::FailedPreconditionError(absl::StrCat(
          path, ": the rows of the steps ", first_step, " to ", last_step,
          " are not those that stood there when the checkpoint of ", last_step + 1,
          " steps was saved: the file was changed or is damaged. Put the file back; or remove ",
          kRowChecksumsFile, " beside it, to go on with the rows as they are"));
    }
    first_step = last_step + 1;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status RowChecksums::Check(const std::string& out, const std::vector<NamedRows>& files,
                                 int64_t steps) {
  LS_ASSIGN_OR_RETURN(const std::vector<Json> rows,
                      RowsBefore(absl::StrCat(out, "/", kRowChecksumsFile), steps));
  for (const NamedRows& file : files) {
    LS_RETURN_IF_ERROR(CheckFile(absl::StrCat(out, "/", file.name), file.name, rows));
  }
  return absl::OkStatus();
}

absl::Status RowChecksums::CheckBeside(const std::string& path) {
  const size_t slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "" : path.substr(0, slash + 1);
  // Read first, as a run that is being written adds to the files before it adds to the checksums.
  LS_ASSIGN_OR_RETURN(
      const std::vector<Json> rows,
      RowsBefore(absl::StrCat(folder, kRowChecksumsFile), std::numeric_limits<int64_t>::max()));
  return rows.empty() ? absl::OkStatus() : CheckFile(path, path.substr(folder.size()), rows);
}

absl::StatusOr<RowFile> RowChecksums::Open() const {
  return RowFile::Open(absl::StrCat(out_, "/", kRowChecksumsFile), kFormat, first_step_);
}

absl::Status RowChecksums::Cut() const {
  if (!PathExists(absl::StrCat(out_, "/", kRowChecksumsFile))) return absl::OkStatus();
  LS_ASSIGN_OR_RETURN(RowFile file, Open());
  return file.Sync();
}

absl::Status RowChecksums::Add(int64_t steps) {
  if (steps <= added_steps_) return absl::OkStatus();
  if (!file_) {
    LS_ASSIGN_OR_RETURN(file_, Open());
  }
  Json row = {{"step", steps - 1}};
  for (const NamedRows& file : files_) {
    const std::string path = absl::StrCat(out_, "/", file.name);
    Prefix& prefix = known_[file.name];
    const absl::StatusOr<std::string> text = ReadFrom(path, prefix.bytes);
    if (absl::IsNotFound(text.status())) continue;
    if (!text.ok()) return text.status();
    const size_t bytes = BytesBefore(steps, prefix.bytes, *file.format, *text);
    prefix.checksum += ChecksumFrom(prefix.bytes, absl::string_view(*text).substr(0, bytes));
    prefix.bytes += static_cast<int64_t>(bytes);
    row[file.name] = {{"bytes", prefix.bytes}, {"checksum", Digits(prefix.checksum)}};
  }
  row[kOwnChecksum] = Digits(ChecksumOf(row.dump()));
  LS_RETURN_IF_ERROR(file_->Append(row.dump()));
  added_steps_ = steps;
  return file_->Sync();
}

}  // namespace lockstep
