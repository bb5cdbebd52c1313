// Starts a run with ranks as processes, and keeps it going (docs/recovery.md):
//
//   launch --strategy ddp --ranks 4 -- --config workload.toml --out DIR

#include <cstdlib>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/flags/flag.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/flags.h"
#include "core/base/status.h"
#include "core/base/user_path.h"
#include "core/config/best_settings.h"
#include "core/config/legs.h"
#include "core/config/trainer_flags.h"
#include "core/run/leg/training_run.h"
#include "core/run/mesh_choice.h"
#include "core/run/stop/exit_codes.h"
#include "models/models.h"
#include "strategies/presets.h"
#include "tools/experiment/paths.h"
#include "tools/launch/agent.h"
#include "tools/launch/kept_configs.h"

ABSL_FLAG(std::string, strategy, "", "the preset that trains: ddp, fsdp, gpipe, ...");
ABSL_FLAG(int, ranks, 0, "processes of the run; default: as many as its mesh has ranks");
ABSL_FLAG(
    int, min_ranks, 0,
    "go on with as few as these where the discovery script finds fewer slots; default: ranks");
ABSL_FLAG(int, max_restarts, 3,
          "restarts one after another without a new checkpoint in between, before giving up; 0: "
          "ranks are never started again");
ABSL_FLAG(double, longest_start, 600,
          "seconds that ranks may take to come together and write to the run directory, before the "
          "launcher counts as lost");
ABSL_FLAG(std::string, prefer, "",
          "what to go on with where slots are missing, the first that fits: \"ddp dp=2; fsdp "
          "dp=2\"; default: the largest mesh that divides the cut");
ABSL_FLAG(std::string, host_discovery_script, "",
          "program that prints \"host:slots\" a line for each host at hand, called before each "
          "start, and after each checkpoint of a run that lacks ranks; default: all ranks always "
          "have a place");
ABSL_FLAG(double, longest_discovery, 60,
          "seconds that the discovery script may take; one that takes longer is killed, and counts "
          "as failed");
ABSL_FLAG(std::string, launcher, "",
          "command that starts {ranks} processes, for Slurm \"srun --mpi=pmix -n {ranks} "
          "--kill-on-bad-exit=1\"; {hosts} is host:slots,...; default \"mpirun -n {ranks}\", with "
          "a discovery script \"mpirun -n {ranks} --host {hosts}\"");

namespace lockstep {
namespace {

constexpr int kMostRanks = 65536;
constexpr char kUsage[] =
    "Trains with ranks as processes under mpirun or srun, and starts them again, from the newest "
    "checkpoint, when one dies. The same command goes on with a run whose launcher was killed.\n\n"
    "  launch --strategy ddp --ranks 4 -- --config FILE --out DIR ...";

// Finds formations of a run that its configuration allows.
class Formations {
 public:
  static absl::StatusOr<Formations> Make(const std::vector<std::string>& arguments) {
    Formations formations(arguments);
    std::vector<std::string> words = arguments;
    words.insert(words.begin(), "launch");
    std::vector<char*> argv;
    for (std::string& word : words) argv.push_back(word.data());
    LS_ASSIGN_OR_RETURN(formations.command_line_,
                        ParseCommandLine(static_cast<int>(argv.size()), argv.data()));
    const CommandLine& line = formations.command_line_;
    if (line.resume || line.help || line.print_config || line.dry_run) {
      return absl::InvalidArgumentError(
          "the launcher adds --resume by itself; --help, --print_config and --dry_run are for the "
          "strategy's own program");
    }
    LS_ASSIGN_OR_RETURN(formations.configs_, KeptConfigs::Read(line.configs));
    LS_ASSIGN_OR_RETURN(const StrategyDefinition strategy, FindStrategy(OwnStrategy().strategy));
    LS_ASSIGN_OR_RETURN(const TrainingRun run,
                        CheckWholeRun(line, strategy, MakeModel, /*here=*/{}, LegStrategies()));
    formations.mesh_ = run.settings.mesh;
    formations.out_ = AbsolutePath(run.out);
    formations.steps_ = run.settings.steps;
    formations.best_ = BestSettingsOf(run.config);
    if (!run.settings.legs.empty()) {
      LS_RETURN_IF_ERROR(formations.TakeLegsOf(run));
      return formations;
    }
    LS_RETURN_IF_ERROR(formations.ChooseFullMesh());
    LS_RETURN_IF_ERROR(formations.ReadPreferred());
    return formations;
  }

  const std::string& out() const { return out_; }
  int64_t steps() const { return steps_; }
  const BestSettings& best() const { return best_; }
  int ranks() const { return legs_ranks_ > 0 ? legs_ranks_ : mesh_.ranks(); }

  // What to start where so many ranks have a place.
  absl::StatusOr<Placement> Place(int ranks) {
    LS_ASSIGN_OR_RETURN(command_line_.configs, configs_.PathsNow(out_));
    if (legs_ranks_ > 0) {
      if (ranks < legs_ranks_) return Placement();
      return PlacementOf(OwnStrategy(), legs_ranks_, "legs");
    }
    if (ranks >= mesh_.ranks()) return PlacementOf(With(mesh_), mesh_.ranks(), mesh_.ToString());
    for (const auto& [formation, its_mesh] : preferred_) {
      if (its_mesh.ranks() <= ranks) {
        return PlacementOf(formation, its_mesh.ranks(), its_mesh.ToString());
      }
    }
    const std::optional<MeshShape> mesh = LargestMesh(
        mesh_, ranks, [this](const MeshShape& smaller) { return Check(With(smaller)).ok(); });
    if (!mesh) return Placement();
    return PlacementOf(With(*mesh), mesh->ranks(), mesh->ToString());
  }

 private:
  explicit Formations(std::vector<std::string> arguments) : arguments_(std::move(arguments)) {}

  static Formation OwnStrategy() { return {.strategy = absl::GetFlag(FLAGS_strategy)}; }

  // The strategy on another mesh: the axes that it changes.
  Formation With(const MeshShape& mesh) const {
    Formation formation = OwnStrategy();
    for (const MeshAxis axis : kMeshAxes) {
      if (mesh[axis] == configured_[axis]) continue;
      formation.assignments.push_back(absl::StrCat("mesh.", Name(axis), "=", mesh[axis]));
    }
    if (mesh.ep != configured_.ep)
      formation.assignments.push_back(absl::StrCat("mesh.ep=", mesh.ep));
    return formation;
  }

  static absl::StatusOr<StrategyDefinition> FindStrategy(const std::string& name) {
    std::vector<std::string> names;
    for (const StrategyDefinition& strategy : AllStrategies()) {
      if (strategy.name == name) return strategy;
      names.push_back(strategy.name);
    }
    return InvalidArgument("--strategy '", name, "' is none; use one of ",
                           absl::StrJoin(names, ", "));
  }

  absl::StatusOr<TrainingRun> Check(const Formation& formation) const {
    LS_ASSIGN_OR_RETURN(const StrategyDefinition strategy, FindStrategy(formation.strategy));
    CommandLine line = command_line_;
    for (const auto* more : {&cut_, &formation.assignments}) {
      line.assignments.insert(line.assignments.end(), more->begin(), more->end());
    }
    return CheckRun(line, strategy, MakeModel);
  }

  // The mesh of --ranks, and its cut, which smaller ones keep.
  absl::Status ChooseFullMesh() {
    configured_ = mesh_;
    const int ranks = absl::GetFlag(FLAGS_ranks) == 0 ? mesh_.ranks() : absl::GetFlag(FLAGS_ranks);
    absl::Status first;
    for (const MeshShape& mesh : SmallerMeshes(configured_, ranks)) {
      if (mesh.ranks() < ranks) break;
      const absl::StatusOr<TrainingRun> run = Check(With(mesh));
      if (!run.ok()) {
        first.Update(run.status());
        continue;
      }
      mesh_ = mesh;
      const CutSettings& cut = run->settings.cut;
      const auto keep = [this](const char* key, bool is_of_mesh, int64_t number) {
        if (is_of_mesh && number > 1) cut_.push_back(absl::StrCat("cut.", key, "=", number));
      };
      keep("shards", cut.shards_are_of_mesh, cut.shards);
      keep("tokens", cut.tokens_are_of_mesh, cut.tokens);
      keep("features", cut.features_are_of_mesh, cut.features);
      return absl::OkStatus();
    }
    return Annotate(first, absl::StrCat("--ranks ", ranks, ": no mesh fits"));
  }

  // A run with legs says itself how its mesh changes: it needs the ranks of the largest mesh that
  // it reaches, and waits where these have no place.
  absl::Status TakeLegsOf(const TrainingRun& run) {
    const int wanted = absl::GetFlag(FLAGS_ranks), least = absl::GetFlag(FLAGS_min_ranks);
    legs_ranks_ = WorldSize(run);
    const bool has_choice = (wanted != 0 && wanted != legs_ranks_) ||
                            (least != 0 && least != legs_ranks_) ||
                            !absl::GetFlag(FLAGS_prefer).empty();
    if (!has_choice) return absl::OkStatus();
    return InvalidArgument("a run with legs says itself how its mesh changes, and needs ",
                           legs_ranks_,
                           " ranks: leave --prefer, --ranks and --min_ranks out, or train.legs");
  }

  absl::Status ReadPreferred() {
    for (const auto text : absl::StrSplit(absl::GetFlag(FLAGS_prefer), ';', absl::SkipEmpty())) {
      LS_ASSIGN_OR_RETURN(const Formation formation,
                          Formation::Parse(std::string(absl::StripAsciiWhitespace(text))));
      const absl::StatusOr<TrainingRun> run = Check(formation);
      LS_RETURN_IF_ERROR(Annotate(run.status(), absl::StrCat("--prefer, ", formation.ToString())));
      preferred_.emplace_back(formation, run->settings.mesh);
    }
    return absl::OkStatus();
  }

  Placement PlacementOf(const Formation& formation, int ranks, const std::string& mesh) const {
    Placement placement = {
        .ranks = ranks, .formation = absl::StrCat(formation.strategy, " ", mesh), .program = {}};
    placement.program.push_back(
        AbsolutePath(absl::StrCat("strategies/", formation.strategy, "/main")));
    const std::vector<std::string> arguments = WithConfigs(arguments_, command_line_.configs);
    placement.program.insert(placement.program.end(), arguments.begin(), arguments.end());
    if (command_line_.out.empty()) {
      placement.program.insert(placement.program.end(), {"--out", out_});
    }
    for (const auto* more : {&cut_, &formation.assignments}) {
      for (const std::string& assignment : *more) {
        placement.program.insert(placement.program.end(), {"--set", assignment});
      }
    }
    return placement;
  }

  std::vector<std::string> arguments_;  // of the user, for each rank
  CommandLine command_line_;            // the same, read; its files are those of configs_ now
  KeptConfigs configs_;
  std::string out_;
  int64_t steps_ = 0;
  BestSettings best_;
  int legs_ranks_ = 0;            // of the largest mesh of the legs that are reached; 0: no legs
  MeshShape configured_, mesh_;   // as the configuration has it; of all ranks
  std::vector<std::string> cut_;  // what the full mesh says of the cut, as --set takes it
  std::vector<std::pair<Formation, MeshShape>> preferred_;
};

absl::StatusOr<int> Run(const std::vector<std::string>& words) {
  LS_RETURN_IF_ERROR(CheckRange("ranks", absl::GetFlag(FLAGS_ranks), 0, kMostRanks));
  LS_RETURN_IF_ERROR(CheckRange("max_restarts", absl::GetFlag(FLAGS_max_restarts), 0, 1'000'000));
  LS_ASSIGN_OR_RETURN(Formations formations, Formations::Make(words));
  for (const auto& [name, seconds] :
       {std::pair("longest_start", absl::GetFlag(FLAGS_longest_start)),
        std::pair("longest_discovery", absl::GetFlag(FLAGS_longest_discovery))}) {
    if (!(seconds > 0)) return InvalidArgument("--", name, " must be more than 0 seconds");
  }
  const int ranks = formations.ranks();
  LS_RETURN_IF_ERROR(CheckRange("min_ranks", absl::GetFlag(FLAGS_min_ranks), 0, ranks));
  const std::string script = absl::GetFlag(FLAGS_host_discovery_script);
  std::string launcher = absl::GetFlag(FLAGS_launcher);
  if (launcher.empty()) {
    launcher = script.empty() ? "mpirun -n {ranks}" : "mpirun -n {ranks} --host {hosts}";
  }
  const int least = absl::GetFlag(FLAGS_min_ranks);
  absl::StatusOr<int> code =
      RunAgent({.out = formations.out(),
                .steps = formations.steps(),
                .best = formations.best(),
                .min_ranks = least == 0 ? ranks : least,
                .most_ranks = ranks,
                .max_restarts = absl::GetFlag(FLAGS_max_restarts),
                .longest_start_seconds = absl::GetFlag(FLAGS_longest_start),
                .launcher = launcher,
                .worker = AbsolutePath("tools/launch/worker"),
                .discovery_script = script.empty() ? "" : UserPath(script),
                .longest_discovery_seconds = absl::GetFlag(FLAGS_longest_discovery),
                .place = [&](int places) { return formations.Place(places); }});
  if (code.ok() || ExitCodeOfFailure(code.status()) == 1) return code;
  // The same command may go on later, as where hosts come back.
  PrintError(code.status());
  return kRankLostExitCode;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(argc, argv,
                              {.usage = lockstep::kUsage,
                               .files = {__FILE__},
                               .words = lockstep::ProgramFlags::Words::kAny},
                              lockstep::Run);
}
