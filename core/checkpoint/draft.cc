#include "core/checkpoint/draft.h"

#include <algorithm>  // std::copy
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/types/span.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/finite.h"
#include "core/checkpoint/manifest.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/shared_file.h"
#include "core/comm/host_numbers.h"

namespace lockstep {
namespace {

// Host bytes of a tensor; a CPU tensor's own.
class HostBytes {
 public:
  HostBytes(Kernels& kernels, const Tensor& tensor) {
    if (tensor.device().type == DeviceType::kCpu) {
      bytes_ = {tensor.raw(), static_cast<size_t>(tensor.bytes())};
      return;
    }
    copy_.resize(tensor.bytes());
    kernels.CopyToHost(tensor, copy_.data());
    bytes_ = copy_;
  }
  std::span<const std::byte> get() const { return bytes_; }

 private:
  std::vector<std::byte> copy_;
  std::span<const std::byte> bytes_;
};

// A checkpoint must not hold weights that are infinite or NaN.
absl::Status CheckWeights(const StateTensor& part, std::span<const std::byte> bytes) {
  if (IsOptimizerState(part.name)) return absl::OkStatus();
  return CheckFinite(part.name, part.tensor.dtype(), bytes,
                     "no checkpoint of this step is kept; lower schedule.learning_rate, or clip "
                     "with train.clip_norm");
}

absl::Status Stopped() { return absl::CancelledError("the checkpoint is no longer wanted"); }

class WholeDraft : public Draft {
 public:
  WholeDraft(const std::string& path, const CheckpointInfo& info,
             const std::vector<StateTensor>& state)
      : path_(path), metadata_(FormatCheckpointMetadata({.info = info})) {
    for (const StateTensor& part : state) {
      tensors_.push_back({.name = part.name,
                          .dtype = SafetensorsDType(part.tensor.dtype()),
                          .shape = Dims(part.full_shape)});
    }
  }

  absl::Status Make() override { return SharedSafetensors::Make(path_, tensors_, metadata_); }

  absl::Status Fill(const std::vector<StateTensor>& state, Kernels& kernels,
                    const std::stop_token& stop) override {
    LS_ASSIGN_OR_RETURN(file_, SharedSafetensors::Open(path_, tensors_, metadata_));
    for (size_t i = 0; i < state.size(); ++i) {
      if (!IsSaved(state[i])) continue;
      if (stop.stop_requested()) return Stopped();
      const HostBytes bytes(kernels, state[i].tensor);
      LS_RETURN_IF_ERROR(CheckWeights(state[i], bytes.get()));
      const int64_t size = SizeOf(state[i].tensor.dtype());
      for (const ElementRange& run : state[i].held().ElementRanges()) {
        LS_RETURN_IF_ERROR(
            file_->Write(i, run.in_whole * size,
                         bytes.get().subspan(static_cast<size_t>(run.in_slice * size),
                                             static_cast<size_t>(run.elements * size))));
      }
    }
    return file_->Sync();
  }

  absl::Status Combine(Communicator& ranks) override {
    std::vector<uint64_t>& own = file_->checksums().values();
    std::vector<int64_t> sums(own.begin() + 1, own.end());  // but that of the first bytes
    LS_RETURN_IF_ERROR(
        AllReduceNumbers(ranks, absl::MakeSpan(sums), ReduceOp::kSum, "checksums of tensors"));
    std::copy(sums.begin(), sums.end(), own.begin() + 1);
    return absl::OkStatus();
  }

  absl::Status Complete() override {
    LS_RETURN_IF_ERROR(file_->WriteChecksums());
    return file_->Sync();
  }

 private:
  const std::string path_;
  const std::map<std::string, std::string> metadata_;
  std::vector<SafetensorsTensor> tensors_;
  std::optional<SharedSafetensors> file_;  // from Fill on
};

class ShardedDraft : public Draft {
 public:
  ShardedDraft(const std::string& path, const CheckpointInfo& info, const ShardNumber& number)
      : path_(path), metadata_({.info = info, .shard = number}) {}

  absl::Status Make() override { return MakeDirectories(path_); }

  absl::Status Fill(const std::vector<StateTensor>& state, Kernels& kernels,
                    const std::stop_token& stop) override {
    std::vector<SafetensorsTensor> tensors;
    std::map<std::string, std::string> metadata = FormatCheckpointMetadata(metadata_);
    for (const StateTensor& saved : state) {
      if (!IsSaved(saved)) continue;
      const TensorSlice part = saved.held();
      tensors.push_back({.name = saved.name,
                         .dtype = SafetensorsDType(saved.tensor.dtype()),
                         .shape = part.StoredShape()});
      if (!part.IsWhole()) metadata[PartKey(saved.name)] = part.ToText();
    }
    if (tensors.empty()) return absl::OkStatus();
    const ShardNumber& number = *metadata_.shard;
    auto file =
        SafetensorsWriter::Open(ShardPath(path_, number.shard, number.shards), std::move(tensors),
                                std::move(metadata), WithChecksums::kAsTensor);
    if (absl::IsNotFound(file.status())) {
      return Annotate(file.status(), "all ranks must see the run directory");
    }
    LS_RETURN_IF_ERROR(file.status());
    for (const StateTensor& saved : state) {
      if (!IsSaved(saved)) continue;
      if (stop.stop_requested()) return Stopped();
      const HostBytes bytes(kernels, saved.tensor);
      LS_RETURN_IF_ERROR(CheckWeights(saved, bytes.get()));
      LS_RETURN_IF_ERROR(file->Append(saved.name, bytes.get()));
    }
    return file->Commit();
  }

  absl::Status Combine(Communicator& /*ranks*/) override { return absl::OkStatus(); }
  absl::Status Complete() override {
    return Annotate(WriteManifest(path_), "all ranks must see the run directory");
  }

 private:
  const std::string path_;
  const CheckpointMetadata metadata_;
};

}  // namespace

bool IsSaved(const StateTensor& part) {
  return part.is_writer && (part.tensor.elements() > 0 || part.held().IsWhole());
}

int64_t SavedBytes(const std::vector<StateTensor>& state) {
  int64_t bytes = 0;
  for (const StateTensor& part : state) {
    if (IsSaved(part)) bytes += part.tensor.bytes();
  }
  return bytes;
}

std::unique_ptr<Draft> MakeWholeDraft(const std::string& path, const CheckpointInfo& info,
                                      const std::vector<StateTensor>& state) {
  return std::make_unique<WholeDraft>(path, info, state);
}

std::unique_ptr<Draft> MakeShardedDraft(const std::string& path, const CheckpointInfo& info,
                                        const ShardNumber& number) {
  return std::make_unique<ShardedDraft>(path, info, number);
}

}  // namespace lockstep
