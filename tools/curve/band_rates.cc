// How often the band of a workload calls a legitimate run a fault, and which faults it finds:
//
//   ./bazelw run //tools/curve:band_rates -- --workload gpt_markov
//
// Rate: of the workload, on legitimate reorderings that no band was made of. Power: of bands of the
// workloads that the faults concern. Both take some 600 short runs, a few minutes.

#include <algorithm>
#include <cstdio>
#include <map>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "strategies/single/single.h"
#include "tools/curve/loss_band.h"
#include "tools/curve/reordered_runs.h"
#include "tools/divergence/testing/faults.h"
#include "tools/experiment/paths.h"
#include "tools/experiment/source_tree.h"
#include "tools/report/report.h"
#include "tools/report/text.h"

ABSL_FLAG(std::string, workload, "gpt_markov", "a folder of experiments/");
ABSL_FLAG(int64_t, steps, 40, "how many steps each run has");
ABSL_FLAG(int64_t, reorderings, 200, "legitimate runs that are judged, beside those of the bands");
ABSL_FLAG(bool, rate, true, "measures the rate of false alarms");
ABSL_FLAG(bool, faults, true, "measures the power");
ABSL_FLAG(uint64_t, seed, 1, "of the choice of reorderings");
ABSL_FLAG(lockstep::RepeatedFlag, set, {},
          "KEY=VALUE for the workload's runs, as trainers take it; repeatable");

namespace lockstep {
namespace {

using Curves = std::vector<std::vector<LossPoint>>;

constexpr int kInterruptedExitCode = 130;  // as a shell tells of SIGINT

// The bands that are tried.
struct Setting {
  int64_t runs;
  double rate;
};
constexpr Setting kSettings[] = {{60, 0.05}, {148, 0.01}};
constexpr Setting kSettingOfFaults = {28, 0.05};
constexpr int64_t kStepsOfFaults = 20;

int64_t Outside(const LossBand& band, Curves::const_iterator begin, Curves::const_iterator end) {
  return std::count_if(begin, end, [&band](const std::vector<LossPoint>& curve) {
    return PlaceInBand(curve, band)->outside_from.has_value();
  });
}

// The share of legitimate runs outside, over many divisions of all runs into those of the band and
// the rest.
absl::StatusOr<double> MeanRate(const Setting& setting, Curves curves) {
  constexpr int kDivisions = 1000;
  std::mt19937 random(1);
  double sum = 0;
  for (int i = 0; i < kDivisions; ++i) {
    std::shuffle(curves.begin(), curves.end(), random);
    const auto rest = curves.begin() + setting.runs;
    LS_ASSIGN_OR_RETURN(const LossBand band, MakeBand("", {curves.begin(), rest}, setting.rate));
    sum += static_cast<double>(Outside(band, rest, curves.end())) /
           static_cast<double>(curves.end() - rest);
  }
  return sum / kDivisions;
}

// Options of runs of a workload of the source tree.
absl::StatusOr<ReorderedRunsOptions> OptionsOf(const std::string& workload,
                                               const std::vector<std::string>& assignments,
                                               const std::string& scratch) {
  LS_ASSIGN_OR_RETURN(const std::string tree, SourceTree());
  LS_ASSIGN_OR_RETURN(const std::string file, WorkloadFile(tree, workload));
  ReorderedRunsOptions options = {.seed = absl::GetFlag(FLAGS_seed)};
  options.workload.configs = {file};
  options.workload.assignments = assignments;
  options.workload.out = scratch;
  options.ended = [workload](int64_t, const std::string& line) {
    std::fprintf(stderr, "%s %s\n", workload.c_str(), line.c_str());
  };
  return options;
}

absl::Status FalseAlarms(const std::string& scratch) {
  using Align = Table::Align;
  const std::string workload = absl::GetFlag(FLAGS_workload);
  LS_ASSIGN_OR_RETURN(ReorderedRunsOptions options,
                      OptionsOf(workload, absl::GetFlag(FLAGS_set).values, scratch));
  int64_t largest = 0;
  for (const Setting& setting : kSettings) largest = std::max(largest, setting.runs);
  options.steps = absl::GetFlag(FLAGS_steps);
  options.runs = largest + absl::GetFlag(FLAGS_reorderings);
  LS_ASSIGN_OR_RETURN(const Curves curves, TrainAllReordered(options, SingleStrategy()));
  Table table = {.title = absl::StrCat("legitimate runs of ", workload, ", ", options.steps,
                                       " steps, outside of the band"),
                 .columns = {{"band", Align::kLeft},
                             {"limit, in spreads"},
                             {"width at the last step, relative"},
                             {"outside"},
                             {"over 1000 divisions of all runs"}}};
  const auto judged = curves.begin() + largest;
  for (const Setting& setting : kSettings) {
    LS_ASSIGN_OR_RETURN(
        const LossBand band,
        MakeBand(workload, {curves.begin(), curves.begin() + setting.runs}, setting.rate));
    const BandStep& last = band.steps.back();
    LS_ASSIGN_OR_RETURN(const double mean, MeanRate(setting, curves));
    table.Add(
        {absl::StrFormat("%d runs, rate %g %%", setting.runs, 100 * setting.rate),
         absl::StrFormat("%.3g", (last.highest - last.mean) / last.spread),
         absl::StrFormat("%.1e", (last.highest - last.lowest) / last.mean),
         absl::StrFormat("%d of %d", Outside(band, judged, curves.end()), curves.end() - judged),
         absl::StrFormat("%.2f %%", 100 * mean)});
  }
  std::fputs(TextOf(table).c_str(), stdout);
  std::fflush(stdout);
  return absl::OkStatus();
}

// Each fault against the band of its workload. Where the fault lies in resuming, the run is resumed
// half-way; what resumes rightly has the losses of a run that does not stop.
absl::Status Power(const std::string& scratch) {
  using Align = Table::Align;
  Table table = {
      .title = absl::StrFormat("faults, against bands of %d runs and %d steps, rate %g %%",
                               kSettingOfFaults.runs, kStepsOfFaults, 100 * kSettingOfFaults.rate),
      .columns = {{"fault", Align::kLeft},
                  {"workload", Align::kLeft},
                  {"losses", Align::kLeft},
                  {"spreads from the mean"}}};
  std::map<std::string, LossBand> bands;
  int64_t found = 0, faults = 0;
  for (const InjectedFault& fault : AllFaults()) {
    LS_ASSIGN_OR_RETURN(ReorderedRunsOptions options,
                        OptionsOf(fault.workload, fault.needs, scratch));
    options.steps = kStepsOfFaults;
    options.runs = kSettingOfFaults.runs;
    const std::string key = absl::StrCat(fault.workload, " ", absl::StrJoin(fault.needs, " "));
    if (!bands.contains(key)) {
      LS_ASSIGN_OR_RETURN(const Curves curves, TrainAllReordered(options, SingleStrategy()));
      LS_ASSIGN_OR_RETURN(bands[key], MakeBand(fault.workload, curves, kSettingOfFaults.rate));
    }
    if (fault.acts_on_resume) options.resumed_at = kStepsOfFaults / 2;
    const absl::StatusOr<std::vector<LossPoint>> losses =
        TrainReordered(options, fault.strategy, {.assignments = fault.assignments});
    if (!losses.ok()) return Annotate(losses.status(), fault.name);
    LS_ASSIGN_OR_RETURN(const BandPlacement placement, PlaceInBand(*losses, bands[key]));
    const std::string where = placement.outside_from
                                  ? absl::StrCat("outside from step ", *placement.outside_from)
                                  : "inside";
    std::fprintf(stderr, "%s: %s, %.2g spreads from the mean\n", fault.name.c_str(), where.c_str(),
                 placement.score);
    table.Add({fault.name, fault.workload, where, absl::StrFormat("%.2g", placement.score)});
    found += placement.outside_from ? 1 : 0;
    ++faults;
  }
  table.Add({absl::StrCat(found, " of ", faults, " are outside")});
  std::fputs(("\n" + TextOf(table)).c_str(), stdout);
  return absl::OkStatus();
}

absl::StatusOr<int> Run() {
  LS_RETURN_IF_ERROR(CheckRange("steps", absl::GetFlag(FLAGS_steps), 1, 1'000'000));
  LS_RETURN_IF_ERROR(CheckRange("reorderings", absl::GetFlag(FLAGS_reorderings), 1, 100'000));
  LS_ASSIGN_OR_RETURN(const TemporaryDirectory scratch, TemporaryDirectory::Create());
  absl::Status status;
  if (absl::GetFlag(FLAGS_rate)) status = FalseAlarms(scratch.path());
  if (status.ok() && absl::GetFlag(FLAGS_faults)) status = Power(scratch.path());
  if (absl::IsCancelled(status)) return kInterruptedExitCode;
  LS_RETURN_IF_ERROR(status);
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(
      argc, argv,
      {.usage = "Measures the rate of false alarms of a workload's band on legitimate reorderings, "
                "and its power on\nfaults that are put into runs.",
       .files = {__FILE__}},
      [](const auto&) { return lockstep::Run(); });
}
