#include "tools/checkpoint/operations.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <memory>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "core/base/file.h"
#include "core/base/half.h"
#include "core/base/json.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/checkpoint_list.h"
#include "core/checkpoint/draft.h"
#include "core/checkpoint/stored_checkpoint.h"
#include "core/kernels/cpu/cpu_kernels.h"
#include "core/run/directory/run_directory.h"
#include "core/tensor/slice.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

// The folder of checkpoints that a user names; none if that is a checkpoint.
std::optional<std::string> FolderOf(const std::string& named) {
  const std::string below = named + "/checkpoints";
  if (IsDirectory(below)) return below;
  const absl::StatusOr<std::vector<FoundCheckpoint>> found = ListCheckpoints(named);
  if (found.ok() && !found->empty()) return named;
  return std::nullopt;
}

absl::Status NothingThere(const std::string& named) {
  return absl::NotFoundError(absl::StrCat("\"", named, "\": there is no such file or folder"));
}

// The error for a folder that exists.
absl::Status NoCheckpoint(const std::string& folder) {
  if (!PathExists(folder + "/config.toml")) {
    return absl::NotFoundError(absl::StrCat(folder, ": holds no checkpoint"));
  }
  return absl::NotFoundError(absl::StrCat(
      folder,
      ": the run has no checkpoint; a run leaves one where checkpoint.keep is not 0, every "
      "checkpoint.every steps and at its end"));
}

absl::StatusOr<std::vector<FoundCheckpoint>> FindAll(const std::string& folder) {
  LS_ASSIGN_OR_RETURN(std::vector<FoundCheckpoint> found, CheckpointsByStep(folder));
  if (!found.empty()) return found;
  LS_ASSIGN_OR_RETURN(const std::vector<SetAsideCheckpoint> aside, ListSetAside(folder));
  if (aside.empty()) return NoCheckpoint(folder);
  return absl::NotFoundError(
      absl::StrCat(folder, ": holds no checkpoint but ", aside.size(),
                   aside.size() == 1 ? " that was" : " that were",
                   " set aside (*.damaged, *.suspect); name one by its own path"));
}

ListedCheckpoint ReadHeaders(const FoundCheckpoint& found, ListedCheckpoint::Kind kind) {
  ListedCheckpoint listed = {
      .path = found.path, .info = {.step = found.step}, .status = {}, .kind = kind};
  const absl::StatusOr<StoredCheckpoint> stored = StoredCheckpoint::Open(found.path);
  listed.status = stored.ok() ? stored->CheckWhole() : stored.status();
  if (!stored.ok()) return listed;
  listed.info = stored->info();
  listed.files = static_cast<int64_t>(stored->files().size());
  listed.tensors = static_cast<int64_t>(stored->tensors().size());
  listed.bytes = CheckpointBytes(found.path).value_or(0);
  return listed;
}

// The elements of the largest tensor.
int64_t MostElements(const StoredCheckpoint& stored) {
  int64_t most = 0;
  for (const auto& [name, tensor] : stored.tensors()) {
    most = std::max(most, Shape(absl::MakeConstSpan(tensor.shape)).elements());
  }
  return most;
}

std::string Describe(const StoredCheckpoint::Tensor& tensor) {
  return absl::StrCat(tensor.dtype, "[", absl::StrJoin(tensor.shape, ", "), "]");
}

// Memory for the elements [begin, end) of a stored tensor.
absl::StatusOr<StateTensor> MakePart(const std::string& name,
                                     const StoredCheckpoint::Tensor& stored, const Range& range,
                                     Allocator& allocator) {
  const std::optional<DType> dtype = DTypeOfSafetensors(stored.dtype);
  if (!dtype) {
    return InvalidArgument("tensor '", name, "' is of type ", stored.dtype,
                           ", which no run here has");
  }
  const Shape whole{absl::MakeConstSpan(stored.shape)};
  const bool is_all = range.count == whole.elements();
  return StateTensor{.name = name,
                     .tensor = Tensor::Empty(allocator, is_all ? whole : Shape({range.count}),
                                             *dtype, MemoryClass::kCheckpoint),
                     .full_shape = whole,
                     .first = range.first};
}

absl::StatusOr<StateTensor> ReadWhole(const StoredCheckpoint& stored, const std::string& name,
                                      const StoredCheckpoint::Tensor& tensor, CpuKernels& kernels) {
  const int64_t elements = Shape(absl::MakeConstSpan(tensor.shape)).elements();
  LS_ASSIGN_OR_RETURN(StateTensor whole,
                      MakePart(name, tensor, {.first = 0, .count = elements}, kernels.allocator()));
  LS_RETURN_IF_ERROR(stored.Read({whole}, kernels));
  return whole;
}

uint16_t Bits16(const Tensor& tensor, int64_t index) {
  uint16_t bits;
  std::memcpy(&bits, tensor.raw() + index * sizeof(bits), sizeof(bits));
  return bits;
}

// The element of a tensor as a number.
double ValueAt(const Tensor& tensor, int64_t index) {
  switch (tensor.dtype()) {
    case DType::kF32:
      return static_cast<double>(tensor.data<float>()[index]);
    case DType::kF64:
      return tensor.data<double>()[index];
    case DType::kBF16:
      return static_cast<double>(BFloat16ToFloat(Bits16(tensor, index)));
    case DType::kF16:
      return static_cast<double>(HalfToFloat(Bits16(tensor, index)));
    case DType::kI32:
      return tensor.data<int32_t>()[index];
    case DType::kI64:
      return static_cast<double>(tensor.data<int64_t>()[index]);
    case DType::kU8:
      return tensor.data<uint8_t>()[index];
  }
  return 0;
}

// How the elements differ; none where all bits are the same.
std::optional<TensorDifference> DifferenceOf(const StateTensor& a, const StateTensor& b) {
  const int64_t size = SizeOf(a.tensor.dtype());
  TensorDifference difference = {.tensor = a.name, .what = "", .elements = a.tensor.elements()};
  for (int64_t i = 0; i < difference.elements; ++i) {
    if (std::memcmp(a.tensor.raw() + i * size, b.tensor.raw() + i * size,
                    static_cast<size_t>(size)) == 0) {
      continue;
    }
    const double value_a = ValueAt(a.tensor, i), value_b = ValueAt(b.tensor, i);
    if (difference.differing++ == 0) {
      difference.first = i;
      difference.first_a = value_a;
      difference.first_b = value_b;
    }
    const double distance = std::fabs(value_a - value_b);
    // A NaN stays.
    if (!(distance <= difference.largest)) difference.largest = distance;
  }
  if (difference.differing == 0) return std::nullopt;
  return difference;
}

// What shard `number` has of all tensors: an equal part of the elements of each.
absl::StatusOr<std::vector<StateTensor>> MakeShard(const StoredCheckpoint& stored,
                                                   const ShardNumber& number,
                                                   Allocator& allocator) {
  std::vector<StateTensor> parts;
  for (const auto& [name, tensor] : stored.tensors()) {
    const int64_t elements = Shape(absl::MakeConstSpan(tensor.shape)).elements();
    const Range range = EvenRange(elements, number.shards, number.shard);
    LS_ASSIGN_OR_RETURN(parts.emplace_back(), MakePart(name, tensor, range, allocator));
    // A tensor without elements has its name in the first shard.
    parts.back().is_writer = elements > 0 || number.shard == 0;
  }
  return parts;
}

absl::Status WriteDraft(const StoredCheckpoint& stored, const std::string& path, int64_t shards) {
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  const std::string set = absl::StrCat(absl::GetCurrentTimeNanos());
  std::unique_ptr<Draft> draft;
  for (int64_t shard = 0; shard < shards; ++shard) {
    const ShardNumber number = {.shard = shard, .shards = shards, .set = set};
    LS_ASSIGN_OR_RETURN(const std::vector<StateTensor> parts, MakeShard(stored, number, allocator));
    LS_RETURN_IF_ERROR(stored.Read(parts, kernels));
    draft = shards == 1 ? MakeWholeDraft(path, stored.info(), parts)
                        : MakeShardedDraft(path, stored.info(), number);
    if (shard == 0) LS_RETURN_IF_ERROR(draft->Make());
    LS_RETURN_IF_ERROR(draft->Fill(parts, kernels, {}));
  }
  return draft->Complete();
}

// Whether a run has its summary, with at least so many steps behind it. A run that was complete and
// goes on with more steps keeps the earlier summary until it is complete again.
bool IsOver(const std::string& run_directory, int64_t steps) {
  const absl::StatusOr<std::string> text = ReadFile(run_directory + "/summary.json");
  if (!text.ok()) return false;
  const auto summary = ParseJson(*text);
  return summary.is_object() && summary.contains("steps") && summary["steps"].is_number_integer() &&
         summary["steps"].get<int64_t>() >= steps;
}

ListedCopies::Need NeedOf(const FoundInMemoryFolder& folder) {
  if (folder.run_directory.empty()) return ListedCopies::Need::kRunIsUnknown;
  if (!folder.has_run_directory) return ListedCopies::Need::kRunIsGone;
  // A run that has just begun, or begins a leg, has a folder without copies.
  const bool is_over = folder.steps >= 0 && IsOver(folder.run_directory, folder.steps);
  return is_over ? ListedCopies::Need::kRunIsOver : ListedCopies::Need::kRunMayGoOn;
}

}  // namespace

absl::StatusOr<std::string> ResolveCheckpoint(const std::string& named) {
  const std::optional<std::string> folder = FolderOf(named);
  if (!folder && !PathExists(named)) return NothingThere(named);
  if (!folder && IsOneCheckpoint(named)) return named;
  LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> found, FindAll(folder.value_or(named)));
  return found.back().path;
}

absl::StatusOr<std::vector<ListedCheckpoint>> ListAll(const std::string& named) {
  using Kind = ListedCheckpoint::Kind;
  if (!PathExists(named)) return NothingThere(named);
  const std::optional<std::string> folder_of = FolderOf(named);
  if (!folder_of && IsOneCheckpoint(named)) {
    return std::vector<ListedCheckpoint>{ReadHeaders({.path = named}, Kind::kGoesOn)};
  }
  const std::string folder = folder_of.value_or(named);
  std::vector<ListedCheckpoint> list;
  const auto add = [&list](const FoundCheckpoint& found, Kind kind) {
    ListedCheckpoint listed = ReadHeaders(found, kind);
    // A run that trains has removed it meanwhile.
    if (!listed.status.ok() && IsGone(found.path)) return;
    list.push_back(std::move(listed));
  };
  LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> found, CheckpointsByStep(folder));
  for (const FoundCheckpoint& each : found) add(each, Kind::kGoesOn);
  LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> best, CheckpointsByStep(named + "/best"));
  for (const FoundCheckpoint& each : best) add(each, Kind::kBest);
  LS_ASSIGN_OR_RETURN(const std::vector<SetAsideCheckpoint> aside, ListSetAside(folder));
  for (const SetAsideCheckpoint& each : aside) {
    add({.step = each.step, .path = each.path}, each.is_damaged ? Kind::kDamaged : Kind::kSuspect);
  }
  if (list.empty()) return NoCheckpoint(folder);
  return list;
}

std::vector<absl::Status> FindDamage(const std::string& path) {
  const absl::StatusOr<StoredCheckpoint> stored = StoredCheckpoint::Open(path);
  if (!stored.ok()) return {stored.status()};
  const absl::Status whole = stored->CheckWhole();
  if (!whole.ok()) return {whole};
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  std::vector<absl::Status> damage;
  for (const auto& [name, tensor] : stored->tensors()) {
    const absl::Status read = ReadWhole(*stored, name, tensor, kernels).status();
    if (!read.ok()) damage.push_back(read);
  }
  return damage;
}

absl::StatusOr<CheckpointDifferences> Compare(const std::string& a, const std::string& b) {
  LS_ASSIGN_OR_RETURN(const StoredCheckpoint stored_a, StoredCheckpoint::Open(a));
  LS_ASSIGN_OR_RETURN(const StoredCheckpoint stored_b, StoredCheckpoint::Open(b));
  LS_RETURN_IF_ERROR(stored_a.CheckWhole());
  LS_RETURN_IF_ERROR(stored_b.CheckWhole());
  CpuAllocator allocator;
  CpuKernels kernels(allocator);
  CheckpointDifferences result = {.a = stored_a.info(), .b = stored_b.info(), .differences = {}};
  const auto tensors_a = stored_a.tensors(), tensors_b = stored_b.tensors();
  auto all = tensors_a;
  all.insert(tensors_b.begin(), tensors_b.end());
  for (const auto& [name, ignored] : all) {
    const auto in_a = tensors_a.find(name), in_b = tensors_b.find(name);
    const auto differs = [&result, &tensor = name](std::string what) {
      result.differences.push_back({.tensor = tensor, .what = std::move(what)});
    };
    if (in_a == tensors_a.end() || in_b == tensors_b.end()) {
      differs(in_b == tensors_b.end() ? "is only in the first" : "is only in the second");
      continue;
    }
    ++result.tensors;
    const std::string text_a = Describe(in_a->second), text_b = Describe(in_b->second);
    if (text_a != text_b) {
      differs(absl::StrCat("is ", text_a, " in the first and ", text_b, " in the second"));
      continue;
    }
    LS_ASSIGN_OR_RETURN(const StateTensor whole_a,
                        ReadWhole(stored_a, name, in_a->second, kernels));
    LS_ASSIGN_OR_RETURN(const StateTensor whole_b,
                        ReadWhole(stored_b, name, in_b->second, kernels));
    if (auto difference = DifferenceOf(whole_a, whole_b)) {
      result.differences.push_back(*std::move(difference));
    }
  }
  return result;
}

absl::StatusOr<std::string> Reshape(const std::string& from, const std::string& folder,
                                    int64_t shards) {
  LS_ASSIGN_OR_RETURN(const StoredCheckpoint stored, StoredCheckpoint::Open(from));
  LS_RETURN_IF_ERROR(stored.CheckWhole());
  const int64_t most = std::max<int64_t>(1, MostElements(stored));
  if (shards > most) {
    return InvalidArgument(from, ": cannot be written in ", shards,
                           " files, for some would hold nothing: its largest tensor has ", most,
                           most == 1 ? " element" : " elements", ", so that --shards is at most ",
                           most);
  }
  const int64_t step = stored.info().step;
  for (const CheckpointFiles files : {CheckpointFiles::kSharded, CheckpointFiles::kWhole}) {
    const std::string there = CheckpointPath(folder, step, files);
    if (!PathExists(there)) continue;
    return absl::AlreadyExistsError(
        absl::StrCat(there, " is there already; name another folder, or remove it"));
  }
  LS_RETURN_IF_ERROR(MakeDirectories(folder));
  const std::string path = CheckpointPath(
      folder, step, shards == 1 ? CheckpointFiles::kWhole : CheckpointFiles::kSharded);
  absl::Status written = WriteDraft(stored, DraftPath(path), shards);
  if (written.ok()) written = Publish(path);
  if (written.ok()) return path;
  RemoveTree(DraftPath(path));
  return written;
}

absl::StatusOr<std::vector<ListedCopies>> ListCopies() {
  LS_ASSIGN_OR_RETURN(const std::vector<FoundInMemoryFolder> folders, ListInMemoryFolders());
  std::vector<ListedCopies> list;
  for (const FoundInMemoryFolder& folder : folders) {
    list.push_back({.folder = folder, .need = NeedOf(folder)});
  }
  return list;
}

absl::Status RemoveLeftOver(const ListedCopies& copies) {
  CHECK(copies.is_left_over()) << copies.folder.path;
  if (copies.need == ListedCopies::Need::kRunIsOver) {
    return RemoveCopiesOf(copies.folder.run_directory);
  }
  RemoveTree(copies.folder.path);
  return absl::OkStatus();
}

absl::Status RemoveCopiesOf(const std::string& run_directory) {
  const std::string folder = InMemoryFolder(run_directory);
  if (folder.empty() || !IsDirectory(folder)) {
    return absl::NotFoundError(
        absl::StrCat(run_directory, ": has no copies in this machine's memory"));
  }
  // Held until they are removed, so that no program begins to use them meanwhile.
  LS_ASSIGN_OR_RETURN(const std::shared_ptr<RunDirectory> lock,
                      RunDirectory::Claim(run_directory, RunDirectory::Use::kResumeFromElsewhere));
  RemoveTree(folder);
  return absl::OkStatus();
}

}  // namespace lockstep
