#include "core/report/banner.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/clock.h"

namespace lockstep {
namespace {

std::string Counted(int64_t count, const std::string& what) {
  return absl::StrCat(count, " ", what, count == 1 ? "" : "s");
}

// The table [model] says which; whoever made the run has read it.
std::string KindOfModel(const Config& config) {
  const ConfigValue* kind = config.Table("model.kind").value;
  const std::string* name = kind == nullptr ? nullptr : kind->As<std::string>();
  return name == nullptr ? "model" : *name;
}

std::string Model(const RunDescription& run) {
  std::string text =
      absl::StrCat(KindOfModel(run.config), " of ", FormatCount(run.parameters), " parameters");
  if (run.trained_parameters < run.parameters) {
    absl::StrAppend(&text, ", of which ", FormatCount(run.trained_parameters), " are trained");
  }
  return text;
}

std::string Steps(const RunDescription& run, int64_t first_step, const std::string& from) {
  const int64_t samples = run.settings.batch.size;
  std::string text = absl::StrCat(run.settings.steps, " of ", Counted(samples, "sample"));
  if (const int64_t units = run.units_per_step(); units != samples) {
    absl::StrAppend(&text, " (", FormatCount(units), " ", run.unit(), ")");
  }
  if (first_step > 0) {
    absl::StrAppend(&text, "; goes on with step ", first_step + 1, ", from ", from);
  }
  return text;
}

void AppendValue(std::string* out, const std::string& value) {
  absl::StrAppend(out, value.empty() ? "not set" : value);
}

}  // namespace

std::string Banner(const RunDescription& run, int64_t first_step, const std::string& from,
                   const std::vector<Config::Difference>& changes) {
  const MeshShape& mesh = run.settings.mesh;
  std::string text =
      absl::StrCat(run.workload, " under ", run.strategy_name,
                   mesh.ranks() == 1 ? "" : absl::StrCat(", mesh ", mesh.ToString()), ": ",
                   Counted(mesh.ranks(), "rank"),
                   run.device == DeviceType::kCpu ? " on the CPU, " : " on GPUs, ",
                   Counted(run.settings.threads, "thread"), mesh.ranks() == 1 ? "" : " each",
                   "\n  model  ", Model(run), "\n  data   ", run.dataset->Describe(), "\n  steps  ",
                   Steps(run, first_step, from), "\n  out    ", run.out);
  if (first_step > 0 && !changes.empty()) {
    const auto append = [](std::string* out, const Config::Difference& change) {
      absl::StrAppend(out, change.key, " ");
      AppendValue(out, change.theirs);
      absl::StrAppend(out, " -> ");
      AppendValue(out, change.ours);
    };
    absl::StrAppend(&text, "\n  changed since: ", absl::StrJoin(changes, ", ", append));
  }
  return text;
}

}  // namespace lockstep
