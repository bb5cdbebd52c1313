#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/state_tensor.h"
#include "core/kernels/kernels.h"
#include "core/nn/published.h"

namespace lockstep {

// The weights of a model under the names by which they are published, in fp32, fp16 or bf16: a
// safetensors file, or several with an index that says which tensor lies in which, as Hugging
// Face's transformers write large models (model.safetensors.index.json).
class PublishedWeights {
 public:
  // Whether `path` is a folder that holds such weights: a model.safetensors or an index.
  static bool IsFolder(const std::string& path);

  // `path` names a file, an index, or a folder that holds either. Where a config.json lies beside
  // it, this must fit the model (PublishedNames::check_config).
  static absl::StatusOr<PublishedWeights> Open(const std::string& path,
                                               const PublishedNames& names);

  // Whether the files hold each of the tensors of `state`, in its shape, and nothing that the names
  // do not know. FailedPrecondition if not, with a line for each fault.
  absl::Status Check(const std::vector<StateTensor>& state) const;

  // Fills the tensors of `state`, fp32 parts of parameters, which have passed the check, reading no
  // other elements (of a transposed matrix, those of the same rows; of a file with checksums, those
  // of the same blocks). FailedPrecondition where the files hold a tied parameter twice, with
  // different values. DataLoss where a file with checksums does not hold what was written.
  absl::Status Read(const std::vector<StateTensor>& state, Kernels& kernels) const;

 private:
  // A tensor, and the file that it lies in.
  struct Found {
    const SafetensorsReader* reader = nullptr;  // null: there is no such tensor
    const SafetensorsTensor* tensor = nullptr;
  };

  PublishedWeights(std::string path, std::vector<SafetensorsReader> readers, PublishedNames names);

  // The tensors that a parameter is published as.
  std::vector<PublishedTensor> Published(const std::string& parameter) const;
  // Whether a tensor stays as it started: a statistic that is not published, such as the load of
  // experts.
  bool Keeps(const StateTensor& tensor) const;
  // The name of a tensor in these files.
  std::string InFile(const std::string& name) const;
  Found Find(const std::string& name) const;

  std::string path_;
  std::vector<SafetensorsReader> readers_;
  PublishedNames names_;
  bool has_prefix_;
};

// Writes whole fp32 tensors so, one after the other, without the prefix and each tied parameter
// once, as Hugging Face's transformers do: into `folder`, which is made where it is missing, and
// with the config.json of `names`. Weights of more than `file_bytes` are divided among several
// files of at most so many bytes, or one tensor, with an index. Each file has checksums in
// its metadata, to which PublishedWeights holds what it reads; the index and config.json have none.
absl::Status WritePublishedModel(const std::string& folder, const PublishedNames& names,
                                 const std::vector<StateTensor>& state, int64_t file_bytes,
                                 Kernels& kernels);

}  // namespace lockstep
