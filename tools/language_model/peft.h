#pragma once

#include <string>

#include "absl/status/status.h"
#include "core/kernels/kernels.h"
#include "core/nn/model.h"

namespace lockstep {

// Adapters in the files of Hugging Face's PEFT: adapter_config.json and adapter_model.safetensors
// in a folder, with the names by which the layers of a model are published.
//
// PEFT knows one A and one B for a module. Where a packed layer is one module (GPT-2's c_attn),
// adapters of its single projections are written as one of their ranks together: their A's below
// one another, and a B with a block for each projection and zeros elsewhere, the keys' rows for
// one. Where each projection is a module (Llama's q_proj), an adapter of the whole layer is written
// for each of them, with one A and the projection's rows of B. What they add is the same.

// Writes the adapters of a model in memory, with checksums in the metadata of the file of weights.
// InvalidArgument for a layer without a published name.
absl::Status ExportPeft(const Model& model, const std::string& folder, Kernels& kernels);

// Adds the adapters of a folder to a model in memory that has none: each of a whole module. An
// error names what is not read: other kinds of adapters, trained biases, modules that the model has
// not. DataLoss where a file with checksums does not hold what was written.
absl::Status AddPeftAdapters(Model& model, const std::string& folder, Kernels& kernels);

}  // namespace lockstep
