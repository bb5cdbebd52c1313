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

// A safetensors file with the weights of a model under the names by which they are published, in
// fp32, fp16 or bf16.
class PublishedWeights {
 public:
  static absl::StatusOr<PublishedWeights> Open(const std::string& path,
                                               const PublishedNames& names);

  // Whether the file holds each of the tensors of `state`, in its shape, and nothing that the names
  // do not know. FailedPrecondition if not, with a line for each fault.
  absl::Status Check(const std::vector<StateTensor>& state) const;

  // Fills the tensors of `state`, fp32 parts of parameters, which have passed the check, reading no
  // other elements (of a transposed matrix, those of the same rows). FailedPrecondition where the
  // file holds a tied parameter twice, with different values.
  absl::Status Read(const std::vector<StateTensor>& state, Kernels& kernels) const;

 private:
  PublishedWeights(SafetensorsReader reader, PublishedNames names);

  const PublishedTensor& Published(const std::string& parameter) const;
  // The name of a tensor in this file.
  std::string InFile(const std::string& name) const;

  SafetensorsReader reader_;
  PublishedNames names_;
  bool has_prefix_;
};

// Writes whole fp32 tensors so, one after the other, without the prefix and each tied parameter
// once, as Hugging Face's transformers do.
absl::Status WritePublishedWeights(const std::string& path, const PublishedNames& names,
                                   const std::vector<StateTensor>& state, Kernels& kernels);

}  // namespace lockstep
