#include "tools/bench/faults/mesh_changes.h"

#include <algorithm>
#include <random>
#include <set>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/base/subprocess.h"
#include "glog/logging.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

// Every preset that trains all parameters of the model, on meshes that divide the cut.
std::vector<std::string> Formations(FaultModel model) {
  std::vector<std::string> formations = {
      "single",
      "naive_ddp dp=2",
      "ddp dp=4",
      "zero1 dp=4",
      "zero2 dp=2",
      "fsdp dp=2 replicas=2",
      "layerwise pp=2",
      "gpipe pp=2 dp=2",
      "fsdp_pipe pp=2 dp=2",
      "tp tp=2 dp=2",
      "mesh pp=2 tp=2 dp=2 data_parallel.shard=optimizer",
  };
  if (model != FaultModel::kResNet) formations.push_back("cp cp=2 dp=2");
  if (model == FaultModel::kExperts) formations.push_back("ep dp=4 ep=2");
  return formations;
}

const char* NameOf(FaultModel model) {
  switch (model) {
    case FaultModel::kGpt:
      return "gpt";
    case FaultModel::kExperts:
      return "experts";
    case FaultModel::kResNet:
      return "resnet";
  }
  return "";
}

std::string NameOf(const FaultWorkload& workload) {
  return absl::StrCat(NameOf(workload.model), "_", workload.is_bf16 ? "bf16" : "fp32");
}

// How many changes of mesh a run says that it has made, with as many bytes as were planned.
int64_t ChangesOf(const std::string& out) {
  const auto summary = nlohmann::json::parse(ReadFile(out + "/summary.json").value_or(""), nullptr,
                                             /*allow_exceptions=*/false);
  if (!summary.is_object() || !summary.contains("changes_of_mesh")) return 0;
  return std::ranges::count_if(summary["changes_of_mesh"], [](const nlohmann::json& change) {
    return change["bytes"]["measured"] == change["bytes"]["predicted"];
  });
}

// Without the standard library's distributions, which differ between its versions.
int64_t Below(std::mt19937_64& random, int64_t limit) {
  return static_cast<int64_t>(random() % static_cast<uint64_t>(limit));
}

}  // namespace

std::vector<FaultWorkload> MeshChangeWorkloads() {
  std::vector<FaultWorkload> workloads;
  for (const FaultModel model : {FaultModel::kGpt, FaultModel::kExperts, FaultModel::kResNet}) {
    for (const bool is_bf16 : {false, true}) {
      workloads.push_back({.model = model, .is_bf16 = is_bf16});
    }
  }
  return workloads;
}

std::string RandomLegs(const FaultWorkload& workload, int changes, uint64_t seed) {
  CHECK_LT(changes, workload.steps);
  std::mt19937_64 random(seed);
  std::set<int64_t> ends = {workload.steps};
  while (std::ssize(ends) <= changes) ends.insert(1 + Below(random, workload.steps - 1));
  std::vector<std::string> unused, legs;
  std::string formation;
  int64_t begin = 0;
  for (const int64_t end : ends) {
    if (unused.empty()) {
      unused = Formations(workload.model);
      std::erase(unused, formation);
    }
    const auto next = unused.begin() + Below(random, std::ssize(unused));
    formation = *next;
    unused.erase(next);
    legs.push_back(absl::StrCat(end - begin, ": ", formation));
    begin = end;
  }
  return absl::StrJoin(legs, "; ");
}

absl::StatusOr<FaultCounts> ChangeMeshes(const FaultOptions& options,
                                         const std::vector<FaultWorkload>& workloads) {
  for (const FaultWorkload& workload : workloads) {
    if (options.count < workload.steps) continue;
    return InvalidArgument("mesh_changes: a run of ", workload.steps,
                           " steps changes its mesh at most ", workload.steps - 1, " times, not ",
                           options.count, "; give --count for each of --kinds by itself");
  }
  FaultCounts counts;
  for (size_t i = 0; i < workloads.size(); ++i) {
    const FaultWorkload& workload = workloads[i];
    const std::string name = NameOf(workload), folder = absl::StrCat(options.folder, "/", name);
    LS_ASSIGN_OR_RETURN(const std::string config, PrepareFaultRuns(workload, folder));
    const std::string legs = RandomLegs(workload, options.count, options.seed + i);
    const std::string out = folder + "/out";
    LS_ASSIGN_OR_RETURN(const ProcessResult result,
                        RunProcess({.arguments = {"strategies/mesh/main", "--config", config,
                                                  "--out", out, "--legs", legs}}));
    counts.runs += 1;
    const int64_t changes = ChangesOf(out);
    counts.faults += changes;
    std::string failure;
    if (!result.ok()) {
      failure = absl::StrCat(result.Describe(), "\n", result.err);
    } else {
      failure = DifferenceFromUndisturbed(out, folder);
      if (failure.empty()) failure = LeftoversOf(out);
      if (failure.empty() && changes != options.count) {
        failure = absl::StrCat(changes, " changes of mesh are written down of ", options.count);
      }
    }
    options.progress(
        absl::StrCat(name, ", ", legs, ": ", failure.empty() ? "the bits of single" : failure));
    counts.details.push_back(absl::StrCat(name, ": ", legs));
    if (!failure.empty()) counts.failures.push_back(absl::StrCat(name, ", ", legs, ": ", failure));
  }
  return counts;
}

FaultKind MeshChangesKind() {
  return {.name = "mesh_changes",
          .meaning =
              "runs of 200 steps change strategy and mesh; losses.csv and the parameters' hash "
              "must be those of single",
          .usual_count = 12,  // 13 legs, as many as a run has formations at most
          .run = [](const FaultOptions& options) {
            return ChangeMeshes(options, MeshChangeWorkloads());
          }};
}

}  // namespace lockstep
