#include "core/checkpoint/draft.h"

#include <map>
#include <span>
#include <utility>

#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/shared_file.h"

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

  absl::Status Fill(const std::vector<StateTensor>& state, Kernels& kernels) override {
    LS_ASSIGN_OR_RETURN(SharedSafetensors file,
                        SharedSafetensors::Open(path_, tensors_, metadata_));
    for (size_t i = 0; i < state.size(); ++i) {
      if (!IsSaved(state[i])) continue;
      const HostBytes bytes(kernels, state[i].tensor);
      const int64_t size = SizeOf(state[i].tensor.dtype());
      for (const ElementRange& run : state[i].held().ElementRanges()) {
        LS_RETURN_IF_ERROR(
            file.Write(i, run.in_whole * size,
                       bytes.get().subspan(static_cast<size_t>(run.in_slice * size),
                                           static_cast<size_t>(run.elements * size))));
      }
    }
    return file.Close();
  }

 private:
  const std::string path_;
  const std::map<std::string, std::string> metadata_;
  std::vector<SafetensorsTensor> tensors_;
};

class ShardedDraft : public Draft {
 public:
  ShardedDraft(const std::string& path, const CheckpointInfo& info, const ShardNumber& number)
      : path_(path), metadata_({.info = info, .shard = number}) {}

  absl::Status Make() override { return MakeDirectories(path_); }

  absl::Status Fill(const std::vector<StateTensor>& state, Kernels& kernels) override {
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
    auto file = SafetensorsWriter::Open(ShardPath(path_, number.shard, number.shards),
                                        std::move(tensors), std::move(metadata));
    if (absl::IsNotFound(file.status())) {
      return Annotate(file.status(), "all ranks must see the run directory");
    }
    LS_RETURN_IF_ERROR(file.status());
    for (const StateTensor& saved : state) {
      if (!IsSaved(saved)) continue;
      LS_RETURN_IF_ERROR(file->Append(saved.name, HostBytes(kernels, saved.tensor).get()));
    }
    return file->Commit();
  }

 private:
  const std::string path_;
  const CheckpointMetadata metadata_;
};

}  // namespace

bool IsSaved(const StateTensor& part) {
  return part.is_writer && (part.tensor.elements() > 0 || part.held().IsWhole());
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
