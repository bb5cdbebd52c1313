#include "tools/curve/loss_band.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/status.h"
#include "nlohmann/json.hpp"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

constexpr char kMark[] = "# lockstep band 1 ";
constexpr char kHeader[] = "step,lowest,highest,mean,spread,count";
constexpr size_t kWindow = 5;  // steps whose deviations make the spread of the last of them

// Half the distance of two floats of this size, relatively.
constexpr double kRounding = 0x1p-24;

using Curves = std::vector<std::vector<LossPoint>>;

absl::Status CheckCurves(const Curves& curves) {
  for (size_t i = 0; i < curves.size(); ++i) {
    if (curves[i].empty() || curves[i].size() != curves[0].size()) {
      return InvalidArgument("run ", i, " has ", curves[i].size(), " losses, and run 0 has ",
                             curves[0].size());
    }
    for (size_t at = 0; at < curves[i].size(); ++at) {
      const LossPoint& point = curves[i][at];
      if (point.step != curves[0][at].step) {
        return InvalidArgument("run ", i, " has step ", point.step, " where run 0 has step ",
                               curves[0][at].step);
      }
      if (!std::isfinite(point.loss)) {
        return InvalidArgument("the loss of run ", i, " is not finite at step ", point.step,
                               ": a workload that diverges has no band");
      }
    }
  }
  return absl::OkStatus();
}

// Mean and spread of each step.
std::vector<BandStep> ShapeOf(const Curves& curves, size_t runs) {
  const auto count = static_cast<double>(runs);
  std::vector<BandStep> steps(curves[0].size());
  std::vector<double> squares(steps.size());
  for (size_t at = 0; at < steps.size(); ++at) {
    BandStep& step = steps[at];
    step.step = curves[0][at].step;
    for (size_t run = 0; run < runs; ++run) step.mean += curves[run][at].loss / count;
    for (size_t run = 0; run < runs; ++run) {
      const double deviation = curves[run][at].loss - step.mean;
      squares[at] += deviation * deviation / (count - 1);
    }
    const size_t first = at + 1 < kWindow ? 0 : at + 1 - kWindow;
    double sum = 0;
    for (size_t i = first; i <= at; ++i) sum += squares[i];
    step.spread =
        std::max(std::sqrt(sum / static_cast<double>(at + 1 - first)),
                 std::max(std::abs(step.mean) * kRounding, std::numeric_limits<double>::min()));
  }
  return steps;
}

double Score(const BandStep& step, double loss) {
  if (!std::isfinite(loss)) return std::numeric_limits<double>::infinity();
  return std::abs(loss - step.mean) / step.spread;
}

double Score(const std::vector<BandStep>& steps, const std::vector<LossPoint>& curve) {
  double score = 0;
  for (size_t at = 0; at < steps.size(); ++at) {
    score = std::max(score, Score(steps[at], curve[at].loss));
  }
  return score;
}

// The rank, from 1, of the score that is c among `count`; more than `count`: none is large enough.
int64_t CriticalRank(int64_t count, double rate) {
  constexpr double kAlmost = 1e-9;  // 1 - rate is no binary fraction
  return static_cast<int64_t>(std::ceil(static_cast<double>(count + 1) * (1 - rate) - kAlmost));
}

std::string Digits(double value) { return absl::StrFormat("%.17g", value); }

absl::Status Malformed(const std::string& path, size_t line, const std::string& what) {
  return InvalidArgument(path, ":", line, ": ", what,
                         "; a band is made by ./bazelw run //tools/curve:band");
}

absl::Status ReadDescription(const std::string& text, LossBand& band) {
  const nlohmann::json json = ParseJson(text);
  const auto number = [&json](const char* key) {
    return json.contains(key) && json[key].is_number();
  };
  if (!json.is_object() || !json.contains("workload") || !json["workload"].is_string() ||
      !number("rate") || !number("runs") || !json.contains("scores") ||
      !json["scores"].is_array() || json["scores"].empty()) {
    return absl::InvalidArgumentError("no description of a band");
  }
  band.workload = json["workload"].get<std::string>();
  band.rate = json["rate"].get<double>();
  band.runs = json["runs"].get<int64_t>();
  for (const nlohmann::json& score : json["scores"]) {
    if (!score.is_number()) return absl::InvalidArgumentError("a score that is no number");
    band.scores.push_back(score.get<double>());
  }
  const int64_t critical_rank = CriticalRank(std::ssize(band.scores), band.rate);
  if (!std::ranges::is_sorted(band.scores) || critical_rank < 1 ||
      critical_rank > std::ssize(band.scores)) {
    return absl::InvalidArgumentError("scores that do not fit the rate");
  }
  return absl::OkStatus();
}

}  // namespace

int64_t ShapeRuns(int64_t runs) { return runs / 3; }

int64_t FewestRuns(double rate) {
  constexpr int64_t kFewest = 6;  // two that give a spread
  int64_t runs = kFewest;
  while (CriticalRank(runs - ShapeRuns(runs), rate) > runs - ShapeRuns(runs)) ++runs;
  return runs;
}

absl::StatusOr<LossBand> MakeBand(const std::string& workload, const Curves& curves, double rate) {
  if (!(rate > 0 && rate < 1)) return InvalidArgument("the rate ", rate, " is not between 0 and 1");
  if (std::ssize(curves) < FewestRuns(rate)) {
    return InvalidArgument("a rate of ", rate, " false alarms takes ", FewestRuns(rate),
                           " runs, and there are ", curves.size());
  }
  LS_RETURN_IF_ERROR(CheckCurves(curves));
  const int64_t shape_runs = ShapeRuns(std::ssize(curves));
  LossBand band;
  band.workload = workload;
  band.rate = rate;
  band.runs = std::ssize(curves);
  band.steps = ShapeOf(curves, static_cast<size_t>(shape_runs));
  for (auto curve = curves.begin() + shape_runs; curve != curves.end(); ++curve) {
    band.scores.push_back(Score(band.steps, *curve));
  }
  std::ranges::sort(band.scores);
  const double critical = band.scores[CriticalRank(std::ssize(band.scores), rate) - 1];
  for (BandStep& step : band.steps) {
    const double most = std::max(critical * step.spread, std::abs(step.mean) * kRounding);
    step.lowest = step.mean - most;
    step.highest = step.mean + most;
  }
  return band;
}

std::string BandPlacement::ToString(const LossBand& band) const {
  const std::string others =
      as_far == 0 ? absl::StrCat("none of ", band.scores.size(), " runs went as far")
                  : absl::StrCat(as_far, " of ", band.scores.size(), " runs went as far");
  if (!outside_from) {
    return absl::StrFormat("inside (at most %.3g spreads from the mean, at step %d; %s)", score,
                           farthest, others);
  }
  return absl::StrFormat("outside from step %d (%.3g spreads from the mean at step %d; %s)",
                         *outside_from, score, farthest, others);
}

absl::StatusOr<BandPlacement> PlaceInBand(const std::vector<LossPoint>& curve,
                                          const LossBand& band) {
  BandPlacement placement;
  auto step = band.steps.begin();
  for (const LossPoint& point : curve) {  // both ascend
    while (step != band.steps.end() && step->step < point.step) ++step;
    if (step == band.steps.end()) break;
    if (step->step != point.step) continue;
    const double score = Score(*step, point.loss);
    if (placement.compared++ == 0 || score > placement.score) {
      placement.score = score;
      placement.farthest = point.step;
    }
    if (point.loss >= step->lowest && point.loss <= step->highest) continue;
    if (placement.outside++ == 0) placement.outside_from = point.step;
  }
  if (placement.compared == 0) {
    return InvalidArgument("has none of the band's steps, ", band.steps.front().step, " to ",
                           band.steps.back().step, ", which count from 0");
  }
  placement.as_far = std::ranges::count_if(
      band.scores, [&placement](double score) { return score >= placement.score; });
  return placement;
}

absl::Status WriteBand(const std::string& path, const LossBand& band) {
  const nlohmann::ordered_json description = {{"workload", band.workload},
                                              {"rate", band.rate},
                                              {"runs", band.runs},
                                              {"scores", band.scores}};
  std::string text = absl::StrCat(kMark, description.dump(), "\n", kHeader, "\n");
  for (const BandStep& step : band.steps) {
    absl::StrAppend(&text, step.step, ",", Digits(step.lowest), ",", Digits(step.highest), ",",
                    Digits(step.mean), ",", Digits(step.spread), ",", band.runs, "\n");
  }
  return WriteOutput(path, text);
}

absl::StatusOr<LossBand> ReadBand(const std::string& path) {
  LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  if (lines.size() < 4 || lines[1] != kHeader || !lines.back().empty()) {
    return Malformed(path, 1, "this is no band of losses, or one that was cut short");
  }
  LossBand band;
  absl::string_view description = lines[0];
  if (!absl::ConsumePrefix(&description, kMark)) return Malformed(path, 1, "no description");
  if (const absl::Status status = ReadDescription(std::string(description), band); !status.ok()) {
    return Malformed(path, 1, std::string(status.message()));
  }
  for (size_t i = 2; i + 1 < lines.size(); ++i) {
    const std::vector<std::string> cells = absl::StrSplit(lines[i], ',');
    BandStep step;
    int64_t count = 0;
    if (cells.size() != 6 || !absl::SimpleAtoi(cells[0], &step.step) ||
        !absl::SimpleAtod(cells[1], &step.lowest) || !absl::SimpleAtod(cells[2], &step.highest) ||
        !absl::SimpleAtod(cells[3], &step.mean) || !absl::SimpleAtod(cells[4], &step.spread) ||
        !absl::SimpleAtoi(cells[5], &count)) {
      return Malformed(path, i + 1, absl::StrCat("'", lines[i], "' is no row of ", kHeader));
    }
    if (!(step.spread > 0) || !std::isfinite(step.spread) || !(step.lowest <= step.mean) ||
        !(step.mean <= step.highest) || count != band.runs ||
        (!band.steps.empty() && step.step <= band.steps.back().step)) {
      return Malformed(path, i + 1, absl::StrCat("'", lines[i], "' contradicts itself"));
    }
    band.steps.push_back(step);
  }
  return band;
}

}  // namespace lockstep
