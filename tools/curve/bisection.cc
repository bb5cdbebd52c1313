#include "tools/curve/bisection.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/probe/probed_run.h"
#include "core/report/metrics.h"
#include "tools/curve/commit_runs.h"
#include "tools/curve/curve_check.h"
#include "tools/divergence/divergence.h"
#include "tools/divergence/divergence_report.h"
#include "tools/divergence/judgement.h"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

using Losses = std::vector<LossPoint>;

// The first step at which a curve is not the good one's, to the bit.
std::optional<CurveDeviation> FirstMove(const Losses& curve, const Losses& good) {
  // NaN in place of NaN is no move, although CompareCurves calls it outside of any tolerance.
  for (size_t i = 0; i < std::min(curve.size(), good.size()); ++i) {
    if (curve[i].ToRow() != good[i].ToRow()) {
      return CompareCurves({curve[i]}, {good[i]}, 0).first_outside;
    }
  }
  return std::nullopt;
}

class Bisection {
 public:
  Bisection(const BisectionOptions& options, const BisectionHooks& hooks, const GitHistory& history)
      : options_(options), hooks_(hooks), history_(history) {}

  absl::StatusOr<Report> Run() {
    LS_RETURN_IF_ERROR(ResolveEnds());
    LS_ASSIGN_OR_RETURN(const TemporaryDirectory scratch, TemporaryDirectory::Create());
    LS_ASSIGN_OR_RETURN(const GitWorkTree tree,
                        GitWorkTree::Add(history_, scratch.path() + "/tree", good_));
    CommitRuns runs(tree,
                    {.workload = options_.workload,
                     .strategy = options_.strategy,
                     .steps = options_.steps,
                     .scratch = scratch.path(),
                     .disk_cache = options_.disk_cache,
                     .arguments = options_.arguments},
                    hooks_.run);
    LS_RETURN_IF_ERROR(RunEnds(runs));
    LS_ASSIGN_OR_RETURN(const FoundCommit found,
                        FindFirstMoved(history_, good_, bad_, options_.walk,
                                       [&](const CommitTrial& trial) { return Try(runs, trial); }));
    return ReportOf(runs, found);
  }

 private:
  // The commits and the workload that the options name.
  absl::Status ResolveEnds() {
    LS_ASSIGN_OR_RETURN(good_, history_.CommitOf(options_.good));
    LS_ASSIGN_OR_RETURN(bad_, history_.CommitOf(options_.bad.empty() ? "HEAD" : options_.bad));
    if (options_.bad.empty()) {
      LS_ASSIGN_OR_RETURN(const std::string changed, history_.ChangedFile());
      if (!changed.empty()) {
        return absl::FailedPreconditionError(absl::StrCat(
            history_.folder(), " has changes that are in no commit (", changed,
            "), which the search would miss: commit or stash them, or name --bad HEAD to search "
            "without them"));
      }
    }
    LS_RETURN_IF_ERROR(CheckWorkload(good_, options_.good));
    LS_RETURN_IF_ERROR(CheckWorkload(bad_, options_.bad.empty() ? "HEAD" : options_.bad));
    if (good_ == bad_) {
      return InvalidArgument("--good ", options_.good, " and the bad commit are the same, ",
                             good_.substr(0, 12), ": there is nothing to search");
    }
    LS_ASSIGN_OR_RETURN(const bool is_ancestor, history_.IsAncestor(good_, bad_));
    if (is_ancestor) return absl::OkStatus();
    return InvalidArgument("--good ", options_.good, " is no ancestor of ",
                           options_.bad.empty() ? "HEAD" : options_.bad,
                           "; a commit where both histories meet may serve: git merge-base ",
                           options_.good, " ", options_.bad.empty() ? "HEAD" : options_.bad);
  }

  absl::Status CheckWorkload(const std::string& commit, const std::string& revision) const {
    LS_ASSIGN_OR_RETURN(const std::vector<std::string> workloads,
                        history_.ListFolder(commit, "experiments"));
    if (workloads.empty()) {
      return absl::FailedPreconditionError(
          absl::StrCat(history_.folder(), " is no repository of Lockstep, or not yet at ", revision,
                       ": it has no folder experiments there"));
    }
    LS_ASSIGN_OR_RETURN(
        const std::vector<std::string> files,
        history_.ListFolder(commit, absl::StrCat("experiments/", options_.workload)));
    if (std::ranges::count(files, "workload.toml") > 0) return absl::OkStatus();
    return InvalidArgument("at ", revision, " there is no workload '", options_.workload,
                           "'; experiments/ has ", absl::StrJoin(workloads, ", "));
  }

  // Builds and runs a commit; Aborted where that fails.
  absl::StatusOr<Losses> LossesOf(CommitRuns& runs, const std::string& commit) const {
    LS_RETURN_IF_ERROR(Annotate(runs.Build(commit), "does not build"));
    absl::StatusOr<Losses> losses = runs.TrainLosses();
    if (!losses.ok()) return Annotate(losses.status(), "does not run");
    return losses;
  }

  absl::StatusOr<Losses> LossesOfEnd(CommitRuns& runs, const std::string& commit,
                                     const std::string& name) const {
    LS_ASSIGN_OR_RETURN(const std::string described, history_.Describe(commit));
    hooks_.say(absl::StrCat("building and running the ", name, " commit: ", described));
    const int64_t begin = NowNanos();
    absl::StatusOr<Losses> losses = LossesOf(runs, commit);
    if (absl::IsAborted(losses.status())) {
      return absl::FailedPreconditionError(
          absl::StrCat("the ", name, " commit ", described, " ", losses.status().message()));
    }
    if (losses.ok()) hooks_.say("  done in " + FormatDuration(SecondsSince(begin)));
    return losses;
  }

  absl::Status RunEnds(CommitRuns& runs) {
    LS_ASSIGN_OR_RETURN(good_losses_, LossesOfEnd(runs, good_, "good"));
    LS_ASSIGN_OR_RETURN(moved_losses_, LossesOfEnd(runs, bad_, "bad"));
    if (FirstMove(moved_losses_, good_losses_)) return absl::OkStatus();
    return absl::NotFoundError(absl::StrCat(
        "good and bad have the same losses, to the bit, in all ", options_.steps, " steps of ",
        options_.workload, " under ", options_.strategy,
        ": nothing moved there; ask for more --steps, or another workload or strategy"));
  }

  absl::StatusOr<CommitVerdict> Try(CommitRuns& runs, const CommitTrial& trial) {
    LS_ASSIGN_OR_RETURN(const std::string described, history_.Describe(trial.commit));
    hooks_.say(absl::StrCat(trial.left, " commits left, about ", trial.trials,
                            trial.trials == 1 ? " trial: " : " trials: ", described));
    const int64_t begin = NowNanos();
    const absl::StatusOr<Losses> losses = LossesOf(runs, trial.commit);
    const std::string time = FormatDuration(SecondsSince(begin));
    if (absl::IsAborted(losses.status())) {
      hooks_.say(absl::StrCat("  skipped after ", time, ": ", losses.status().message()));
      ++skipped_;
      return CommitVerdict::kSkipped;
    }
    LS_RETURN_IF_ERROR(losses.status());
    const std::optional<CurveDeviation> move = FirstMove(*losses, good_losses_);
    if (!move) {
      hooks_.say(absl::StrCat("  the good curve (", time, ")"));
      return CommitVerdict::kAsGood;
    }
    hooks_.say(absl::StrCat("  moved at ", move->ToString(), " (", time, ")"));
    moved_losses_ = *losses;
    return CommitVerdict::kMoved;
  }

  absl::StatusOr<Report> ReportOf(CommitRuns& runs, const FoundCommit& found) {
    const CurveDeviation move = *FirstMove(moved_losses_, good_losses_);
    using Align = Table::Align;
    Table table = {.columns = {{"", Align::kLeft}, {"", Align::kLeft}}};
    LS_ASSIGN_OR_RETURN(const std::string described, history_.Describe(found.commit));
    LS_ASSIGN_OR_RETURN(const std::string good, history_.Describe(good_));
    table.Add({"first commit whose curve moved", described});
    table.Add({"curve", absl::StrCat(options_.workload, " under ", options_.strategy)});
    table.Add({"moved in losses.csv at", move.ToString()});
    table.Add({"good commit", good});
    table.Add({"tried", absl::StrCat(found.tried, " between good and bad; ", skipped_,
                                     " could not be built or run")});
    Section section = {.title = "The commit that moved the curve", .items = {std::move(table)}};
    for (const std::string& commit : found.untried) {
      LS_ASSIGN_OR_RETURN(const std::string untried, history_.Describe(commit));
      section.items.push_back(Paragraph{
          absl::StrCat("It may have been ", untried, ", too, which could not be built or run."),
          Paragraph::Tone::kWarning});
    }
    LineChart chart = {.x = {.title = "step", .whole = true},
                       .y = {.title = "relative difference"}};
    chart.lines.push_back(
        {.name = "moved curve", .points = PointsOf(Differences(moved_losses_, good_losses_))});
    section.items.push_back(
        Chart{"moved", "The moved curve against the good one", std::move(chart)});
    Report report = {.title = "Which commit moved a curve", .sections = {std::move(section)}};
    absl::StatusOr<Report> tensors = CompareWithBefore(runs, found, move.step);
    if (absl::IsCancelled(tensors.status())) return tensors.status();
    if (!tensors.ok()) {
      report.sections.push_back(
          {.title = "The first tensor that differs",
           .items = {Paragraph{absl::StrCat("is not known: ", tensors.status().message()),
                               Paragraph::Tone::kWarning}}});
      return report;
    }
    for (Section& each : tensors->sections) report.sections.push_back(std::move(each));
    return report;
  }

  // Trains the commit that was built last with probes.
  absl::StatusOr<ProbedRun> Probe(CommitRuns& runs, const std::string& described,
                                  const std::vector<std::string>& assignments) const {
    const absl::StatusOr<std::string> out = runs.Train(assignments);
    if (!out.ok()) return Annotate(out.status(), absl::StrCat(described, " has no probes"));
    return ReadProbedRun(*out);
  }

  // Two rounds: hashes of all steps up to the one that moved say where the runs part, and values of
  // that step alone say what the difference looks like.
  // The commit before is the parent, or a good one where the parent cannot be built or run.
  absl::StatusOr<Report> CompareWithBefore(CommitRuns& runs, const FoundCommit& found,
                                           int64_t moved_step) const {
    const std::string& commit = found.commit;
    std::string parent = found.good;
    if (found.untried.empty()) {
      LS_ASSIGN_OR_RETURN(parent, history_.ParentOf(commit));
    }
    LS_ASSIGN_OR_RETURN(const std::string b_name, history_.Describe(commit));
    LS_ASSIGN_OR_RETURN(const std::string a_name, history_.Describe(parent));
    const std::vector<std::string> hashes = {absl::StrCat("probe.steps=", moved_step + 1)};
    hooks_.say(absl::StrCat("probing ", b_name, " and, before it, ", a_name));
    LS_RETURN_IF_ERROR(runs.Build(parent));
    LS_ASSIGN_OR_RETURN(ProbedRun a, Probe(runs, a_name, hashes));
    LS_RETURN_IF_ERROR(runs.Build(commit));
    LS_ASSIGN_OR_RETURN(ProbedRun b, Probe(runs, b_name, hashes));
    LS_ASSIGN_OR_RETURN(Divergence divergence, FindDivergence(a, b));
    if (divergence.differences.empty()) {
      return absl::NotFoundError(
          absl::StrCat("all ", divergence.compared, " places that probes record agree"));
    }
    const std::vector<std::string> values = {
        absl::StrCat("probe.first_step=", divergence.differences.front().key().step),
        "probe.steps=1", "probe.values=true"};
    LS_ASSIGN_OR_RETURN(b, Probe(runs, b_name, values));
    LS_RETURN_IF_ERROR(runs.Build(parent));
    LS_ASSIGN_OR_RETURN(a, Probe(runs, a_name, values));
    LS_ASSIGN_OR_RETURN(divergence, FindDivergence(a, b));
    if (divergence.differences.empty()) {
      return absl::InternalError(
          "two runs of one commit differ; hashes parted, and values did not");
    }
    LS_ASSIGN_OR_RETURN(const Judgement judgement, Judge(a, b, divergence.differences.front()));
    // The folders are gone when somebody reads this.
    a.folder = absl::StrCat(a_name, "/", kProbeFolder);
    b.folder = absl::StrCat(b_name, "/", kProbeFolder);
    return DivergenceReport(a, b, divergence, judgement);
  }

  const BisectionOptions& options_;
  const BisectionHooks& hooks_;
  const GitHistory& history_;
  std::string good_, bad_;
  Losses good_losses_;
  Losses moved_losses_;  // of the earliest commit that is known to have moved
  int64_t skipped_ = 0;
};

}  // namespace

absl::StatusOr<Report> Bisect(const BisectionOptions& options, const BisectionHooks& hooks) {
  LS_ASSIGN_OR_RETURN(const GitHistory history, GitHistory::Open(options.repository, hooks.run));
  return Bisection(options, hooks, history).Run();
}

}  // namespace lockstep
