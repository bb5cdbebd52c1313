// The band that the losses of legitimate runs of a workload stay in, step by step.
//
// Runs that cut, order or round the same sums in other ways part by rounding, and the distance
// grows with the steps. A band is made of such runs so that a further one stays inside at all steps
// together with a stated probability; limits for each step by itself, such as the lowest and the
// highest loss that were seen there, would be left somewhere by almost every run of many steps.
//
// The method is split conformal prediction with a modulated supremum as its score (Diquigiovanni,
// Fontana and Vantini, "The importance of being a band: finite-sample exact distribution-free
// prediction sets for functional data", Statistica Sinica 35, 2025). A third of the runs, drawn
// before anything is seen, gives the mean m(s) and the spread d(s) of each step s. The score of any
// other run x is
//
//   t(x) = max over s of |x(s) - m(s)| / d(s)
//
// and the band is m(s) -+ c d(s), where c is the k-th smallest score of the n other runs,
// k = ceil((n + 1) (1 - rate)). If a further run is drawn as these were, its score is equally
// likely to have any rank among the n + 1, so that it leaves the band with probability rate at
// most, whatever the distribution, the number of steps, or how the steps depend on each other.

#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/report/metrics.h"

namespace lockstep {

// The band at one step.
struct BandStep {
  int64_t step = 0;
  double lowest = 0, highest = 0;  // its limits, which are inside
  double mean = 0;                 // m(s)
  // d(s): root of the mean square deviation of the runs, over this step and the four before it,
  // since the deviation of few runs at one step is small by chance here and there. At least half
  // the distance of two floats there: what a loss is rounded to.
  double spread = 0;

  bool operator==(const BandStep&) const = default;
};

struct LossBand {
  std::string workload;
  double rate = 0;             // of false alarms: the probability that a legitimate run is outside
  int64_t runs = 0;            // that the band is made of
  std::vector<double> scores;  // t(x) of those that gave c, ascending
  std::vector<BandStep> steps;

  bool operator==(const LossBand&) const = default;
};

// How many of `runs` give mean and spread; the others give c.
int64_t ShapeRuns(int64_t runs);

// The fewest runs that allow a rate.
int64_t FewestRuns(double rate);

// Makes the band of such runs, which are in the order in which they were drawn. InvalidArgument
// where there are fewer than FewestRuns(rate), where curves have other steps than the first one, or
// a loss that is not finite.
absl::StatusOr<LossBand> MakeBand(const std::string& workload,
                                  const std::vector<std::vector<LossPoint>>& curves, double rate);

// Where a curve lies.
struct BandPlacement {
  int64_t compared = 0;                 // steps that the band and the curve have
  std::optional<int64_t> outside_from;  // the first step outside; none: the curve is inside
  int64_t outside = 0;                  // steps outside
  double score = 0;      // t(x) over these steps; infinite for a loss that is not finite
  int64_t farthest = 0;  // the step of that maximum
  int64_t as_far = 0;    // runs of LossBand::scores that went as far

  // "inside (at most 1.3 spreads from the mean, at step 7; 12 of 40 runs went as far)", or
  // "outside from step 4 (5.1e+03 spreads from the mean at step 9; none of 40 runs went as far)".
  std::string ToString(const LossBand& band) const;
};

// A curve may have fewer steps, and leave steps out. InvalidArgument where it has none of the
// band's.
absl::StatusOr<BandPlacement> PlaceInBand(const std::vector<LossPoint>& curve,
                                          const LossBand& band);

// The file of a band: a first line `# lockstep band 1 ` with a JSON object (workload, rate, runs,
// scores), a header `step,lowest,highest,mean,spread,count`, and a row for each step. Numbers have
// 17 significant digits; `count` is the number of runs. Programs that skip lines with # read it as
// CSV.
absl::Status WriteBand(const std::string& path, const LossBand& band);

// Reads such a file. InvalidArgument, with file and line, for any other.
absl::StatusOr<LossBand> ReadBand(const std::string& path);

}  // namespace lockstep
