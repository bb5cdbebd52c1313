#include "tools/divergence/judgement.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/probe/element_values.h"

namespace lockstep {
namespace {

// The roundings that a reordered sum, or another algorithm for the same numbers, makes of a tensor
// stay below so many units; bugs seldom do.
constexpr double kRoundings = 256;

// A tensor of both runs, element by element.
struct Values {
  DType dtype;
  std::vector<uint64_t> a_bits, b_bits;
  std::vector<double> a, b;
};

absl::StatusOr<Values> ReadValues(const ProbedRun& a, const ProbedRun& b,
                                  const Difference& difference) {
  Values values = {.dtype = difference.a->dtype, .a_bits = {}, .b_bits = {}, .a = {}, .b = {}};
  const auto read = [&](const ProbedRun& run, const ProbedWhole& tensor,
                        std::vector<uint64_t>& bits, std::vector<double>& numbers) {
    absl::StatusOr<std::string> bytes = run.Values(tensor);
    if (!bytes.ok()) return bytes.status();
    const auto* data = reinterpret_cast<const uint8_t*>(bytes->data());
    const auto count = static_cast<int64_t>(bytes->size()) / SizeOf(tensor.dtype);
    for (int64_t i = 0; i < count; ++i) {
      bits.push_back(BitsAt(tensor.dtype, data, i));
      numbers.push_back(ValueOf(tensor.dtype, bits.back()));
    }
    return absl::OkStatus();
  };
  LS_RETURN_IF_ERROR(read(a, *difference.a, values.a_bits, values.a));
  LS_RETURN_IF_ERROR(read(b, *difference.b, values.b_bits, values.b));
  return values;
}

std::vector<int64_t> IndexOf(int64_t element, const std::vector<int64_t>& shape) {
  std::vector<int64_t> index(shape.size());
  for (size_t dimension = shape.size(); dimension-- > 0;) {
    index[dimension] = element % shape[dimension];
    element /= shape[dimension];
  }
  return index;
}

void Measure(const Values& values, const std::vector<int64_t>& shape, Judgement& judgement) {
  double squares = 0, apart = 0;
  for (size_t i = 0; i < values.a.size(); ++i) {
    squares += values.a[i] * values.a[i];
    apart += (values.b[i] - values.a[i]) * (values.b[i] - values.a[i]);
    if (values.a_bits[i] == values.b_bits[i]) continue;
    const std::vector<int64_t> index = IndexOf(static_cast<int64_t>(i), shape);
    const int64_t ulps = UlpDistance(values.dtype, values.a_bits[i], values.b_bits[i]);
    ++judgement.differing;
    judgement.most_ulps = std::max(judgement.most_ulps, ulps);
    if (!judgement.first) {
      judgement.first = {.index = index, .a = values.a[i], .b = values.b[i], .ulps = ulps};
      for (const int64_t at : index) judgement.extent.emplace_back(at, at);
    }
    for (size_t d = 0; d < index.size(); ++d) {
      judgement.extent[d].first = std::min(judgement.extent[d].first, index[d]);
      judgement.extent[d].second = std::max(judgement.extent[d].second, index[d]);
    }
  }
  judgement.relative =
      squares > 0 ? std::sqrt(apart / squares) : std::numeric_limits<double>::infinity();
}

// The constant that b is a's multiple by, if it is.
std::optional<double> FactorOf(const Values& values) {
  double squares = 0, product = 0, apart = 0, size = 0;
  for (size_t i = 0; i < values.a.size(); ++i) {
    squares += values.a[i] * values.a[i];
    product += values.a[i] * values.b[i];
  }
  if (!(squares > 0)) return std::nullopt;
  const double factor = product / squares;
  for (size_t i = 0; i < values.a.size(); ++i) {
    const double rest = values.b[i] - factor * values.a[i];
    apart += rest * rest;
    size += values.b[i] * values.b[i];
  }
  const double rounding = kRoundings * EpsilonOf(values.dtype);
  const bool is_multiple = std::sqrt(apart) <= rounding * std::sqrt(size);
  return is_multiple && std::abs(factor - 1) > rounding ? std::optional(factor) : std::nullopt;
}

bool HasSameElements(const Values& values) {
  std::vector<uint64_t> a = values.a_bits, b = values.b_bits;
  std::sort(a.begin(), a.end());
  std::sort(b.begin(), b.end());
  return a == b;
}

// Some zeros of one are no zeros of the other, on both sides; elsewhere they agree.
bool HasOtherZeros(const Values& values) {
  const double rounding = kRoundings * EpsilonOf(values.dtype);
  bool only_a = false, only_b = false;
  for (size_t i = 0; i < values.a.size(); ++i) {
    const double a = values.a[i], b = values.b[i];
    only_a = only_a || (a == 0 && b != 0);
    only_b = only_b || (a != 0 && b == 0);
    if (a != 0 && b != 0 && !(std::abs(a - b) <= rounding * std::abs(a))) return false;
  }
  return only_a && only_b;
}

bool IsZero(const TensorDigest& digest) { return digest.squares == 0 && digest.not_finite == 0; }

// What hashes alone can tell.
std::optional<Judgement> JudgeByHash(const ProbedRun& a, const Difference& difference) {
  const ProbeKey& key = difference.key();
  const auto judge = [](DifferenceKind kind, auto... text) {
    Judgement judgement;
    judgement.kind = kind;
    judgement.text = absl::StrCat(text...);
    return judgement;
  };
  for (const ProbedWhole* tensor : {difference.a, difference.b}) {
    if (tensor->conflict.empty()) continue;
    return judge(DifferenceKind::kCopiesDiffer, "in ", tensor == difference.a ? "A" : "B", " ",
                 tensor->conflict,
                 " of the same elements that differ: a sum or a broadcast over ranks is missing");
  }
  for (const ProbedWhole& other : a.tensors) {
    if (other.digest.hash != difference.b->digest.hash || other.shape != difference.b->shape ||
        IsZero(other.digest)) {
      continue;
    }
    const ProbeKey& of = other.key;
    if (of.place != key.place) continue;
    if (of.kind == ProbeKind::kShardGradient && key.kind == ProbeKind::kGradient) {
      return judge(DifferenceKind::kOneShare, "B has what shard ", of.number,
                   " of the batch contributes, alone: the sum over the others is missing");
    }
    if (of.kind == key.kind && of.step + 1 == key.step && of.number == key.number) {
      return judge(DifferenceKind::kStale, "B has the tensor of the step before: a stale value");
    }
    if (of.kind == key.kind && of.step == key.step && of.number != key.number) {
      return judge(DifferenceKind::kOtherPlace, "B has A's tensor of ",
                   key.kind == ProbeKind::kShardGradient ? "shard " : "micro-batch ", of.number,
                   ": samples or micro-batches are swapped");
    }
  }
  // A parameter or a piece of state that the step has not moved.
  if (key.kind == ProbeKind::kStateAfter) {
    for (const ProbedWhole& other : a.tensors) {
      const bool is_before =
          other.key.kind == ProbeKind::kStateBefore && other.key.step == key.step;
      if (is_before && other.key.place == key.place &&
          other.digest.hash == difference.b->digest.hash) {
        return judge(DifferenceKind::kStale,
                     "B has the tensor from before the step: a stale value");
      }
    }
  }
  if (absl::StartsWith(key.place, "batch.")) {
    return judge(DifferenceKind::kOtherBatch, "the runs train on other samples: another batch");
  }
  if (IsZero(difference.b->digest) != IsZero(difference.a->digest)) {
    return judge(DifferenceKind::kZero, IsZero(difference.b->digest) ? "B" : "A",
                 " has zeros only: it was never written, or its addend is missing");
  }
  return std::nullopt;
}

}  // namespace

absl::StatusOr<Judgement> Judge(const ProbedRun& a, const ProbedRun& b,
                                const Difference& difference) {
  std::optional<Judgement> by_hash = JudgeByHash(a, difference);
  Judgement judgement = by_hash.value_or(Judgement());
  const bool is_alike =
      difference.a->shape == difference.b->shape && difference.a->dtype == difference.b->dtype;
  if (!is_alike) {
    judgement.text = "the tensors have other shapes or types";
    return judgement;
  }
  if (!a.has_values() || !b.has_values()) {
    if (by_hash) return judgement;
    judgement.kind = DifferenceKind::kHashesOnly;
    judgement.text =
        absl::StrCat("the files hold hashes only; the norms are ", difference.a->digest.norm(),
                     " and ", difference.b->digest.norm());
    return judgement;
  }
  LS_ASSIGN_OR_RETURN(const Values values, ReadValues(a, b, difference));
  Measure(values, difference.a->shape, judgement);
  if (by_hash) return judgement;
  const auto is = [&judgement](DifferenceKind kind, auto... text) {
    judgement.kind = kind;
    judgement.text = absl::StrCat(text...);
  };
  if (const std::optional<double> factor = FactorOf(values)) {
    is(DifferenceKind::kFactor, "B is A times ", *factor, ": a wrong scale");
  } else if (judgement.relative <= kRoundings * EpsilonOf(values.dtype)) {
    is(DifferenceKind::kRounding, "looks like rounding: the difference has ", judgement.relative,
       " of the tensor's norm");
  } else if (HasSameElements(values)) {
    is(DifferenceKind::kOtherOrder, "B has A's elements at other indices: shards are swapped");
  } else if (HasOtherZeros(values)) {
    is(DifferenceKind::kOtherMask, "zeros lie at other indices: another random mask");
  } else {
    is(DifferenceKind::kOther, "the values are others: the difference has ", judgement.relative,
       " of the tensor's norm");
  }
  return judgement;
}

}  // namespace lockstep
