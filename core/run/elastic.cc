#include "core/run/elastic.h"

#include <atomic>
#include <cstdio>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/checkpoint/in_memory.h"
#include "core/config/legs.h"
#include "core/report/restart_log.h"
#include "core/run/mesh_choice.h"
#include "core/run/restart_limit.h"
#include "core/run/stop/exit_codes.h"
#include "core/run/trainer.h"

namespace lockstep {
namespace {

constexpr int64_t kMostInVain = 3;

std::string FirstLine(absl::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

std::string FormationOf(const TrainingRun& run) {
  if (run.next != nullptr) return absl::StrCat(run.strategy_name, " legs");
  return absl::StrCat(run.strategy_name, " ", run.settings.mesh.ToString());
}

// Steps behind the newest checkpoint, on the disk or in memory; nullopt: there is none.
std::optional<int64_t> NewestStep(const TrainingRun& run) {
  const auto found = ListRunCheckpoints(run.out);
  if (!found.ok() || found->empty()) return std::nullopt;
  return found->back().step;
}

// A loss of a rank, which is written down when the first of the others has ended a step.
class PendingRestart {
 public:
  // `lost_nanos`: when the rank was lost (NowNanos).
  PendingRestart(std::string out, Restart restart, int64_t lost_nanos)
      : out_(std::move(out)), restart_(std::move(restart)), lost_nanos_(lost_nanos) {}

  // On the threads of ranks.
  void Visit(const RunPlace& place) {
    if (place.where != RunPlace::Where::kStepEnd || is_written_.exchange(true)) return;
    restart_.seconds = SecondsSince(lost_nanos_);
    // Ranks themselves choose what they go on from: they pass over what is damaged.
    const absl::StatusOr<ResumedFrom> from = ReadResumed(out_);
    if (from.ok() && !restart_.state.empty()) {
      restart_.steps = from->steps;
      restart_.state = from->state;
    }
    written_ = AppendRestart(out_, restart_);
  }
  // When the ranks have ended: writes it down if none has come to the end of a step.
  absl::Status Finish() {
    return is_written_.exchange(true) ? written_ : AppendRestart(out_, restart_);
  }

 private:
  const std::string out_;
  Restart restart_;
  const int64_t lost_nanos_;
  std::atomic<bool> is_written_ = false;
  absl::Status written_;  // of whoever has set is_written_; read when the ranks have ended
};

class ElasticRun {
 public:
  ElasticRun(TrainingRun run, const RunSource& source)
      : source_(source),
        first_(std::move(run)),
        current_(std::make_shared<TrainingRun>(first_)),
        ranks_(WorldSize(first_)) {}

  absl::StatusOr<EndedRun> Run() {
    LS_RETURN_IF_ERROR(ReadPreferred());
    RestartLimit limit(kMostInVain, NewestStep(*current_));
    while (true) {
      current_->visit = [restart = restart_, visit = first_.visit](const RunPlace& place) {
        if (restart != nullptr) restart->Visit(place);
        if (visit) visit(place);
      };
      absl::StatusOr<std::vector<RankReport>> reports = TrainRanks(*current_);
      if (restart_ != nullptr) LS_RETURN_IF_ERROR(restart_->Finish());
      if (reports.ok()) return EndedRun{.run = current_, .reports = *std::move(reports)};
      if (ExitCodeOfFailure(reports.status()) != kRankLostExitCode) return reports.status();
      if (limit.IsPassed(NewestStep(*current_))) {
        return Annotate(reports.status(),
                        absl::StrCat("ranks were lost ", limit.in_vain(),
                                     " times without a new checkpoint (checkpoint.every); the "
                                     "last time"));
      }
      if (!first_.stop->BeginAnew()) return Annotate(reports.status(), "the run was told to stop");
      LS_RETURN_IF_ERROR(GoOn(reports.status()));
    }
  }

 private:
  absl::Status ReadPreferred() {
    if (first_.next != nullptr && !source_.command_line.elastic_prefer.empty()) {
      return InvalidArgument("--elastic_prefer: a run with legs keeps its meshes; leave it out");
    }
    for (const auto text :
         absl::StrSplit(source_.command_line.elastic_prefer, ';', absl::SkipWhitespace())) {
      LS_ASSIGN_OR_RETURN(const Formation formation,
                          Formation::Parse(std::string(absl::StripAsciiWhitespace(text))));
      LS_RETURN_IF_ERROR(Annotate(Prepare(formation).status(),
                                  absl::StrCat("--elastic_prefer, ", formation.ToString())));
      preferred_.push_back(formation);
    }
    return absl::OkStatus();
  }

  // The run of another formation, with the cut that the first one had.
  absl::StatusOr<TrainingRun> Prepare(const Formation& formation) const {
    CommandLine line = source_.command_line;
    line.resume = line.resume || NewestStep(first_).has_value();
    return PrepareNext(line, formation, source_.make_model, source_.strategies, first_);
  }

  // Makes the run that the others go on with after the failure `cause`, which is returned where
  // none is left.
  absl::Status GoOn(const absl::Status& cause) {
    const int64_t lost_nanos = NowNanos();
    Restart restart = RestartNow(cause.message());
    LS_ASSIGN_OR_RETURN(const std::vector<FoundCheckpoint> found, ListRunCheckpoints(first_.out));
    std::shared_ptr<TrainingRun> next;
    if (first_.next != nullptr) {
      next = std::make_shared<TrainingRun>(first_);
    } else {
      ranks_ -= 1;
      LS_ASSIGN_OR_RETURN(next, Choose(cause));
    }
    next->resume = !found.empty();
    next->directory->Tidy();
    current_ = std::move(next);
    LS_RETURN_IF_ERROR(BeginRestarts(first_.out, FormationOf(first_)));
    restart.formation = FormationOf(*current_);
    if (!found.empty()) {
      restart.steps = found.back().step;
      restart.state = IsInMemory(found.back().path) ? "memory" : "disk";
    }
    std::fprintf(stderr, "%s\n", restart.Describe().c_str());
    restart_ = std::make_shared<PendingRestart>(first_.out, std::move(restart), lost_nanos);
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<TrainingRun>> Choose(const absl::Status& cause) const {
    absl::Status refused;  // the last formation that may not be trained
    const auto prepared = [&](const Formation& formation) -> std::shared_ptr<TrainingRun> {
      absl::StatusOr<TrainingRun> run = Prepare(formation);
      if (!run.ok()) refused = run.status();
      if (!run.ok() || WorldSize(*run) > ranks_) return nullptr;
      return std::make_shared<TrainingRun>(*std::move(run));
    };
    for (const Formation& formation : preferred_) {
      if (auto run = prepared(formation)) return run;
    }
    std::shared_ptr<TrainingRun> chosen;
    LargestMesh(first_.settings.mesh, ranks_, [&](const MeshShape& mesh) {
      chosen = prepared(FormationWith(mesh));
      return chosen != nullptr;
    });
    if (chosen != nullptr) return chosen;
    std::string why = absl::StrCat("with the ", ranks_, ranks_ == 1 ? " rank" : " ranks",
                                   " left no mesh goes on");
    if (!refused.ok()) absl::StrAppend(&why, " (", FirstLine(refused.message()), ")");
    return Annotate(cause, why);
  }

  // The strategy of the run on another mesh.
  Formation FormationWith(const MeshShape& mesh) const {
    Formation formation = {.strategy = source_.strategy.name};
    const auto add = [&formation](const char* axis, int size) {
      formation.assignments.push_back(absl::StrCat("mesh.", axis, "=", size));
    };
    const MeshShape& whole = first_.settings.mesh;
    for (const MeshAxis axis : kMeshAxes) {
      if (mesh[axis] != whole[axis]) add(Name(axis), mesh[axis]);
    }
    if (mesh.ep != whole.ep) add("ep", mesh.ep);
    return formation;
  }

  const RunSource& source_;
  const TrainingRun first_;               // as it was asked for
  std::shared_ptr<TrainingRun> current_;  // as it is
  int ranks_;                             // that are left
  std::vector<Formation> preferred_;
  // The last loss; null: there was none. Shared with visitors.
  std::shared_ptr<PendingRestart> restart_;
};

}  // namespace

absl::StatusOr<EndedRun> TrainElastic(TrainingRun run, const RunSource& source) {
  return ElasticRun(std::move(run), source).Run();
}

}  // namespace lockstep
