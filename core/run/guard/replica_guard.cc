#include "core/run/guard/replica_guard.h"

#include <algorithm>
#include <map>
#include <span>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/checksum.h"
#include "core/base/status.h"
#include "core/run/guard/wrong_bits.h"
#include "core/tensor/allocator.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "replicas";

// HeldHash::place.
uint64_t PlaceOf(const StateTensor& part) {
  if (part.tensor.elements() == 0) return 0;
  return std::max<uint64_t>(1, ChecksumOf(part.held().ToText()));
}

// HeldHash::value.
uint64_t ValueOf(const StateTensor& part, Kernels& kernels) {
  std::vector<std::byte> copy;
  std::span<const std::byte> bytes(part.tensor.raw(), static_cast<size_t>(part.tensor.bytes()));
  if (part.tensor.device().type != DeviceType::kCpu) {
    copy.resize(bytes.size());
    kernels.CopyToHost(part.tensor, copy.data());
    bytes = copy;
  }
  return ChecksumOf(SizeOf(part.tensor.dtype()), 0, bytes);
}

// All ranks' numbers, one behind the other.
absl::StatusOr<std::vector<uint64_t>> Gather(const std::vector<uint64_t>& own,
                                             Communicator& ranks) {
  CpuAllocator allocator;
  const auto empty = [&](int64_t count) {
    return Tensor::Empty(allocator, {std::ssize(own) * count}, DType::kI64,
                         MemoryClass::kCommunication);
  };
  const Tensor sent = empty(1), received = empty(ranks.size());
  std::ranges::transform(own, sent.data<int64_t>(),
                         [](uint64_t number) { return static_cast<int64_t>(number); });
  LS_RETURN_IF_ERROR(ranks.AllGather(sent, received, kLabel).Wait());
  const absl::Span<const int64_t> all = received.span<int64_t>();
  return std::vector<uint64_t>(all.begin(), all.end());
}

// Faults among ranks that hold the same elements: their hashes, by rank.
void Vote(size_t tensor, const std::map<int, uint64_t>& values, std::vector<ReplicaFault>& faults) {
  std::map<uint64_t, size_t> votes;
  ReplicaFault fault = {.tensor = tensor, .replicas = {}, .suspects = {}};
  for (const auto& [rank, value] : values) {
    ++votes[value];
    fault.replicas.push_back(rank);
  }
  if (votes.size() < 2) return;
  const auto winner = std::max_element(
      votes.begin(), votes.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  const bool is_majority = 2 * winner->second > values.size();
  for (const auto& [rank, value] : values) {
    if (!is_majority || value != winner->first) fault.suspects.push_back(rank);
  }
  faults.push_back(std::move(fault));
}

std::string Describe(const ReplicaFault& fault, const StateTensor& tensor) {
  const std::string suspects = absl::StrJoin(fault.suspects, ", ");
  if (!fault.is_decided()) {
    return absl::StrCat("'", tensor.name, "' differs between its replicas on the ranks ", suspects,
                        ", of which none has a majority");
  }
  return absl::StrCat("'", tensor.name, "' on rank ", suspects, " is not what the other of the ",
                      fault.replicas.size(), " ranks with these elements hold");
}

}  // namespace

std::vector<ReplicaFault> FindFaults(const std::vector<std::vector<HeldHash>>& held) {
  std::vector<ReplicaFault> faults;
  for (size_t tensor = 0; tensor < held[0].size(); ++tensor) {
    std::map<uint64_t, std::map<int, uint64_t>> by_place;
    for (size_t rank = 0; rank < held.size(); ++rank) {
      const HeldHash& hash = held[rank][tensor];
      if (hash.place != 0) by_place[hash.place][static_cast<int>(rank)] = hash.value;
    }
    for (const auto& [place, values] : by_place) Vote(tensor, values, faults);
  }
  return faults;
}

absl::Status CheckReplicas(int64_t step, const std::vector<StateTensor>& state, Kernels& kernels,
                           Communicator& ranks) {
  const size_t tensors = state.size(), size = static_cast<size_t>(ranks.size());
  std::vector<uint64_t> own_places, own_values;
  for (const StateTensor& part : state) own_places.push_back(PlaceOf(part));
  LS_ASSIGN_OR_RETURN(const std::vector<uint64_t> places, Gather(own_places, ranks));
  for (size_t tensor = 0; tensor < tensors; ++tensor) {
    const uint64_t place = own_places[tensor];
    size_t holders = 0;
    for (size_t rank = 0; rank < size; ++rank) holders += places[rank * tensors + tensor] == place;
    // What nobody else holds is not worth a pass over it.
    const bool is_compared = place != 0 && holders > 1;
    own_values.push_back(is_compared ? ValueOf(state[tensor], kernels) : 0);
  }
  LS_ASSIGN_OR_RETURN(const std::vector<uint64_t> values, Gather(own_values, ranks));
  std::vector<std::vector<HeldHash>> held(size);
  for (size_t i = 0; i < places.size(); ++i) {
    held[i / tensors].push_back({.place = places[i], .value = values[i]});
  }
  const std::vector<ReplicaFault> faults = FindFaults(held);
  if (faults.empty()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat(
      "step ", step, ": wrong bits: ", Describe(faults[0], state[faults[0].tensor]),
      faults.size() == 1 ? "" : absl::StrCat(", and so do ", faults.size() - 1, " more tensors"),
      kWrongBitsAdvice));
}

absl::Status ReplicaGuard::AfterSteps(int64_t steps, const std::vector<StateTensor>& state,
                                      Communicator& ranks) {
  return schedule_.IsDueBehind(steps) ? BeforeSaving(steps, state, ranks) : absl::OkStatus();
}

absl::Status ReplicaGuard::BeforeSaving(int64_t steps, const std::vector<StateTensor>& state,
                                        Communicator& ranks) {
  if (!schedule_.checks() || steps == compared_steps_) return absl::OkStatus();
  compared_steps_ = steps;
  const absl::Status same = CheckReplicas(steps, state, kernels_, ranks);
  if (same.ok()) sound_.Compared(steps);
  return same.ok() ? same : sound_.Agree(same, sound_.SinceComparison(), ranks);
}

}  // namespace lockstep
