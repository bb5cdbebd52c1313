// The files that probes leave in a run's directory: for each probed step and each rank
//
//   probes/step-000003.rank-00001.jsonl   what the rank had, in the order of its computation
//   probes/step-000003.rank-00001.values  with probe.values, the elements, record after record
//
// Each row of the first file is 16 hexadecimal digits, the checksum of what follows, a blank, and a
// JSON object: a header, a record for each tensor, and last the number of records and the bytes of
// the other file. The elements are held to the hash in their record. Little-endian.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/base/file.h"
#include "core/checkpoint/tensor_slice.h"
#include "core/probe/tensor_digest.h"
#include "core/tensor/dtype.h"

namespace lockstep {

inline constexpr char kProbeFolder[] = "probes";

// Which run, rank and step a file belongs to. What must be equal for two runs to be compared:
// workload, model, and how the batch is cut.
struct ProbeHeader {
  std::string program;   // "lockstep ddp"
  std::string workload;  // its name
  std::string model;     // fingerprint of the model's configuration; empty: not known
  int64_t step = 0;
  int64_t rank = 0, ranks = 1;
  int64_t batch = 1;                      // samples of a step
  int64_t shards = 1, micro_batches = 1;  // of a step, and of a shard
  int64_t tokens = 1;                     // leaves of a sequence
  std::vector<std::string> blocks = {};   // names, in the model's order
  // Whether other steps of the run may have another program, and other ranks.
  bool has_legs = false;
};

// What a recorded tensor is, in the order of a step.
enum class ProbeKind {
  kStateBefore,    // parameters and optimizer state before the first probed step
  kForward,        // what a block or layer hands on, for one micro-batch
  kBackward,       // its gradient
  kShardGradient,  // of a parameter, for one shard of the batch, before any sum over shards
  kGradient,       // of a parameter, over the whole batch
  kNumber,         // loss, norm of the gradients, learning rate
  kStateAfter,     // parameters, running statistics and optimizer state after the update
};
// Names in files and messages.
const char* Name(ProbeKind kind);

// A tensor, or the part of it that a rank has, at one place of a step.
struct ProbeRecord {
  ProbeKind kind = ProbeKind::kForward;
  std::string place;
  int64_t number = -1;  // of the micro-batch in the step, or of the shard; -1: the whole step
  // Which of several addends this is ("cp 1 of 2"), where ranks have yet to sum; empty: complete.
  // Such records are compared only between runs that have the same parts.
  std::string part = {};
  DType dtype = DType::kF32;
  TensorSlice held = {};
  TensorDigest digest = {};
  int64_t values_at = -1;  // byte in the file of values; -1: the elements are not there
};

// Writes the two files of one rank and step, which appear when all is written.
class ProbeWriter {
 public:
  // Makes the folder where it is missing.
  static absl::StatusOr<ProbeWriter> Open(const std::string& folder, const ProbeHeader& header,
                                          bool with_values);

  // `bytes` are the elements of `record.held`. Fills in digest and values_at.
  absl::Status Add(ProbeRecord record, const uint8_t* bytes);
  absl::Status Commit();

 private:
  ProbeWriter(AtomicFileWriter rows, std::optional<AtomicFileWriter> values)
      : rows_(std::move(rows)), values_(std::move(values)) {}

  absl::Status AddRow(const std::string& json);

  AtomicFileWriter rows_;
  std::optional<AtomicFileWriter> values_;
  int64_t records_ = 0, value_bytes_ = 0;
};

struct ProbeFile {
  std::string path;
  ProbeHeader header;
  std::vector<ProbeRecord> records;
};

// Reads a file of rows. InvalidArgument with path and row for one that is damaged, cut short, or
// none of these files.
absl::StatusOr<ProbeFile> ReadProbeFile(const std::string& path);

// Reads the elements of a record of `file`, which it must have. InvalidArgument where they are not
// those of the record's hash.
absl::StatusOr<std::string> ReadProbedValues(const ProbeFile& file, const ProbeRecord& record);

}  // namespace lockstep
