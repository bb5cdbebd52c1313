#include "foresight/measured_time.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <iterator>
#include <utility>

#include "absl/strings/str_cat.h"

namespace lockstep {
namespace {

// Distance, as factors of two of an extent, at which a sample weighs little: the one by which each
// sample of a calibration is best foretold from the others (benchmarks.md).
constexpr double kReach = 1.5;
// Floats of a vector register.
constexpr double kVector = 16;
// Keeps slopes along which samples do not differ near zero: the rate of the nearest holds there.
constexpr double kRidge = 0.003;

std::string KeyOf(const std::string& kernel, DType dtype,
                  const std::map<std::string, std::pair<double, double>>& extents) {
  std::string key = absl::StrCat(kernel, " ", Name(dtype));
  for (const auto& [name, extent] : extents) absl::StrAppend(&key, " ", name);
  return key;
}

std::vector<double> Logarithms(const std::map<std::string, std::pair<double, double>>& extents) {
  std::vector<double> logarithms;
  for (const auto& [name, extent] : extents) {
    logarithms.push_back(std::log2(extent.first));
    logarithms.push_back(std::log2(extent.second));
    // What a vector register has beyond the last columns.
    logarithms.push_back(std::log2(std::ceil(extent.second / kVector) * kVector / extent.second));
  }
  return logarithms;
}

// The first element of the solution of a symmetric positive definite system of equations, whose
// last column is its right side.
double SolveForFirst(std::vector<std::vector<double>> rows) {
  // From the last unknown to the first.
  for (size_t k = rows.size() - 1; k > 0; --k) {
    for (size_t i = 0; i < k; ++i) {
      const double factor = rows[i][k] / rows[k][k];
      for (size_t j = 0; j < rows[i].size(); ++j) rows[i][j] -= factor * rows[k][j];
    }
  }
  return rows[0].back() / rows[0][0];
}

double Apart(double a, double b) { return std::abs(std::log2(a / b)); }

// What was measured of the number of ranks that is nearest to `ranks`.
const std::map<double, double>& NearestTo(int ranks,
                                          const std::map<int, std::map<double, double>>& by_ranks) {
  return std::min_element(by_ranks.begin(), by_ranks.end(),
                          [&](const auto& a, const auto& b) {
                            return Apart(a.first, ranks) < Apart(b.first, ranks);
                          })
      ->second;
}

// Where log(x) lies between those of the points on both sides of it: 0 at the one below, 1 above.
double ShareOf(double x, double below, double above) {
  return std::log(x / below) / std::log(above / below);
}

}  // namespace

MeasuredKernelTime::MeasuredKernelTime(const Measurements& measured, int ranks, int threads) {
  const auto distance = [&](const MeasuredKernel& row) {
    return Apart(row.ranks, ranks) + Apart(row.threads, threads);
  };
  std::map<std::string, double> nearest;
  for (const MeasuredKernel& row : measured.kernels) {
    const std::string key = KeyOf(row.kernel, row.dtype, row.extents);
    const auto [at, is_new] = nearest.try_emplace(key, distance(row));
    if (is_new || distance(row) < at->second) samples_[key].clear();
    at->second = std::min(at->second, distance(row));
    if (distance(row) > at->second) continue;
    samples_[key].push_back({Logarithms(row.extents), std::log(row.seconds / row.work)});
  }
}

std::optional<double> MeasuredKernelTime::Seconds(const KernelCall& call, double work) const {
  const auto extents = ExtentsOf(call);
  const DType dtype = call.tensors.empty() ? DType::kF32 : call.tensors[0].dtype;
  return Seconds(KeyOf(call.kernel, dtype, extents), Logarithms(extents), work, Own::kCounts);
}

std::optional<double> MeasuredKernelTime::SecondsFromOthers(const MeasuredKernel& row) const {
  return Seconds(KeyOf(row.kernel, row.dtype, row.extents), Logarithms(row.extents), row.work,
                 Own::kIsLeftOut);
}

std::optional<double> MeasuredKernelTime::Seconds(const std::string& key,
                                                  const std::vector<double>& extents, double work,
                                                  Own own) const {
  const auto found = samples_.find(key);
  if (found == samples_.end() || work <= 0) return std::nullopt;
  // The normal equations of a fit around `extents`, whose constant is the value there.
  const size_t unknowns = extents.size() + 1;
  std::vector<std::vector<double>> equations(unknowns, std::vector<double>(unknowns + 1, 0.0));
  double weights = 0;
  double lowest = HUGE_VAL, highest = -HUGE_VAL;
  for (const Sample& sample : found->second) {
    if (own == Own::kIsLeftOut && sample.extents == extents) continue;
    std::vector<double> terms = {1};
    double squares = 0;
    for (size_t i = 0; i < extents.size(); ++i) {
      terms.push_back(sample.extents[i] - extents[i]);
      squares += terms.back() * terms.back();
    }
    terms.push_back(sample.log_rate);
    const double weight = std::exp(-squares / (2 * kReach * kReach)) + 1e-6;
    weights += weight;
    lowest = std::min(lowest, sample.log_rate);
    highest = std::max(highest, sample.log_rate);
    for (size_t i = 0; i < unknowns; ++i) {
      for (size_t j = 0; j <= unknowns; ++j) equations[i][j] += weight * terms[i] * terms[j];
    }
  }
  if (weights == 0) return std::nullopt;
  for (size_t i = 1; i < unknowns; ++i) equations[i][i] += kRidge * weights;
  // Beyond what was measured, rates do not go on to rise or fall.
  return work * std::exp(std::clamp(SolveForFirst(std::move(equations)), lowest, highest));
}

MeasuredCommTime::MeasuredCommTime(const Measurements& measured, Transport transport) {
  for (const MeasuredCall& call : measured.calls) {
    if (call.transport == transport) times_[call.operation][call.ranks][call.bytes] = call.seconds;
  }
  for (const MeasuredWait& wait : measured.waits) {
    if (wait.transport == transport) waits_[wait.ranks][wait.apart] = wait.seconds;
  }
}

double MeasuredCommTime::Seconds(Operation operation, int ranks, double bytes) const {
  auto of_operation = times_.find(operation);
  if (of_operation == times_.end()) of_operation = times_.find(Operation::kAllReduce);
  if (of_operation == times_.end()) return 0;
  const std::map<double, double>& times = NearestTo(ranks, of_operation->second);
  const auto above = times.lower_bound(bytes);
  if (above == times.begin()) return above->second;
  const auto below = std::prev(above);
  if (above == times.end()) return below->second * bytes / below->first;
  const double share = ShareOf(bytes, below->first, above->first);
  return below->second * std::pow(above->second / below->second, share);
}

double MeasuredCommTime::Wait(double apart, const GroupPlacement& placement) const {
  if (waits_.empty() || placement.ranks == 1) return 0;
  const std::map<double, double>& waits = NearestTo(placement.ranks, waits_);
  const auto above = waits.lower_bound(apart);
  if (above == waits.begin()) return above->second;
  const auto below = std::prev(above);
  if (above == waits.end()) return below->second;
  // Waits may be next to nothing: their logarithms would let that count too much.
  return std::lerp(below->second, above->second, ShareOf(apart, below->first, above->first));
}

double MeasuredCommTime::Collective(Operation operation, double payload_bytes,
                                    const GroupPlacement& placement) const {
  if (placement.ranks == 1) return 0;
  const bool is_message = operation == Operation::kSend || operation == Operation::kRecv;
  return Seconds(is_message ? Operation::kSend : operation, placement.ranks, payload_bytes);
}

double MeasuredCommTime::Message(double bytes, bool /*within_node*/, int at_once) const {
  return Seconds(Operation::kSend, 2 * at_once, bytes);
}

}  // namespace lockstep
