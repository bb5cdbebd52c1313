#include "core/run/device/own_gpu.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"

namespace lockstep {
namespace {

// A matching of ranks with GPUs, which grows by augmenting paths (Kuhn, 1955).
class Matching {
 public:
  explicit Matching(absl::Span<const std::vector<GpuId>> visible) : visible_(visible) {}

  // Gives the rank a GPU, for which other ranks may change theirs; returns whether there is one.
  bool Add(int rank) {
    std::set<GpuId> tried;
    return Find(rank, &tried);
  }

  const std::map<GpuId, int>& rank_of() const { return rank_of_; }

 private:
  bool Find(int rank, std::set<GpuId>* tried) {
    const std::vector<GpuId>& gpus = visible_[static_cast<size_t>(rank)];
    for (const GpuId& gpu : gpus) {
      if (rank_of_.emplace(gpu, rank).second) return true;
    }
    for (const GpuId& gpu : gpus) {
      if (tried->insert(gpu).second && Find(rank_of_.at(gpu), tried)) {
        rank_of_.at(gpu) = rank;
        return true;
      }
    }
    return false;
  }

  const absl::Span<const std::vector<GpuId>> visible_;
  std::map<GpuId, int> rank_of_;
};

}  // namespace

absl::StatusOr<std::vector<int>> DivideGpus(absl::Span<const std::vector<GpuId>> visible) {
  Matching matching(visible);
  for (int rank = 0; rank < static_cast<int>(visible.size()); ++rank) {
    if (matching.Add(rank)) continue;
    const size_t gpus = visible[static_cast<size_t>(rank)].size();
    return absl::UnavailableError(absl::StrCat(
        "--device cuda: rank ", rank, " sees ", gpus, gpus == 1 ? " GPU" : " GPUs",
        ", which other ranks have, and a rank that is a process needs one of its own; start as "
        "many ranks on a machine as it has GPUs, or leave the launcher away: ranks are then "
        "threads, which share a GPU; or use --device cpu"));
  }
  std::vector<int> positions(visible.size());
  for (const auto& [gpu, rank] : matching.rank_of()) {
    const std::vector<GpuId>& gpus = visible[static_cast<size_t>(rank)];
    const auto found = std::find(gpus.begin(), gpus.end(), gpu);
    positions[static_cast<size_t>(rank)] = static_cast<int>(found - gpus.begin());
  }
  return positions;
}

absl::StatusOr<int> ChooseOwnGpu(absl::Span<const GpuId> visible, Communicator& world) {
  const auto ranks = static_cast<size_t>(world.size());
  std::vector<int64_t> counts(ranks);
  LS_RETURN_IF_ERROR(
      GatherNumbers(world, {static_cast<int64_t>(visible.size())}, absl::MakeSpan(counts), "gpus"));
  const auto most = static_cast<size_t>(*std::max_element(counts.begin(), counts.end()));
  constexpr size_t kNumbers = std::tuple_size_v<GpuId>;
  std::vector<int64_t> own, all(ranks * most * kNumbers);
  for (const GpuId& gpu : visible) own.insert(own.end(), gpu.begin(), gpu.end());
  own.resize(most * kNumbers);
  LS_RETURN_IF_ERROR(GatherNumbers(world, own, absl::MakeSpan(all), "gpus"));
  std::vector<std::vector<GpuId>> visible_of(ranks);
  for (size_t rank = 0; rank < ranks; ++rank) {
    for (size_t i = 0; i < static_cast<size_t>(counts[rank]); ++i) {
      const size_t at = (rank * most + i) * kNumbers;
      visible_of[rank].push_back({all[at], all[at + 1]});
    }
  }
  LS_ASSIGN_OR_RETURN(const std::vector<int> positions, DivideGpus(visible_of));
  return positions[static_cast<size_t>(world.rank())];
}

}  // namespace lockstep
