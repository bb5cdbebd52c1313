#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/checkpoint/checkpoint_metadata.h"
#include "core/checkpoint/safetensors.h"
#include "core/checkpoint/state_tensor.h"
#include "core/kernels/kernels.h"

namespace lockstep {

// Whether an error says that a checkpoint is damaged: that a file is missing, cannot be read, or
// does not hold what was saved. Else it is whole, but none of this run.
bool IsDamage(const absl::Status& error);

// A checkpoint on the disk, whole file or shards: what the headers say of it all. At most one file
// is open at a time: where ranks are threads, each of them reads what all of them have written.
class StoredCheckpoint {
 public:
  // Reads the headers. An error names the file that is missing, not sound, or not of this
  // checkpoint: DataLoss or InvalidArgument, for which IsDamage holds. FailedPrecondition for files
  // of another kind or version.
  static absl::StatusOr<StoredCheckpoint> Open(const std::string& path);

  const CheckpointInfo& info() const { return metadata_.info; }

  // Its files, in order: the whole file, or the shards.
  const std::vector<std::string>& files() const { return files_; }
  // Its tensors by name: element type as files have it ("F32"), and full shape.
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
  };
  std::map<std::string, Tensor> tensors() const;
  // Whether its files have each element of each tensor once. DataLoss if not, naming the tensor.
  absl::Status CheckWhole() const;

  // What is wanted of it.
  enum class Contents {
    kAll,      // a run's state
    kWeights,  // without the optimizer's, which is passed over
  };
  // Whether it holds exactly the tensors of `state`, with their whole shapes and dtypes, and each
  // of their elements once. FailedPrecondition if not, DataLoss if elements are missing, naming the
  // tensor.
  absl::Status Check(const std::vector<StateTensor>& state, Contents contents) const;

  // Fills the tensors of `state`, which has passed the check, from the ranges of the files that
  // hold them. Tensors on a device take as much host memory meanwhile.
  absl::Status Read(const std::vector<StateTensor>& state, Kernels& kernels) const;

 private:
  // A range of elements of a whole tensor, and where it lies.
  struct StoredRange {
    int64_t first = 0;  // in the whole
    int64_t elements = 0;
    size_t file = 0;      // index into files_
    int64_t in_file = 0;  // the first one's place among the elements that the file holds

    int64_t end() const { return first + elements; }
  };
  struct StoredTensor {
    std::string dtype;
    std::vector<int64_t> whole;            // shape
    size_t file = 0;                       // one that names it
    std::vector<StoredRange> ranges = {};  // ordered by `first`
  };

  // Adds the tensors of the newest of files_.
  absl::Status Add(const SafetensorsReader& reader);
  absl::Status CheckCovered(const std::string& name, const StoredTensor& tensor) const;

  std::string path_;
  CheckpointMetadata metadata_;  // of the first file
  std::vector<std::string> files_;
  std::map<std::string, StoredTensor> tensors_;
};

}  // namespace lockstep
