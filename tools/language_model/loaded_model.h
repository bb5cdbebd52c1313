#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/data/dataset.h"
#include "core/kernels/kernels.h"
#include "core/nn/model.h"

namespace lockstep {

// A language model with its weights in memory, on one rank; with its adapters, where a run has
// trained such.
struct LoadedModel {
  Model model;
  int64_t context = 0;  // longest sequence
  int64_t vocabulary = 0;
  std::shared_ptr<const Dataset> dataset;  // that it was trained on; null where no run is known
};

// In place of a checkpoint: the weights that the run started from, before any adapters.
inline constexpr char kInitialWeights[] = "initial";

struct RunSource {
  std::string run;              // its directory
  std::string checkpoint = {};  // empty: the newest of the run; or kInitialWeights
  std::string data = {};        // folder of data sets
};

// The same as a user names it on a command line: from where they stand, with LOCKSTEP_DATA for an
// empty `data`.
RunSource FromUser(const RunSource& named);

// The model of a run, whatever its strategy and precision: in fp32, from the masters. The base of
// a run of adapters is made as the run made it, from model.init or the seed, and must be the same.
// FailedPrecondition where the run's config.toml describes another model than the one that wrote
// the checkpoint. An error says what is missing, or that the run has trained no language model.
absl::StatusOr<LoadedModel> LoadRun(const RunSource& source, Kernels& kernels);

// A model from weights with Hugging Face's names: a safetensors file, an index, or a folder that
// holds either. The config.json beside it says which kind of model it is. A Llama has the sizes
// that it tells. Any other is a GPT-2, whose sizes are those of its tensors; the number of heads,
// which no tensor shows, is `n_head`.
absl::StatusOr<LoadedModel> LoadPublished(const std::string& path, Kernels& kernels);

// Writes it so: weights and config.json in `folder`, which is made where it is missing; weights of
// more than `file_bytes` in several files with an index. Without adapters that are not merged.
absl::Status ExportModel(const LoadedModel& loaded, const std::string& folder, int64_t file_bytes,
                         Kernels& kernels);

// What Hugging Face's transformers put into one file.
inline constexpr int64_t kFileBytes = 5'000'000'000;

}  // namespace lockstep
