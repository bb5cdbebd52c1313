// What all ranks of a run have recorded, put together to whole tensors.

#pragma once

#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/probe/probe_file.h"
#include "core/probe/tensor_digest.h"
#include "core/tensor/dtype.h"

namespace lockstep {

// A place of a run, whatever its mesh.
struct ProbeKey {
  int64_t step = 0;
  ProbeKind kind = ProbeKind::kForward;
  int64_t number = -1;  // as in ProbeRecord
  std::string place;
  int64_t occurrence = 0;  // where a place is passed several times in one micro-batch
  std::string part = {};

  // "step 3, micro-batch 1, backward of blocks.0.attention.qkv". Steps count from 1, as shown.
  std::string ToString() const;
  auto operator<=>(const ProbeKey&) const = default;
};

// A whole tensor at a place.
struct ProbedWhole {
  ProbeKey key;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  TensorDigest digest;
  int64_t elements = 0;  // that are recorded; fewer than the shape has: the record is partial
  // The ranks whose copies of the same elements differ, in words; empty: all copies agree.
  std::string conflict;
  // Its shards, each once: by file of the run, and record of the file.
  struct Shard {
    size_t file = 0, record = 0;
  };
  std::vector<Shard> shards;

  bool is_complete() const;
};

// The probes of a run. Records keep the order in which the first rank that has them computed them.
struct ProbedRun {
  std::string folder;
  std::vector<ProbeFile> files;
  std::vector<ProbedWhole> tensors;

  // The first file's. In a run with legs, other steps may have another program and other ranks;
  // all else but step and rank is the same in all files.
  const ProbeHeader& header() const { return files.front().header; }
  // "lockstep ddp, 4 ranks"; of a run with legs those of each leg that was probed, in their order:
  // "lockstep ddp, 4 ranks; lockstep fsdp, 2 ranks".
  std::string Programs() const;
  bool has_values() const;
  // The tensor at a place; null: there is none.
  const ProbedWhole* Find(const ProbeKey& key) const;
  // The bytes of a complete tensor. The errors of ReadProbedValues.
  absl::StatusOr<std::string> Values(const ProbedWhole& tensor) const;
};

// Reads <run>/probes. NotFound where there are none, with how to get them; InvalidArgument for
// damaged files, files of different runs (the legs of one run are no different runs), and for steps
// of which a rank's file is missing.
absl::StatusOr<ProbedRun> ReadProbedRun(const std::string& run);

}  // namespace lockstep
