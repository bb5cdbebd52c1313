#include "core/run/elastic.h"

#include <atomic>
#include <cstdio>
#include <ctime>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "core/base/clock.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/config/legs.h"
#include "core/report/restart_log.h"
#include "core/run/exit_codes.h"
#include "core/run/mesh_choice.h"
#include "core/run/trainer.h"

namespace lockstep {
namespace {

constexpr int kMostInVain = 3;

std::string UtcNow() {
  const std::time_t now = std::time(nullptr);
  std::tm parts;
  gmtime_r(&now, &parts);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", &parts);
  return text;
}

std::string FirstLine(absl::string_view text) {
  return std::string(text.substr(0, text.find('\n')));
}

std::string FormationOf(const TrainingRun& run) {
  if (run.next != nullptr) return absl::StrCat(run.strategy_name, " legs");
  return absl::StrCat(run.strategy_name, " ", run.settings.mesh.ToString());
}

// Steps behind the newest checkpoint; nullopt: there is none.
std::optional<int64_t> NewestStep(const TrainingRun& run) {
  const auto found = ListCheckpoints(run.checkpoints());
  if (!found.ok() || found->empty()) return std::nullopt;
  return found->back().step;
}

// When the first rank ended a step.
class FirstStep {
 public:
  void Take(const RunPlace& place) {
    if (place.where != RunPlace::Where::kStepEnd) return;
    int64_t none = 0;
    ended_.compare_exchange_strong(none, NowNanos());
  }
  int64_t ended_nanos() const { return ended_; }  // 0: no rank has

 private:
  std::atomic<int64_t> ended_ = 0;
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
    std::optional<int64_t> best = NewestStep(*current_);
    int in_vain = 0;
    while (true) {
      const auto first_step = std::make_shared<FirstStep>();
      current_->visit = [first_step, visit = first_.visit](const RunPlace& place) {
        first_step->Take(place);
        if (visit) visit(place);
      };
      absl::StatusOr<std::vector<RankReport>> reports = TrainRanks(*current_);
      LS_RETURN_IF_ERROR(Record(first_step->ended_nanos()));
      if (reports.ok()) return EndedRun{.run = current_, .reports = *std::move(reports)};
      if (ExitCodeOfFailure(reports.status()) != kRankLostExitCode) return reports.status();
      const std::optional<int64_t> newest = NewestStep(*current_);
      in_vain = newest > best ? 0 : in_vain + 1;
      best = newest;
      if (in_vain > kMostInVain) {
        return Annotate(reports.status(),
                        absl::StrCat("ranks were lost ", in_vain,
                                     " times without a new checkpoint (checkpoint.every); the "
                                     "last time"));
      }
      LS_RETURN_IF_ERROR(GoOn(reports.status()));
    }
  }

 private:
  absl::Status ReadPreferred() {
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
    return PrepareNext(source_.command_line, formation, source_.make_model, source_.strategies,
                       first_);
  }

  // Makes the run that the others go on with after the failure `cause`, which is returned where
  // none is left.
  absl::Status GoOn(const absl::Status& cause) {
    lost_nanos_ = NowNanos();
    const std::optional<int64_t> steps = NewestStep(*current_);
    std::shared_ptr<TrainingRun> next;
    if (first_.next != nullptr) {
      next = std::make_shared<TrainingRun>(first_);
    } else {
      ranks_ -= 1;
      LS_ASSIGN_OR_RETURN(next, Choose(cause));
    }
    next->resume = steps.has_value();
    next->directory->Tidy();
    current_ = std::move(next);
    LS_RETURN_IF_ERROR(BeginRestarts(first_.out, FormationOf(first_)));
    restart_ = Restart{.time = UtcNow(),
                       .cause = FirstLine(cause.message()),
                       .steps = steps.value_or(0),
                       .formation = FormationOf(*current_)};
    std::fprintf(stderr, "%s: going on with %s from step %lld\n", restart_->cause.c_str(),
                 restart_->formation.c_str(), static_cast<long long>(restart_->steps));
    return absl::OkStatus();
  }

  absl::StatusOr<std::shared_ptr<TrainingRun>> Choose(const absl::Status& cause) const {
    const auto prepared = [this](const Formation& formation) -> std::shared_ptr<TrainingRun> {
      absl::StatusOr<TrainingRun> run = Prepare(formation);
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
    if (chosen == nullptr) return cause;
    return chosen;
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

  // Writes the last loss down, with what became of it.
  absl::Status Record(int64_t first_step_nanos) {
    if (!restart_) return absl::OkStatus();
    if (first_step_nanos > 0) {
      restart_->seconds = static_cast<double>(first_step_nanos - lost_nanos_) * 1e-9;
    }
    LS_RETURN_IF_ERROR(AppendRestart(first_.out, *restart_));
    restart_.reset();
    return absl::OkStatus();
  }

  const RunSource& source_;
  const TrainingRun first_;               // as it was asked for
  std::shared_ptr<TrainingRun> current_;  // as it is
  int ranks_;                             // that are left
  std::vector<Formation> preferred_;
  std::optional<Restart> restart_;  // that has not been written down
  int64_t lost_nanos_ = 0;          // when the last rank was lost
};

}  // namespace

absl::StatusOr<EndedRun> TrainElastic(TrainingRun run, const RunSource& source) {
  return ElasticRun(std::move(run), source).Run();
}

}  // namespace lockstep
