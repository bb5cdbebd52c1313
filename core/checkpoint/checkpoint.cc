#include "core/checkpoint/checkpoint.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <span>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/shared_file.h"
#include "core/tensor/allocator.h"

namespace lockstep {
namespace {

namespace fs = std::filesystem;

constexpr char kPrefix[] = "step-";
constexpr char kSuffix[] = ".safetensors";
constexpr char kFormat[] = "lockstep checkpoint 1";

const char* SafetensorsDType(DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return "F32";
    case DType::kF16:
      return "F16";
    case DType::kBF16:
      return "BF16";
    case DType::kF64:
      return "F64";
    case DType::kI32:
      return "I32";
    case DType::kI64:
      return "I64";
    case DType::kU8:
      return "U8";
  }
  return "?";
}

std::vector<int64_t> Dims(const Shape& shape) { return {shape.dims().begin(), shape.dims().end()}; }

// The checkpoints of a folder, oldest first. Other files are passed over, unfinished ones
// (step-*.safetensors.tmp-*) among them.
absl::StatusOr<std::vector<std::string>> ListCheckpoints(const std::string& folder) {
  std::vector<std::pair<int64_t, std::string>> found;
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(folder, error)) {
    const std::string name = entry.path().filename().string();
    if (!name.starts_with(kPrefix) || !name.ends_with(kSuffix)) continue;
    const size_t begin = sizeof(kPrefix) - 1, length = name.size() - begin - (sizeof(kSuffix) - 1);
    int64_t step;
    if (absl::SimpleAtoi(name.substr(begin, length), &step)) {
      found.emplace_back(step, entry.path().string());
    }
  }
  if (error && error != std::errc::no_such_file_or_directory) {
    return absl::UnavailableError(
        absl::StrCat(folder, ": the checkpoints cannot be listed: ", error.message()));
  }
  std::sort(found.begin(), found.end());
  std::vector<std::string> paths;
  for (auto& [step, path] : found) paths.push_back(std::move(path));
  return paths;
}

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

absl::Status CheckTensors(const SafetensorsReader& reader, const std::vector<StateTensor>& state) {
  for (const StateTensor& wanted : state) {
    const SafetensorsTensor* tensor = reader.Find(wanted.name);
    if (tensor == nullptr) {
      return absl::FailedPreconditionError(
          absl::StrCat(reader.path(), ": holds no tensor '", wanted.name,
                       "'; it belongs to another model or optimizer. Resume with the "
                       "configuration that wrote it, or use another --out."));
    }
    if (tensor->shape != Dims(wanted.full_shape) ||
        tensor->dtype != SafetensorsDType(wanted.tensor.dtype())) {
      return absl::FailedPreconditionError(
          absl::StrCat(reader.path(), ": tensor '", wanted.name, "' is ", tensor->dtype,
                       Shape(absl::MakeConstSpan(tensor->shape)).ToString(), ", but this run has ",
                       SafetensorsDType(wanted.tensor.dtype()), wanted.full_shape.ToString()));
    }
  }
  if (reader.tensors().size() != state.size()) {
    return absl::FailedPreconditionError(absl::StrCat(
        reader.path(), ": holds ", reader.tensors().size(), " tensors, but this run has ",
        state.size(), "; it belongs to another model or optimizer"));
  }
  return absl::OkStatus();
}

// An error on all ranks if it is one on any.
absl::Status Agree(const absl::Status& own, Communicator& ranks) {
  CpuAllocator allocator;
  const Tensor failed = Tensor::Empty(allocator, {1}, DType::kI64, MemoryClass::kCommunication);
  failed.data<int64_t>()[0] = own.ok() ? 0 : 1;
  LS_RETURN_IF_ERROR(ranks.AllReduce(failed, failed, ReduceOp::kMax, "checkpoint").Wait());
  if (own.ok() && failed.data<int64_t>()[0] != 0) {
    return absl::AbortedError("another rank could not write its part of a checkpoint");
  }
  return own;
}

absl::Status WriteParts(const std::string& path, const std::vector<SafetensorsTensor>& tensors,
                        const std::map<std::string, std::string>& metadata,
                        const std::vector<StateTensor>& state, Kernels& kernels) {
  LS_ASSIGN_OR_RETURN(SharedSafetensors file, SharedSafetensors::Open(path, tensors, metadata));
  for (size_t i = 0; i < state.size(); ++i) {
    const StateTensor& part = state[i];
    if (!part.is_writer || part.tensor.elements() == 0) continue;
    LS_RETURN_IF_ERROR(file.Write(i, part.first * SizeOf(part.tensor.dtype()),
                                  HostBytes(kernels, part.tensor).get()));
  }
  return file.Close();
}

// Deletes all but the newest `keep`.
absl::Status Prune(const std::string& folder, int64_t keep) {
  LS_ASSIGN_OR_RETURN(const std::vector<std::string> all, ListCheckpoints(folder));
  for (size_t i = 0; i + keep < all.size(); ++i) {
    std::error_code ignored;  // an old file that cannot be deleted does no harm
    fs::remove(all[i], ignored);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status SaveCheckpoint(const std::string& folder, const CheckpointInfo& info,
                            const std::vector<StateTensor>& state, int64_t keep, Kernels& kernels,
                            Communicator& ranks) {
  std::vector<SafetensorsTensor> tensors;
  for (const StateTensor& part : state) {
    tensors.push_back({.name = part.name,
                       .dtype = SafetensorsDType(part.tensor.dtype()),
                       .shape = Dims(part.full_shape)});
  }
  const std::map<std::string, std::string> metadata = {{"format", kFormat},
                                                       {"step", absl::StrCat(info.step)},
                                                       {"model", info.model},
                                                       {"strategy", info.strategy}};
  const std::string path = absl::StrFormat("%s/%s%08d%s", folder, kPrefix, info.step, kSuffix);
  const bool first = ranks.rank() == 0;
  absl::Status made;
  if (first) {
    made = MakeDirectories(folder);
    if (made.ok()) made = SharedSafetensors::Make(path, tensors, metadata);
  }
  LS_RETURN_IF_ERROR(Agree(made, ranks));
  const absl::Status written = Agree(WriteParts(path, tensors, metadata, state, kernels), ranks);
  if (first && !written.ok()) SharedSafetensors::Discard(path);
  LS_RETURN_IF_ERROR(written);
  if (!first) return absl::OkStatus();
  LS_RETURN_IF_ERROR(SharedSafetensors::PutInPlace(path));
  return Prune(folder, keep);
}

absl::StatusOr<std::optional<std::string>> NewestCheckpoint(const std::string& folder) {
  LS_ASSIGN_OR_RETURN(const std::vector<std::string> all, ListCheckpoints(folder));
  if (all.empty()) return std::nullopt;
  return all.back();
}

absl::StatusOr<CheckpointInfo> LoadCheckpoint(const std::string& path, const std::string& model,
                                              const std::vector<StateTensor>& state,
                                              Kernels& kernels) {
  LS_ASSIGN_OR_RETURN(const SafetensorsReader reader, SafetensorsReader::Open(path));
  const auto field = [&reader](const char* name) {
    const auto found = reader.metadata().find(name);
    return found == reader.metadata().end() ? std::string() : found->second;
  };
  if (field("format") != kFormat) {
    return absl::FailedPreconditionError(absl::StrCat(
        path, ": is no checkpoint of a training run (its metadata lacks \"format\": \"", kFormat,
        "\"); to start from bare weights, do not use --resume"));
  }
  CheckpointInfo info = {.model = field("model"), .strategy = field("strategy")};
  if (!absl::SimpleAtoi(field("step"), &info.step) || info.step < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": metadata says step '", field("step"), "', which is no step"));
  }
  if (info.model != model) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": was written by a model of another configuration (fingerprint ",
                     info.model, ", this run has ", model,
                     "). Resume with the [model] table that wrote it, or use another --out."));
  }
  LS_RETURN_IF_ERROR(CheckTensors(reader, state));
  for (const StateTensor& part : state) {
    std::vector<std::byte> bytes(part.tensor.bytes());
    LS_RETURN_IF_ERROR(
        reader.Read(*reader.Find(part.name), bytes, part.first * SizeOf(part.tensor.dtype())));
    kernels.CopyFromHost(bytes.data(), part.tensor);
  }
  return info;
}

}  // namespace lockstep
