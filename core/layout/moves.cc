#include "core/layout/moves.h"

#include <algorithm>
#include <map>
#include <optional>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

// The elements of a tensor that holders have, in ascending ranges each.
class Sources {
 public:
  Sources(const std::vector<Holder>& holders, size_t tensor) : holders_(holders) {
    for (const Holder& holder : holders) {
      std::vector<Range>& ranges = ranges_.emplace_back();
      for (const ElementRange& range : holder.tensors[tensor].ElementRanges()) {
        ranges.push_back({.first = range.in_whole, .count = range.elements});
      }
    }
  }

  size_t size() const { return ranges_.size(); }
  int RankOf(size_t holder) const { return holders_[holder].rank; }

  // How many elements a holder has from `element` on without a gap; 0: not even that one.
  int64_t From(size_t holder, int64_t element) const {
    const Range* range = RangeBehind(holder, element);
    if (range == nullptr || range->first > element) return 0;
    return range->first + range->count - element;
  }
  // The first element behind `element` at which the holder has some; `otherwise` if there is none.
  int64_t Next(size_t holder, int64_t element, int64_t otherwise) const {
    const Range* range = RangeBehind(holder, element);
    return range == nullptr ? otherwise : std::max(range->first, element);
  }

 private:
  // The first of a holder's ranges that ends behind `element`.
  const Range* RangeBehind(size_t holder, int64_t element) const {
    const std::vector<Range>& ranges = ranges_[holder];
    const auto found = std::upper_bound(
        ranges.begin(), ranges.end(), element,
        [](int64_t e, const Range& range) { return e < range.first + range.count; });
    return found == ranges.end() ? nullptr : &*found;
  }

  const std::vector<Holder>& holders_;
  std::vector<std::vector<Range>> ranges_;
};

class Planner {
 public:
  explicit Planner(const std::vector<Holder>& from, const std::vector<Holder>& to)
      : from_(from), to_(to) {}

  absl::StatusOr<std::vector<Move>> Plan() {
    const size_t tensors = to_.empty() ? 0 : to_.front().tensors.size();
    for (size_t tensor = 0; tensor < tensors; ++tensor) {
      const Sources sources(from_, tensor);
      for (size_t to = 0; to < to_.size(); ++to) {
        for (const ElementRange& range : to_[to].tensors[tensor].ElementRanges()) {
          LS_RETURN_IF_ERROR(
              Fill(sources, tensor, to, {.first = range.in_whole, .count = range.elements}));
        }
      }
    }
    return std::move(moves_);
  }

 private:
  // Adds the moves of elements that a holder is to have.
  absl::Status Fill(const Sources& sources, size_t tensor, size_t to, const Range& wanted) {
    const int64_t end = wanted.first + wanted.count;
    for (int64_t element = wanted.first; element < end;) {
      const std::optional<size_t> from = Choose(sources, element, to_[to].rank);
      if (!from) {
        return absl::DataLossError(
            absl::StrCat("no rank has element ", element, " of tensor ", tensor));
      }
      int64_t count = std::min(sources.From(*from, element), end - element);
      const bool is_here = sources.RankOf(*from) == to_[to].rank;
      // What begins on the rank itself before that is not sent.
      if (!is_here) count = UntilOwn(sources, to_[to].rank, element, element + count) - element;
      moves_.push_back({.tensor = tensor,
                        .from = *from,
                        .to = to,
                        .elements = {.first = element, .count = count}});
      if (!is_here) sent_[sources.RankOf(*from)] += count;
      element += count;
    }
    return absl::OkStatus();
  }

  // A holder of the rank itself, else the one whose rank has sent the least.
  std::optional<size_t> Choose(const Sources& sources, int64_t element, int rank) {
    std::optional<size_t> best;
    for (size_t holder = 0; holder < sources.size(); ++holder) {
      if (sources.From(holder, element) == 0) continue;
      if (sources.RankOf(holder) == rank) return holder;
      if (!best || sent_[sources.RankOf(holder)] < sent_[sources.RankOf(*best)]) best = holder;
    }
    return best;
  }

  static int64_t UntilOwn(const Sources& sources, int rank, int64_t element, int64_t end) {
    for (size_t holder = 0; holder < sources.size(); ++holder) {
      if (sources.RankOf(holder) != rank) continue;
      end = std::min(end, sources.Next(holder, element, end));
    }
    return end;
  }

  const std::vector<Holder>& from_;
  const std::vector<Holder>& to_;
  std::map<int, int64_t> sent_;  // elements, by rank
  std::vector<Move> moves_;
};

}  // namespace

absl::StatusOr<std::vector<Move>> PlanMoves(const std::vector<Holder>& from,
                                            const std::vector<Holder>& to) {
  return Planner(from, to).Plan();
}

}  // namespace lockstep
