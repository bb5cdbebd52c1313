#include "core/run/directory/run_identity.h"

#include <algorithm>
#include <cstddef>
#include <cstring>  // std::memcpy
#include <span>
#include <string_view>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "core/base/checksum.h"
#include "core/base/mapped_file.h"
#include "core/base/status.h"
#include "core/comm/agree.h"
#include "core/comm/host_numbers.h"
#include "core/tensor/allocator.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "configuration";
constexpr char kNone[] = "not given";
// A key that decides the curve only where it is false. Else it is left out, as runs of earlier
// versions do not have it.
constexpr char kDeferredBatchNorm[] = "train.deferred_batch_norm";

std::string Format(uint64_t checksum) { return absl::StrFormat("\"%016x\"", checksum); }

std::string_view BytesOf(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.raw()), static_cast<size_t>(tensor.bytes())};
}

absl::StatusOr<std::string> DataChecksum(const Dataset& dataset) {
  constexpr int64_t kSamples = 4;
  const int64_t last = dataset.size(Split::kTrain) - 1;
  std::vector<SampleKey> keys;
  for (int64_t i = 0; i < kSamples; ++i) keys.push_back({.index = last / (kSamples - 1) * i});
  CpuAllocator allocator;
  const Batch batch = EmptyBatch(dataset, kSamples, allocator, MemoryClass::kWorkspace);
  LS_RETURN_IF_ERROR(dataset.Fill(Split::kTrain, keys, batch));
  return Format(ChecksumOf(absl::StrCat(last, " ", ChecksumOf(BytesOf(batch.inputs)), " ",
                                        ChecksumOf(BytesOf(batch.targets)), " ",
                                        dataset.file_checksum().value_or(0))));
}

// A line each, for ranks to compare. No key has a line end, and values are TOML without any.
std::string ToText(const RunKeys& keys) {
  return absl::StrJoin(keys, "\n", absl::PairFormatter(" = "));
}

RunKeys FromText(const std::string& text) {
  RunKeys keys;
  for (const absl::string_view line : absl::StrSplit(text, '\n')) {
    const std::pair<std::string, std::string> pair =
        absl::StrSplit(line, absl::MaxSplits(" = ", 1));
    keys.insert(pair);
  }
  return keys;
}

// Rank 0's text, on all ranks.
absl::StatusOr<std::string> TextOfFirst(const std::string& own, Communicator& ranks) {
  int64_t size = std::ssize(own);
  LS_RETURN_IF_ERROR(BroadcastNumbers(ranks, absl::MakeSpan(&size, 1), 0, kLabel));
  CpuAllocator allocator;
  const Tensor text = Tensor::Empty(allocator, {size}, DType::kU8, MemoryClass::kCommunication);
  if (ranks.rank() == 0) std::memcpy(text.raw(), own.data(), own.size());
  LS_RETURN_IF_ERROR(ranks.Broadcast(text, 0, kLabel).Wait());
  return std::string(BytesOf(text));
}

std::string ValueOf(const RunKeys& keys, const std::string& key) {
  const auto found = keys.find(key);
  return found == keys.end() ? kNone : found->second;
}

// How this rank differs from rank 0.
absl::Status Compare(const RunKeys& own, const RunKeys& first, int rank) {
  RunKeys all = own;
  all.insert(first.begin(), first.end());
  std::vector<std::string> differences;
  for (const auto& [key, ignored] : all) {
    const std::string ours = ValueOf(own, key), theirs = ValueOf(first, key);
    if (ours != theirs) {
      differences.push_back(absl::StrCat(key, " is ", ours, ", but ", theirs, " on rank 0"));
    }
  }
  if (differences.empty()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat(
      "rank ", rank, " was not started as rank 0 was: ", absl::StrJoin(differences, "; "),
      ". Start all ranks with one program, command line and data"));
}

}  // namespace

absl::StatusOr<RunKeys> KeysOfRun(const ConfigRecord& record, const Dataset& dataset) {
  RunKeys keys;
  for (const auto& [table, members] : record) {
    if (table == "run" || table == "trace" || table == "probe") continue;
    for (const RecordedKey& key : members) {
      keys[absl::StrCat(table, table.empty() ? "" : ".", key.name)] = key.value;
    }
  }
  LS_ASSIGN_OR_RETURN(keys["data"], DataChecksum(dataset));
  return keys;
}

RunKeys KeysOfCurve(const RunKeys& keys) {
  RunKeys curve;
  for (const auto& [key, value] : keys) {
    const std::string table = key.substr(0, key.find('.'));
    const bool shapes = key == "train.seed" || table == "batch" || table == "cut" ||
                        table == "precision" || table == "data" ||
                        (key == kDeferredBatchNorm && value == "false");
    if (shapes) curve.emplace(key, value);
  }
  return curve;
}

absl::Status CheckAllowedChanges(const std::vector<std::string>& allowed, const RunKeys& curve) {
  for (const std::string& name : allowed) {
    const bool is_known = std::any_of(curve.begin(), curve.end(), [&name](const auto& each) {
      return each.first == name || each.first.starts_with(name + ".");
    });
    if (is_known || name == kDeferredBatchNorm) continue;
    return InvalidArgument(
        "--allow_change ", name, ": is no key that a resumed run must keep; these are ",
        absl::StrJoin(curve, ", ", [](std::string* out, const auto& each) { *out += each.first; }));
  }
  return absl::OkStatus();
}

absl::Status CheckSameOnAllRanks(const RunKeys& own, Communicator& ranks) {
  const std::string text = ToText(own);
  const auto checksum = static_cast<int64_t>(ChecksumOf(text));
  int64_t least = checksum, most = checksum;
  LS_RETURN_IF_ERROR(AllReduceNumbers(ranks, absl::MakeSpan(&least, 1), ReduceOp::kMin, kLabel));
  LS_RETURN_IF_ERROR(AllReduceNumbers(ranks, absl::MakeSpan(&most, 1), ReduceOp::kMax, kLabel));
  if (least == most) return absl::OkStatus();
  LS_ASSIGN_OR_RETURN(const std::string first, TextOfFirst(text, ranks));
  return AgreeOnFirst(Compare(own, FromText(first), ranks.rank()), ranks);
}

absl::StatusOr<std::string> ProgramChecksum() {
  LS_ASSIGN_OR_RETURN(const MappedFile program, MappedFile::Open("/proc/self/exe"));
  const std::span<const std::byte> bytes = program.bytes();
  return Format(ChecksumOf(8, 0, bytes.first(bytes.size() / 8 * 8)));
}

}  // namespace lockstep
