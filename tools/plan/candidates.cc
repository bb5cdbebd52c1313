#include "tools/plan/candidates.h"

#include <algorithm>
#include <iterator>
#include <numeric>  // std::gcd
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace lockstep {
namespace {

constexpr int64_t kMicroBatches[] = {1, 2, 4, 8, 16};
constexpr const char* kShards[] = {"none", "optimizer", "gradients", "parameters"};
constexpr const char* kShardNames[] = {"ddp", "zero1", "zero2", "fsdp"};

size_t IndexOf(const std::string& name, const char* const* begin, size_t count) {
  return static_cast<size_t>(std::find(begin, begin + count, name) - begin);
}
size_t ShardIndex(const Candidate& c) { return IndexOf(c.shard, kShards, std::size(kShards)); }
size_t RecomputeIndex(const Candidate& c) {
  return IndexOf(c.recompute, kGranularities, std::size(kGranularities));
}

// Whether there are ranks that can divide what data_parallel.shard says.
bool HasDividers(const MeshShape& mesh) { return mesh.dp * mesh.cp > 1; }

bool SplitsSequence(const Candidate& c, const CandidateLimits& limits) {
  return std::count(limits.sequence_parallel.begin(), limits.sequence_parallel.end(), c.mesh.tp) >
         0;
}

// Stages of a rank that a search begins with.
int FirstStages(const std::string& schedule) {
  const bool has_several =
      schedule == "interleaved_1f1b" || schedule == "zb_v" || schedule == "dualpipe_v";
  return has_several ? 2 : 1;
}

// The candidate with what is fixed, where its mesh has a use for it. Where stages are fixed and the
// schedule is not, the schedule is one that has so many.
Candidate WithFixed(Candidate c, const CandidateLimits& limits) {
  const FixedOptions& fixed = limits.fixed;
  if (c.mesh.pp > 1) {
    if (fixed.schedule && c.schedule != *fixed.schedule) {
      c.schedule = *fixed.schedule;
      c.stages_per_rank = FirstStages(c.schedule);
    }
    if (fixed.stages_per_rank && c.stages_per_rank != *fixed.stages_per_rank) {
      c.stages_per_rank = *fixed.stages_per_rank;
      if (!fixed.schedule) c.schedule = c.stages_per_rank > 1 ? "interleaved_1f1b" : "1f1b";
    }
  }
  if (fixed.shard && HasDividers(c.mesh)) c.shard = *fixed.shard;
  if (fixed.recompute) c.recompute = *fixed.recompute;
  if (fixed.sequence_parallel) c.sequence_parallel = *fixed.sequence_parallel && c.mesh.tp > 1;
  return c;
}

bool HalvesBackwards(const std::string& schedule) {
  return schedule == "zb_h1" || schedule == "zb_v";
}

// Micro-batches that one pipeline runs in a step.
int64_t MicroBatches(const Candidate& c, int64_t batch) {
  return std::max<int64_t>(1, batch / c.mesh.data_ranks() / c.micro_batch);
}

template <typename T>
bool Has(const std::vector<T>& all, const T& one) {
  return std::ranges::find(all, one) != all.end();
}

// What the limits and the schedules themselves say of a candidate. The run itself is checked when
// it is recorded.
bool IsSensible(const Candidate& c, const CandidateLimits& limits) {
  const int64_t micro_batches = MicroBatches(c, limits.batch);
  const int pp = c.mesh.pp;
  if (HasDividers(c.mesh) && !Has(limits.shards, c.shard)) return false;
  if (pp > 1 && !Has(limits.schedules, c.schedule)) return false;
  if (int64_t{pp} * c.stages_per_rank > limits.blocks) return false;
  if (c.schedule == "interleaved_1f1b" && micro_batches % pp != 0) return false;
  if (c.schedule == "dualpipe_v" && micro_batches < 2 * pp) return false;
  // Halved backwards need data_parallel.unshard = "step", which keeps all parameters of a rank.
  return !(HalvesBackwards(c.schedule) && c.shard == "parameters");
}

// The mesh with so many ranks along cp, and as many fewer along dp; none where they do not divide.
std::optional<MeshShape> WithContext(MeshShape mesh, int64_t cp) {
  const int64_t ranks = int64_t{mesh.dp} * mesh.cp;
  if (ranks % cp != 0) return std::nullopt;
  mesh.cp = static_cast<int>(cp);
  mesh.dp = static_cast<int>(ranks / cp);
  return mesh;
}

}  // namespace

std::vector<std::string> Candidate::Assignments(int64_t batch) const {
  return {
      absl::StrCat("mesh.pp=", mesh.pp),
      absl::StrCat("mesh.replicas=", mesh.replicas),
      absl::StrCat("mesh.dp=", mesh.dp),
      absl::StrCat("mesh.cp=", mesh.cp),
      absl::StrCat("mesh.ep=", mesh.ep),
      absl::StrCat("mesh.tp=", mesh.tp),
      absl::StrCat("cut.shards=", mesh.data_ranks()),
      absl::StrCat("cut.micro_batches=", MicroBatches(*this, batch)),
      absl::StrCat("cut.features=", mesh.tp),
      absl::StrCat("cut.tokens=", mesh.cp * (sequence_parallel ? mesh.tp : 1)),
      absl::StrCat("tensor_parallel.sequence_parallel=", sequence_parallel ? "true" : "false"),
      absl::StrCat("data_parallel.shard=", shard),
      absl::StrCat("recompute.granularity=", recompute),
      absl::StrCat("pipeline.schedule=", schedule),
      absl::StrCat("pipeline.stages_per_rank=", stages_per_rank),
  };
}

std::string Candidate::ToString() const {
  std::vector<std::string> options;
  if (mesh.pp > 1) {
    options.push_back(stages_per_rank > 1 ? absl::StrCat(schedule, " x", stages_per_rank)
                                          : schedule);
  }
  if (HasDividers(mesh)) options.push_back(kShardNames[ShardIndex(*this)]);
  if (sequence_parallel) options.push_back("sp");
  if (recompute != "none") options.push_back(recompute);
  return absl::StrCat(mesh.ToString(), ",b=", micro_batch, options.empty() ? "" : " ",
                      absl::StrJoin(options, ", "));
}

Candidate UsualCandidate(const MeshShape& mesh, const CandidateLimits& limits) {
  Candidate candidate;
  candidate.mesh = mesh;
  const auto usual = [](const std::vector<std::string>& options, const std::string& option) {
    return options.empty() || Has(options, option) ? option : options.front();
  };
  if (HasDividers(mesh)) candidate.shard = usual(limits.shards, "optimizer");
  if (mesh.pp > 1) candidate.schedule = usual(limits.schedules, "1f1b");
  candidate.sequence_parallel = SplitsSequence(candidate, limits);
  return WithFixed(std::move(candidate), limits);
}

std::vector<Candidate> CandidatesOf(const MeshShape& mesh, const CandidateLimits& limits) {
  std::vector<Candidate> candidates;
  Candidate candidate = UsualCandidate(mesh, limits);
  for (const int64_t micro_batch : kMicroBatches) {
    if (limits.batch % (mesh.data_ranks() * micro_batch) != 0) continue;
    candidate.micro_batch = micro_batch;
    Candidate now = candidate;
    // Two stages that are fixed: zb_v takes any number of micro-batches.
    const bool has_choice = now.stages_per_rank == 2 && !limits.fixed.schedule;
    if (has_choice && !IsSensible(now, limits)) now.schedule = "zb_v";
    if (IsSensible(now, limits)) candidates.push_back(std::move(now));
  }
  if (candidates.empty()) candidates.push_back(UsualCandidate(mesh, limits));
  return candidates;
}

std::vector<Candidate> FirstCandidates(const CandidateLimits& limits) {
  std::vector<Candidate> candidates;
  const auto mesh_of = [&](int64_t pp, int64_t tp) {
    MeshShape mesh;
    mesh.pp = static_cast<int>(pp);
    mesh.dp = static_cast<int>(limits.ranks / tp / pp);
    mesh.tp = static_cast<int>(tp);
    for (const int64_t cp : limits.context_parallel) {
      const auto shorter = WithContext(mesh, cp);
      if (shorter && limits.batch % shorter->data_ranks() == 0) return *shorter;
    }
    return mesh;
  };
  for (const int64_t tp : limits.tensor_parallel) {
    if (limits.ranks % tp != 0) continue;
    for (int64_t pp = 1; pp <= limits.ranks / tp; ++pp) {
      if (limits.ranks / tp % pp != 0) continue;
      const std::vector<Candidate> of_mesh = CandidatesOf(mesh_of(pp, tp), limits);
      candidates.insert(candidates.end(), of_mesh.begin(), of_mesh.end());
    }
  }
  for (const int64_t tp : limits.refused_tensor_parallel) {
    if (limits.ranks % tp != 0) continue;
    candidates.push_back(UsualCandidate(mesh_of(/*pp=*/1, tp), limits));
  }
  return candidates;
}

std::vector<Candidate> SmallerCandidates(const Candidate& candidate,
                                         const CandidateLimits& limits) {
  std::vector<Candidate> smaller;
  const size_t first = RecomputeIndex(candidate);
  for (const int64_t cp : limits.context_parallel) {
    const auto mesh = WithContext(candidate.mesh, cp);
    if (!mesh || mesh->cp < candidate.mesh.cp) continue;
    for (size_t shard = ShardIndex(candidate); shard < std::size(kShards); ++shard) {
      if (!HasDividers(*mesh) && shard > 0) break;
      for (size_t recompute = first; recompute < std::size(kGranularities); ++recompute) {
        if (!limits.has_selective && recompute == 1) continue;
        Candidate next = candidate;
        next.mesh = *mesh;
        next.shard = kShards[shard];
        next.recompute = kGranularities[recompute];
        next = WithFixed(std::move(next), limits);
        if (next != candidate && IsSensible(next, limits) && !Has(smaller, next)) {
          smaller.push_back(std::move(next));
        }
      }
    }
  }
  return smaller;
}

std::vector<Candidate> WithOtherReplicas(const Candidate& candidate, const CandidateLimits& limits,
                                         int64_t devices) {
  std::vector<Candidate> others;
  for (int64_t eighths = 1; eighths <= 64; eighths *= 2) {
    const int64_t dp = candidate.mesh.dp * eighths / 8;
    if (dp * 8 != candidate.mesh.dp * eighths || dp * candidate.mesh.cp % candidate.mesh.ep != 0) {
      continue;
    }
    Candidate other = candidate;
    other.mesh.dp = static_cast<int>(dp);
    if (HasDividers(other.mesh) != HasDividers(candidate.mesh)) {
      other.shard = UsualCandidate(other.mesh, limits).shard;
    }
    if (other.mesh.ranks() > devices ||
        limits.batch % (other.mesh.data_ranks() * other.micro_batch) != 0) {
      continue;
    }
    if (other == candidate || IsSensible(other, limits)) others.push_back(std::move(other));
  }
  return others;
}

std::vector<Candidate> Variants(const Candidate& candidate, const CandidateLimits& limits) {
  std::vector<Candidate> variants;
  const auto add = [&](auto&& change) {
    Candidate variant = candidate;
    change(variant);
    variant = WithFixed(std::move(variant), limits);
    if (variant != candidate && IsSensible(variant, limits) && !Has(variants, variant)) {
      variants.push_back(std::move(variant));
    }
  };
  if (candidate.mesh.pp > 1) {
    for (const char* schedule : {"gpipe", "1f1b", "zb_h1"}) {
      add([&](Candidate& c) { c.schedule = schedule, c.stages_per_rank = 1; });
    }
    for (const char* schedule : {"zb_v", "dualpipe_v"}) {
      add([&](Candidate& c) { c.schedule = schedule, c.stages_per_rank = 2; });
    }
    for (const int stages : {2, 3, 4, 6, 8}) {
      add([&](Candidate& c) { c.schedule = "interleaved_1f1b", c.stages_per_rank = stages; });
    }
  }
  if (HasDividers(candidate.mesh)) {
    for (const char* shard : kShards) add([&](Candidate& c) { c.shard = shard; });
    // Divided within a node, and the same in all nodes.
    const MeshShape& mesh = candidate.mesh;
    const auto in_node = static_cast<int>(limits.ranks_per_node / mesh.tp / mesh.cp);
    const int data_ranks = candidate.mesh.data_ranks();
    if (in_node > 1 && in_node < data_ranks && data_ranks % in_node == 0) {
      add([&](Candidate& c) {
        c.mesh.dp = in_node;
        c.mesh.replicas = data_ranks / in_node;
        c.mesh.ep = std::gcd(c.mesh.ep, c.mesh.dp * c.mesh.cp);
      });
    }
  }
  for (const int64_t cp : limits.context_parallel) {
    if (const auto mesh = WithContext(candidate.mesh, cp)) {
      add([&](Candidate& c) { c.mesh = *mesh; });
    }
  }
  for (const int64_t ep : limits.expert_parallel) {
    if (candidate.mesh.dp * candidate.mesh.cp % ep != 0) continue;
    add([&](Candidate& c) { c.mesh.ep = static_cast<int>(ep); });
  }
  if (SplitsSequence(candidate, limits)) {
    add([](Candidate& c) { c.sequence_parallel = !c.sequence_parallel; });
  }
  for (const char* recompute : kGranularities) {
    if (!limits.has_selective && std::string(recompute) == "selective") continue;
    add([&](Candidate& c) { c.recompute = recompute; });
  }
  return variants;
}

}  // namespace lockstep
