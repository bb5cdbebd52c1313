// The configurations that a plan compares.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "core/comm/mesh_shape.h"

namespace lockstep {

// One way to run a workload. All other keys are the workload's.
struct Candidate {
  MeshShape mesh;
  int64_t micro_batch = 1;  // samples of one micro-batch
  std::string schedule = "1f1b";
  int stages_per_rank = 1;
  std::string shard = "none";      // data_parallel.shard
  std::string recompute = "none";  // recompute.granularity
  bool sequence_parallel = false;

  // The keys as --set takes them, for a step of `batch` samples. Each data-parallel rank trains one
  // shard of the batch.
  std::vector<std::string> Assignments(int64_t batch) const;

  // Short and unique: "pp=8,dp=16,tp=8,b=1 interleaved_1f1b x3, zero1, sp, selective".
  std::string ToString() const;

  friend bool operator==(const Candidate&, const Candidate&) = default;
};

// What recompute.granularity may be: more is recomputed by the later ones.
inline constexpr const char* kGranularities[] = {"none", "selective", "full"};

// Options that --set fixes. Each candidate has them, unless its mesh does not use them.
struct FixedOptions {
  std::optional<std::string> schedule = {};
  std::optional<int> stages_per_rank = {};
  std::optional<std::string> shard = {};
  std::optional<std::string> recompute = {};
  std::optional<bool> sequence_parallel = {};
};

// What bounds the candidates of a workload on a cluster.
struct CandidateLimits {
  int64_t ranks = 1;
  int64_t ranks_per_node = 1;
  int64_t batch = 1;                                  // samples of a step
  int64_t blocks = 1;                                 // pp * stages_per_rank is at most this
  std::vector<int64_t> tensor_parallel = {1};         // sizes of tp that the model can be split by
  std::vector<int64_t> refused_tensor_parallel = {};  // the others that fit into a node
  std::vector<int64_t> context_parallel = {1};        // sizes of cp that divide its sequences
  std::vector<int64_t> expert_parallel = {1};         // sizes of ep that divide its experts
  std::vector<int64_t> sequence_parallel = {};  // sizes of tp that its sequences can be split by
  bool has_selective = false;                   // recompute.granularity = "selective" is possible
  // What the framework has of data_parallel.shard and of pipeline.schedule.
  std::vector<std::string> shards = {"none", "optimizer", "gradients", "parameters"};
  std::vector<std::string> schedules = {"gpipe", "1f1b", "interleaved_1f1b",
                                        "zb_h1", "zb_v", "dualpipe_v"};
  FixedOptions fixed = {};
};

// The first candidates of a search: every mesh, with the options that serve most meshes. These are
// schedule 1f1b, ZeRO-1 where there are data-parallel ranks (if the framework has it), sequence
// parallelism where tp allows it, and no recomputation, but for what is fixed. There is one for
// each micro-batch of 1, 2, 4, 8 or 16 samples that divides a rank's samples. Where the batch has
// too few samples for all ranks along dp, as few of them as it takes lie along cp. Meshes that the
// model or the batch does not allow have one each: the engine refuses it, and says why.
std::vector<Candidate> FirstCandidates(const CandidateLimits& limits);

// The candidates of one mesh: one for each micro-batch.
std::vector<Candidate> CandidatesOf(const MeshShape& mesh, const CandidateLimits& limits);

// The candidate of a mesh with these options, and micro-batches of one sample.
Candidate UsualCandidate(const MeshShape& mesh, const CandidateLimits& limits);

// Candidates that need less memory than `candidate`: first those that recompute more, then those
// that divide more, and then those with more ranks along cp in place of dp. Empty if there are
// none.
std::vector<Candidate> SmallerCandidates(const Candidate& candidate, const CandidateLimits& limits);

// The candidate with 1/8 to 8 times its ranks along dp, by ascending ranks, itself among them: as
// far as there are `devices` for them and samples for each. Where dp alone makes ranks that can
// divide something, they divide what they usually do.
std::vector<Candidate> WithOtherReplicas(const Candidate& candidate, const CandidateLimits& limits,
                                         int64_t devices);

// Candidates that differ from `candidate` in one option: schedule, stages of a rank, what is
// divided and among which ranks, ranks along cp in place of dp, ranks that divide experts, sequence
// parallelism, or recomputation.
std::vector<Candidate> Variants(const Candidate& candidate, const CandidateLimits& limits);

}  // namespace lockstep
