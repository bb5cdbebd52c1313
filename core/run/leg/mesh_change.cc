#include "core/run/leg/mesh_change.h"

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstring>  // std::memcpy
#include <iterator>
#include <map>
#include <numeric>
#include <string>
#include <utility>

#include "absl/types/span.h"
#include "core/base/byte_stream.h"
#include "core/base/status.h"
#include "core/comm/host_numbers.h"
#include "core/layout/moves.h"
#include "core/tensor/allocator.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

constexpr char kLabel[] = "change of mesh";
constexpr char kLayoutLabel[] = "layout";

// Payload of a round of messages, over all ranks; a larger range makes a round of its own.
constexpr int64_t kBytesOfRound = int64_t{64} << 20;

// --- what ranks tell each other of what they hold ------------------------------------------------

void Put(const StateTensor& tensor, ByteWriter& writer) {
  const TensorSlice held = tensor.held();
  writer.Put(tensor.name);
  writer.Put(SizeOf(tensor.tensor.dtype()));
  writer.Put(held.whole);
  writer.Put(held.first);
  writer.Put(held.elements);
  writer.Put(held.slice ? held.slice->dimension : int64_t{-1});
  writer.Put(held.slice ? held.slice->ranges : std::vector<Range>());
}

void Put(const HeldState& state, ByteWriter& writer) {
  const auto has_elements = [](const StateTensor& each) { return each.tensor.elements() > 0; };
  writer.Put(static_cast<uint64_t>(std::count_if(state.begin(), state.end(), has_elements)));
  for (const StateTensor& tensor : state) {
    if (has_elements(tensor)) Put(tensor, writer);
  }
}

struct Described {
  std::string name;
  int64_t element_bytes = 0;
  TensorSlice held;
};

std::vector<Described> GetState(ByteReader& reader) {
  uint64_t count = 0;
  reader.Get(&count);
  std::vector<Described> state;
  for (uint64_t i = 0; i < count && reader.ok(); ++i) {
    Described& tensor = state.emplace_back();
    Slice slice;
    reader.Get(&tensor.name);
    reader.Get(&tensor.element_bytes);
    reader.Get(&tensor.held.whole);
    reader.Get(&tensor.held.first);
    reader.Get(&tensor.held.elements);
    reader.Get(&slice.dimension);
    reader.Get(&slice.ranges);
    if (slice.dimension >= 0) tensor.held.slice = std::move(slice);
  }
  return state;
}

// The bytes of all ranks, one after the other.
absl::StatusOr<std::vector<std::vector<std::byte>>> GatherBytes(const std::vector<std::byte>& own,
                                                                Communicator& world) {
  CpuAllocator allocator;
  const auto empty = [&allocator](int64_t elements, DType dtype) {
    return Tensor::Empty(allocator, {elements}, dtype, MemoryClass::kCommunication);
  };
  const Tensor size = empty(1, DType::kI64), sizes = empty(world.size(), DType::kI64);
  size.data<int64_t>()[0] = std::ssize(own);
  LS_RETURN_IF_ERROR(world.AllGather(size, sizes, kLayoutLabel).Wait());
  const absl::Span<const int64_t> counts = sizes.span<int64_t>();
  const Tensor bytes = empty(std::ssize(own), DType::kU8);
  const Tensor all = empty(std::accumulate(counts.begin(), counts.end(), int64_t{0}), DType::kU8);
  std::memcpy(bytes.raw(), own.data(), own.size());
  LS_RETURN_IF_ERROR(world.AllGather(bytes, all, kLayoutLabel, counts).Wait());
  std::vector<std::vector<std::byte>> by_rank;
  const std::byte* at = all.raw();
  for (const int64_t count : counts) {
    by_rank.emplace_back(at, at + count);
    at += count;
  }
  return by_rank;
}

// Both layouts, as all ranks know them.
struct Layouts {
  std::vector<Holder> from, to;
  std::vector<std::string> names;  // by tensor
  std::vector<int64_t> element_bytes;
};

class LayoutsBuilder {
 public:
  void Add(int rank, ByteReader reader) {
    uint64_t count = 0;
    reader.Get(&count);
    for (uint64_t i = 0; i < count; ++i) from_.emplace_back(rank, GetState(reader));
    to_.emplace_back(rank, GetState(reader));
    CHECK(reader.complete()) << "rank " << rank;
  }

  Layouts Build() && {
    for (const auto* side : {&from_, &to_}) {
      for (const auto& [rank, state] : *side) {
        for (const Described& tensor : state) tensors_.emplace(tensor.name, &tensor);
      }
    }
    Layouts layouts;
    for (auto& [name, tensor] : tensors_) {
      layouts.names.push_back(name);
      layouts.element_bytes.push_back(tensor->element_bytes);
    }
    layouts.from = Holders(from_);
    layouts.to = Holders(to_);
    return layouts;
  }

 private:
  using Side = std::vector<std::pair<int, std::vector<Described>>>;

  std::vector<Holder> Holders(const Side& side) const {
    std::vector<Holder> holders;
    for (const auto& [rank, state] : side) {
      Holder& holder = holders.emplace_back(Holder{.rank = rank, .tensors = {}});
      for (const auto& [name, tensor] : tensors_) {
        holder.tensors.push_back({.whole = tensor->held.whole});
      }
      for (const Described& tensor : state) {
        const auto index = std::distance(tensors_.begin(), tensors_.find(tensor.name));
        holder.tensors[static_cast<size_t>(index)] = tensor.held;
      }
    }
    return holders;
  }

  Side from_, to_;
  std::map<std::string, const Described*> tensors_;  // sorted: the same on all ranks
};

absl::StatusOr<Layouts> ShareLayouts(const std::vector<HeldState>& from, const HeldState& to,
                                     Communicator& world) {
  ByteWriter writer;
  writer.Put(static_cast<uint64_t>(from.size()));
  for (const HeldState& state : from) Put(state, writer);
  Put(to, writer);
  LS_ASSIGN_OR_RETURN((const std::vector<std::vector<std::byte>> all),
                      GatherBytes(writer.Take(), world));
  LayoutsBuilder builder;
  for (int rank = 0; rank < world.size(); ++rank) {
    builder.Add(rank, ByteReader(all[static_cast<size_t>(rank)]));
  }
  return std::move(builder).Build();
}

// --- the elements --------------------------------------------------------------------------------

// The host bytes of a tensor that a rank holds: the tensor's own on a CPU, else a copy.
class HostElements {
 public:
  enum class Use { kRead, kFill };

  HostElements(const StateTensor& state, Use use, Kernels& kernels)
      : tensor_(state.tensor),
        ranges_(state.held().ElementRanges()),
        element_bytes_(SizeOf(state.tensor.dtype())),
        bytes_(tensor_.raw()) {
    if (tensor_.device().type == DeviceType::kCpu) return;
    copy_.resize(static_cast<size_t>(tensor_.bytes()));
    if (use == Use::kRead) kernels.CopyToHost(tensor_, copy_.data());
    bytes_ = copy_.data();
  }

  // Where elements lie that are held one behind the other.
  absl::Span<std::byte> At(const Range& elements) const {
    const auto behind = std::upper_bound(
        ranges_.begin(), ranges_.end(), elements.first,
        [](int64_t element, const ElementRange& range) { return element < range.in_whole; });
    CHECK(behind != ranges_.begin());
    const ElementRange& range = *std::prev(behind);
    CHECK_LE(elements.first + elements.count, range.in_whole + range.elements);
    const int64_t place = range.in_slice + elements.first - range.in_whole;
    return {bytes_ + place * element_bytes_, static_cast<size_t>(elements.count * element_bytes_)};
  }

  // Brings what was written to the device.
  void Finish(Kernels& kernels) const {
    if (!copy_.empty()) kernels.CopyFromHost(copy_.data(), tensor_);
  }

 private:
  Tensor tensor_;
  std::vector<ElementRange> ranges_;
  int64_t element_bytes_;
  std::vector<std::byte> copy_;
  std::byte* bytes_;
};

// One rank's part of the moves.
class Mover {
 public:
  Mover(const std::vector<HeldState>& from, const HeldState& to, const Layouts& layouts,
        Kernels& kernels, Communicator& world)
      : layouts_(layouts), kernels_(kernels), world_(world) {
    size_t own = 0;
    for (size_t holder = 0; holder < layouts.from.size(); ++holder) {
      if (layouts.from[holder].rank != world.rank()) continue;
      Open(from[own++], holder, HostElements::Use::kRead, sources_);
    }
    Open(to, static_cast<size_t>(world.rank()), HostElements::Use::kFill, targets_);
  }

  absl::Status Run(const std::vector<Move>& moves) {
    for (size_t begin = 0, end = 0; begin < moves.size(); begin = end) {
      int64_t bytes = BytesOf(moves[end++]);
      while (end < moves.size() && bytes + BytesOf(moves[end]) <= kBytesOfRound) {
        bytes += BytesOf(moves[end++]);
      }
      LS_RETURN_IF_ERROR(Round(absl::MakeSpan(moves).subspan(begin, end - begin)));
    }
    for (const auto& [key, target] : targets_) target.Finish(kernels_);
    return absl::OkStatus();
  }

  // What this rank sends by the plan.
  int64_t PlannedBytes(const std::vector<Move>& moves) const {
    int64_t bytes = 0;
    for (const Move& move : moves) {
      if (Sender(move) == world_.rank() && Receiver(move) != world_.rank()) bytes += BytesOf(move);
    }
    return bytes;
  }

 private:
  using Elements = std::map<std::pair<size_t, size_t>, HostElements>;  // by holder and tensor

  void Open(const HeldState& state, size_t holder, HostElements::Use use, Elements& elements) {
    for (const StateTensor& tensor : state) {
      if (tensor.tensor.elements() == 0) continue;
      const auto name = std::lower_bound(layouts_.names.begin(), layouts_.names.end(), tensor.name);
      elements.emplace(std::pair(holder, static_cast<size_t>(name - layouts_.names.begin())),
                       HostElements(tensor, use, kernels_));
    }
  }

  int Sender(const Move& move) const { return layouts_.from[move.from].rank; }
  int Receiver(const Move& move) const { return layouts_.to[move.to].rank; }
  int64_t BytesOf(const Move& move) const {
    return move.elements.count * layouts_.element_bytes[move.tensor];
  }
  absl::Span<std::byte> Source(const Move& move) const {
    return sources_.at({move.from, move.tensor}).At(move.elements);
  }
  absl::Span<std::byte> Target(const Move& move) const {
    return targets_.at({move.to, move.tensor}).At(move.elements);
  }

  // Copies what is here, and sends each peer one message with what it lacks.
  absl::Status Round(absl::Span<const Move> moves) {
    std::map<int, std::vector<const Move*>> sent, received;  // by peer
    for (const Move& move : moves) {
      const bool is_sender = Sender(move) == world_.rank();
      const bool is_receiver = Receiver(move) == world_.rank();
      if (is_sender && is_receiver) {
        std::memcpy(Target(move).data(), Source(move).data(), Source(move).size());
      } else if (is_sender) {
        sent[Receiver(move)].push_back(&move);
      } else if (is_receiver) {
        received[Sender(move)].push_back(&move);
      }
    }
    std::vector<std::pair<const std::vector<const Move*>*, Tensor>> arriving;
    std::vector<Work> works;
    for (const auto& [peer, parts] : received) {
      const Tensor message = arriving.emplace_back(&parts, Message(parts)).second;
      works.push_back(world_.Recv(message, peer, kLabel));
    }
    for (const auto& [peer, parts] : sent) {
      const Tensor message = Message(parts);
      std::byte* at = message.raw();
      for (const Move* move : parts) {
        const absl::Span<const std::byte> bytes = Source(*move);
        at = std::copy(bytes.begin(), bytes.end(), at);
      }
      works.push_back(world_.Send(message, peer, kLabel));
    }
    for (Work& work : works) LS_RETURN_IF_ERROR(work.Wait());
    for (const auto& [parts, message] : arriving) {
      const std::byte* at = message.raw();
      for (const Move* move : *parts) {
        const absl::Span<std::byte> bytes = Target(*move);
        std::memcpy(bytes.data(), at, bytes.size());
        at += bytes.size();
      }
    }
    return absl::OkStatus();
  }

  Tensor Message(const std::vector<const Move*>& parts) {
    int64_t bytes = 0;
    for (const Move* move : parts) bytes += BytesOf(*move);
    const bool on_cpu = kernels_.device().type == DeviceType::kCpu;
    Allocator& allocator = on_cpu ? kernels_.allocator() : beside_;
    return Tensor::Empty(allocator, {bytes}, DType::kU8, MemoryClass::kCommunication);
  }

  const Layouts& layouts_;
  Kernels& kernels_;
  Communicator& world_;
  CpuAllocator beside_;  // host memory of ranks that compute elsewhere
  Elements sources_, targets_;
};

}  // namespace

absl::StatusOr<MovedBytes> MoveState(const std::vector<HeldState>& from, const HeldState& to,
                                     Kernels& kernels, Communicator& world) {
  LS_ASSIGN_OR_RETURN(const Layouts layouts, ShareLayouts(from, to, world));
  LS_ASSIGN_OR_RETURN(const std::vector<Move> moves, PlanMoves(layouts.from, layouts.to));
  const CommTotals before = world.ledger().Mark();
  Mover mover(from, to, layouts, kernels, world);
  LS_RETURN_IF_ERROR(mover.Run(moves));
  std::array<int64_t, 2> bytes = {
      mover.PlannedBytes(moves),
      static_cast<int64_t>(world.ledger().Since(before).Of(kLabel).wire_bytes)};
  LS_RETURN_IF_ERROR(AllReduceNumbers(world, absl::MakeSpan(bytes), ReduceOp::kSum, kLayoutLabel));
  return MovedBytes{.planned = bytes[0], .sent = bytes[1]};
}

}  // namespace lockstep
