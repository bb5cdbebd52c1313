#pragma once

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "core/data/dataset.h"
#include "core/kernels/kernels.h"
#include "core/nn/model.h"
#include "models/transformer/transformer.h"

namespace lockstep {

// A language model with its weights in memory, on one rank; with its adapters, where a run has
// trained such.
struct LoadedModel {
  TransformerOptions options;
  Model model;
  std::shared_ptr<const Dataset> dataset;  // that it was trained on; null where no run is known
};

struct RunSource {
  std::string run;              // its directory
  std::string checkpoint = {};  // empty: the newest of the run
  std::string data = {};        // folder of data sets
};

// The same as a user names it on a command line: from where they stand, with LOCKSTEP_DATA for an
// empty `data`.
RunSource FromUser(const RunSource& named);

// The model of a run, whatever its strategy and precision: in fp32, from the masters. Of a run of
// adapters the base is made as the run made it, from model.init or the seed, and must be the same.
// An error says what is missing, or that the run has trained no language model.
absl::StatusOr<LoadedModel> LoadRun(const RunSource& source, Kernels& kernels);

// GPT-2 from a safetensors file with Hugging Face's names; its sizes are those of its tensors. The
// number of heads, which no tensor shows, is `n_head` of the config.json beside it.
absl::StatusOr<LoadedModel> LoadGpt2(const std::string& path, Kernels& kernels);

// Writes it so: model.safetensors and config.json in `folder`, which is made where it is missing.
// Without adapters that are not merged.
absl::Status ExportGpt2(const LoadedModel& loaded, const std::string& folder, Kernels& kernels);

}  // namespace lockstep
