#include "core/checkpoint/stored_checkpoint.h"

#include <algorithm>
#include <iterator>  // std::ssize
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/tensor_slice.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

std::string Describe(const std::string& dtype, const std::vector<int64_t>& shape) {
  return absl::StrCat(dtype, "[", absl::StrJoin(shape, ", "), "]");
}

// "element 3", "elements 3 to 5"
std::string Elements(int64_t begin, int64_t end) {
  return end - begin == 1 ? absl::StrCat("element ", begin)
                          : absl::StrCat("elements ", begin, " to ", end - 1);
}

// Whether a file is what its place says: the whole checkpoint (shards = 0), or this of so many
// shards, saved together with the first.
absl::Status CheckPlace(const std::string& path, const CheckpointMetadata& metadata, int64_t shard,
                        int64_t shards, const std::string& first_path,
                        const CheckpointMetadata& first) {
  if (metadata.shard.has_value() != (shards > 0)) {
    return absl::DataLossError(
        absl::StrCat(path, shards > 0 ? ": is a whole checkpoint and no shard of one; it belongs "
                                        "beside this folder"
                                      : ": is one shard of a checkpoint; only the folder with all "
                                        "of them can be resumed"));
  }
  if (shards == 0) return absl::OkStatus();
  const ShardNumber& number = *metadata.shard;
  if (number.shard != shard || number.shards != shards) {
    return absl::DataLossError(absl::StrCat(path, ": is shard ", number.shard + 1, " of ",
                                            number.shards, "; its name says another one"));
  }
  if (metadata.info != first.info || number.set != first.shard->set) {
    return absl::DataLossError(absl::StrCat(path, ": was not saved together with ", first_path,
                                            "; put back the file that was"));
  }
  return absl::OkStatus();
}

// Host memory that a tensor is filled from; a CPU tensor's own.
class HostTarget {
 public:
  explicit HostTarget(const lockstep::Tensor& tensor) : tensor_(tensor) {
    if (tensor.device().type == DeviceType::kCpu) {
      bytes_ = {tensor.raw(), static_cast<size_t>(tensor.bytes())};
    } else {
      copy_.resize(tensor.bytes());
      bytes_ = copy_;
    }
  }
  std::span<std::byte> bytes() const { return bytes_; }
  void Finish(Kernels& kernels) const {
    if (!copy_.empty()) kernels.CopyFromHost(copy_.data(), tensor_);
  }

 private:
  Tensor tensor_;
  std::vector<std::byte> copy_;
  std::span<std::byte> bytes_;  // of the copy, whose memory stays when this moves
};

}  // namespace

bool IsDamage(const absl::Status& error) {
  // Unknown: an error of the device, which has no code of its own.
  return absl::IsDataLoss(error) || absl::IsInvalidArgument(error) || absl::IsNotFound(error) ||
         absl::IsUnknown(error);
}

absl::StatusOr<StoredCheckpoint> StoredCheckpoint::Open(const std::string& path) {
  const bool sharded = IsDirectory(path);
  std::vector<std::string> files = {path};
  if (sharded) {
    LS_ASSIGN_OR_RETURN(files, ListShards(path));
  }
  StoredCheckpoint checkpoint;
  checkpoint.path_ = path;
  std::vector<ManifestEntry> entries;
  const int64_t shards = sharded ? static_cast<int64_t>(files.size()) : 0;
  for (const std::string& file : files) {
    LS_ASSIGN_OR_RETURN(const SafetensorsReader reader, SafetensorsReader::Open(file));
    LS_ASSIGN_OR_RETURN(const CheckpointMetadata metadata,
                        ParseCheckpointMetadata(reader.metadata(), file));
    if (!reader.has_checksums()) {
      return absl::DataLossError(
          absl::StrCat("\"", file, "\" is damaged: its checksums are missing", kDamageRemedy));
    }
    const auto shard = static_cast<int64_t>(checkpoint.files_.size());
    if (shard == 0) checkpoint.metadata_ = metadata;
    LS_RETURN_IF_ERROR(CheckPlace(file, metadata, shard, shards, files[0], checkpoint.metadata_));
    checkpoint.files_.push_back(file);
    LS_RETURN_IF_ERROR(checkpoint.Add(reader));
    entries.push_back(EntryOf(reader));
  }
  if (sharded) LS_RETURN_IF_ERROR(CheckManifest(path, entries));
  for (auto& [name, tensor] : checkpoint.tensors_) {
    std::sort(tensor.ranges.begin(), tensor.ranges.end(),
              [](const StoredRange& a, const StoredRange& b) { return a.first < b.first; });
  }
  return checkpoint;
}

absl::Status StoredCheckpoint::Add(const SafetensorsReader& reader) {
  const size_t file = files_.size() - 1;
  for (const SafetensorsTensor& tensor : reader.tensors()) {
    const auto text = reader.metadata().find(PartKey(tensor.name));
    absl::StatusOr<TensorSlice> part = text == reader.metadata().end()
                                           ? WholeSlice(tensor.shape)
                                           : ParseTensorSlice(text->second, tensor.shape);
    if (!part.ok()) {
      return InvalidArgument(reader.path(), ": tensor '", tensor.name, "' ",
                             part.status().message());
    }
    const auto [stored, is_new] = tensors_.try_emplace(
        tensor.name, StoredTensor{.dtype = tensor.dtype, .whole = part->whole, .file = file});
    StoredTensor& known = stored->second;
    if (known.dtype != tensor.dtype || known.whole != part->whole) {
      return absl::DataLossError(
          absl::StrCat(reader.path(), ": tensor '", tensor.name, "' is a part of ",
                       Describe(tensor.dtype, part->whole), ", but in ", files_[known.file],
                       " it is one of ", Describe(known.dtype, known.whole)));
    }
    for (const ElementRange& run : part->ElementRanges()) {
      known.ranges.push_back(
          {.first = run.in_whole, .elements = run.elements, .file = file, .in_file = run.in_slice});
    }
  }
  return absl::OkStatus();
}

std::map<std::string, StoredCheckpoint::Tensor> StoredCheckpoint::tensors() const {
  std::map<std::string, Tensor> tensors;
  for (const auto& [name, stored] : tensors_) {
    tensors[name] = {.dtype = stored.dtype, .shape = stored.whole};
  }
  return tensors;
}

absl::Status StoredCheckpoint::CheckWhole() const {
  for (const auto& [name, tensor] : tensors_) LS_RETURN_IF_ERROR(CheckCovered(name, tensor));
  return absl::OkStatus();
}

absl::Status StoredCheckpoint::Check(const std::vector<StateTensor>& state,
                                     Contents contents) const {
  const bool all = contents == Contents::kAll;
  const std::string owner = all ? "another model or optimizer" : "another model";
  for (const StateTensor& wanted : state) {
    const auto found = tensors_.find(wanted.name);
    if (found == tensors_.end()) {
      return absl::FailedPreconditionError(
          absl::StrCat(path_, ": holds no tensor '", wanted.name, "'; it belongs to ", owner,
                       all ? ". Resume with the configuration that wrote it, or use another --out."
                           : " than this [model] table's"));
    }
    const StoredTensor& tensor = found->second;
    const std::string dtype = SafetensorsDType(wanted.tensor.dtype());
    if (tensor.whole != Dims(wanted.full_shape) || tensor.dtype != dtype) {
      return absl::FailedPreconditionError(absl::StrCat(
          path_, ": tensor '", wanted.name, "' is ", Describe(tensor.dtype, tensor.whole),
          ", but this run has ", Describe(dtype, Dims(wanted.full_shape))));
    }
  }
  const auto is_wanted = [all](const auto& stored) {
    return all || !IsOptimizerState(stored.first);
  };
  const int64_t held = std::count_if(tensors_.begin(), tensors_.end(), is_wanted);
  if (held != std::ssize(state)) {
    return absl::FailedPreconditionError(absl::StrCat(path_, ": holds ", held,
                                                      " tensors, but this run has ", state.size(),
                                                      "; it belongs to ", owner));
  }
  for (const StateTensor& wanted : state) {
    LS_RETURN_IF_ERROR(CheckCovered(wanted.name, tensors_.at(wanted.name)));
  }
  return absl::OkStatus();
}

absl::Status StoredCheckpoint::CheckCovered(const std::string& name,
                                            const StoredTensor& tensor) const {
  const int64_t elements = WholeSlice(tensor.whole).elements;
  const auto hole = [&](int64_t begin, int64_t end) {
    return absl::DataLossError(absl::StrCat(path_, ": ", Elements(begin, end), " of tensor '", name,
                                            "' are in none of its files"));
  };
  int64_t end = 0;
  const StoredRange* before = nullptr;
  for (const StoredRange& range : tensor.ranges) {
    if (range.first > end) return hole(end, range.first);
    if (range.first < end) {
      return absl::DataLossError(absl::StrCat(
          files_[range.file], ": holds ", Elements(range.first, std::min(end, range.end())),
          " of tensor '", name, "', but so does ", files_[before->file]));
    }
    end = range.end();
    before = &range;
  }
  return end < elements ? hole(end, elements) : absl::OkStatus();
}

absl::Status StoredCheckpoint::Read(const std::vector<StateTensor>& state, Kernels& kernels) const {
  // What to read from each file, by tensor (index into `state`).
  std::vector<std::map<size_t, std::vector<SafetensorsPiece>>> reads(files_.size());
  std::vector<HostTarget> targets;
  targets.reserve(state.size());
  for (size_t i = 0; i < state.size(); ++i) {
    const auto size = static_cast<int64_t>(SizeOf(state[i].tensor.dtype()));
    const std::span<std::byte> bytes = targets.emplace_back(state[i].tensor).bytes();
    const std::vector<StoredRange>& stored = tensors_.at(state[i].name).ranges;
    for (const ElementRange& wanted : state[i].held().ElementRanges()) {
      const int64_t wanted_end = wanted.in_whole + wanted.elements;
      // From the range that holds the first element on; ranges follow one another without holes.
      auto range = std::upper_bound(
          stored.begin(), stored.end(), wanted.in_whole,
          [](int64_t first, const StoredRange& held) { return first < held.end(); });
      for (int64_t at = wanted.in_whole; at < wanted_end; at = range->end(), ++range) {
        CHECK(range != stored.end()) << state[i].name << ": the part does not fit into the whole";
        const int64_t count = std::min(range->end(), wanted_end) - at;
        reads[range->file][i].push_back(
            {.offset = (range->in_file + at - range->first) * size,
             .out =
                 bytes.subspan(static_cast<size_t>((wanted.in_slice + at - wanted.in_whole) * size),
                               static_cast<size_t>(count * size))});
      }
    }
  }
  for (size_t file = 0; file < files_.size(); ++file) {
    if (reads[file].empty()) continue;
    LS_ASSIGN_OR_RETURN(const SafetensorsReader reader, SafetensorsReader::Open(files_[file]));
    for (auto& [index, pieces] : reads[file]) {
      const SafetensorsTensor* tensor = reader.Find(state[index].name);
      const bool fits =
          tensor != nullptr &&
          std::all_of(pieces.begin(), pieces.end(), [tensor](const SafetensorsPiece& piece) {
            return piece.offset + std::ssize(piece.out) <= tensor->bytes;
          });
      if (!fits) {
        return absl::DataLossError(
            absl::StrCat(files_[file], ": was changed while it was being read"));
      }
      LS_RETURN_IF_ERROR(reader.ReadPieces(*tensor, std::move(pieces)));
    }
  }
  for (const HostTarget& target : targets) target.Finish(kernels);
  return absl::OkStatus();
}

}  // namespace lockstep
