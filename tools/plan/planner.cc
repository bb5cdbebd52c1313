#include "tools/plan/planner.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <optional>
#include <set>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/config/config.h"
#include "core/config/config_reader.h"
#include "core/config/key_ranges.h"
#include "core/run/config_listing.h"
#include "foresight/recorded_run.h"
#include "strategies/mesh/mesh.h"
#include "strategies/schedules/named_schedules.h"

namespace lockstep {
namespace {

CommandLine With(CommandLine command_line, const std::vector<std::string>& assignments) {
  command_line.assignments.insert(command_line.assignments.end(), assignments.begin(),
                                  assignments.end());
  return command_line;
}

// Reads one of `names`, if `key` is there.
void ReadName(ConfigReader& reader, const std::string& key, const std::vector<std::string>& names,
              std::optional<std::string>& option) {
  if (!reader.Has(key)) return;
  std::vector<std::pair<std::string, std::string>> choices;
  for (const std::string& name : names) choices.emplace_back(name, name);
  reader.ReadChoice(key, &option.emplace(), choices);
}

// The options of candidates that assignments fix. A mesh and a cut are for the plan to choose.
absl::StatusOr<FixedOptions> FixedBy(const std::vector<std::string>& assignments) {
  Config assigned;
  for (const std::string& assignment : assignments) LS_RETURN_IF_ERROR(assigned.Set(assignment));
  const auto is_there = [&](const std::string& key) {
    return assigned.Table(key).value != nullptr;
  };
  for (const char* key : {"pipeline.schedule_file", "pipeline.actions"}) {
    if (is_there(key)) {
      return InvalidArgument("--set ", key, ": a plan has the schedules of pipeline.schedule only");
    }
  }
  std::set<std::string> keys;
  for (const std::string& chosen : Candidate().Assignments(1)) {
    const std::string& key = *keys.insert(chosen.substr(0, chosen.find('='))).first;
    const bool is_mesh = key.starts_with("mesh.");
    if ((is_mesh || key.starts_with("cut.")) && is_there(key)) {
      return InvalidArgument("--set ", key, ": a plan chooses this",
                             is_mesh ? "; --mesh plans one mesh alone" : "");
    }
  }
  const char* const tables[] = {"pipeline", "data_parallel", "recompute", "tensor_parallel"};
  for (const std::string table : tables) {  // other keys are the engine's
    for (const std::string& name : ConfigReader(assigned.Table(table)).Keys()) {
      const std::string key = absl::StrCat(table, ".", name);
      if (!keys.contains(key)) assigned = assigned.Without(key);
    }
  }
  FixedOptions fixed;
  ConfigReader pipeline(assigned.Table(tables[0])), data_parallel(assigned.Table(tables[1])),
      recompute(assigned.Table(tables[2])), tensor_parallel(assigned.Table(tables[3]));
  ReadName(pipeline, "schedule", ScheduleNames(), fixed.schedule);
  ReadName(data_parallel, "shard", CandidateLimits().shards, fixed.shard);
  ReadName(recompute, "granularity", {std::begin(kGranularities), std::end(kGranularities)},
           fixed.recompute);
  if (pipeline.Has("stages_per_rank")) {
    pipeline.Read("stages_per_rank", &fixed.stages_per_rank.emplace(),
                  {.at_least = 1, .at_most = kMostLayers});
  }
  if (tensor_parallel.Has("sequence_parallel")) {
    tensor_parallel.Read("sequence_parallel", &fixed.sequence_parallel.emplace());
  }
  for (ConfigReader* reader : {&pipeline, &data_parallel, &recompute, &tensor_parallel}) {
    LS_RETURN_IF_ERROR(reader->Finish());
  }
  return fixed;
}

// Operations a second of dense products in `dtype`, or in another dtype if the data sheet has none
// for it.
double PeakOf(const Cluster::Device& device, DType dtype) {
  const auto peak = device.peak.find(dtype);
  return peak != device.peak.end() ? peak->second : device.peak.begin()->second;
}

// What a machine can be better at.
struct Resource {
  const char* name;
  void (*improve)(Cluster& cluster, Dialect& dialect);
};
constexpr Resource kResources[] = {
    {"rate of matrix products",
     [](Cluster& c, Dialect&) {
       for (auto& [dtype, peak] : c.device.peak) peak *= 2;
     }},
    {"bandwidth of the devices' memory", [](Cluster& c, Dialect&) { c.device.bandwidth *= 2; }},
    {"bandwidth between the devices of a node",
     [](Cluster& c, Dialect&) { c.node.link_bandwidth *= 2; }},
    {"bandwidth between nodes", [](Cluster& c, Dialect&) { c.network.bandwidth *= 2; }},
    {"latency of all messages",
     [](Cluster& c, Dialect&) {
       c.node.link_latency /= 2;
       c.network.latency /= 2;
       const auto start = c.fitted.find("collective_start");
       if (start != c.fitted.end()) start->second /= 2;
     }},
    {"overhead of a kernel",
     [](Cluster& c, Dialect& dialect) {
       c.device.launch /= 2;
       const auto kernel = c.fitted.find("kernel_seconds");
       if (kernel != c.fitted.end()) kernel->second /= 2;
       for (auto& [name, value] : dialect.fitted()) {
         if (name.starts_with("host_")) value /= 2;
       }
     }},
};

MemoryOverTime MemoryOf(const RecordedStep& step, const std::vector<int32_t>& stretches,
                        const std::vector<double>& begins) {
  MemoryOverTime memory;
  for (int c = 0; c < kMemoryClasses; ++c) {
    memory.classes.push_back(Name(static_cast<MemoryClass>(c)));
  }
  LiveBytes live(step);
  for (size_t i = 0; i < stretches.size(); ++i) {
    const PeakBytes peaks = live.Pass(step.stretches[stretches[i]]);
    memory.samples.push_back(
        {.begin = begins[i], .bytes = {peaks.classes.begin(), peaks.classes.end()}});
  }
  return memory;
}

}  // namespace

Planner::Planner(Options options)
    : options_(std::move(options)),
      strategy_(MeshStrategy()),
      network_(std::make_shared<const ClusterCommTime>(options_.cluster)) {}

absl::StatusOr<Planner> Planner::Create(Options options) {
  LS_RETURN_IF_ERROR(NetworkTime::Check(options.cluster));
  Planner planner(std::move(options));
  Options& given = planner.options_;
  LS_ASSIGN_OR_RETURN(planner.fixed_, FixedBy(given.workload.assignments));
  LS_ASSIGN_OR_RETURN(const TrainingRun run,
                      CheckRun(With(given.workload, Candidate().Assignments(1)), planner.strategy_,
                               given.make_model));
  planner.batch_ = run.settings.batch.size * given.batch_factor;
  given.workload.assignments.push_back(absl::StrCat("batch.size=", planner.batch_));
  planner.unit_ = run.unit();
  const int64_t units_per_sample = run.units_per_step() / run.settings.batch.size;
  planner.units_per_sample_ = static_cast<double>(units_per_sample);
  LS_ASSIGN_OR_RETURN(const Model model, run.make_model(run.config, *run.dataset));
  for (const auto& block : model.blocks) {
    planner.forward_macs_ += static_cast<double>(block->cost.forward_macs);
  }
  return planner;
}

absl::StatusOr<CandidateLimits> Planner::Limits(int64_t ranks) const {
  const Cluster& cluster = options_.cluster;
  if (ranks < 1 || ranks > cluster.devices()) {
    return InvalidArgument("cluster ", cluster.name, " has ", cluster.devices(), " devices, not ",
                           ranks, "; use 1 to ", cluster.devices(),
                           " ranks, or raise network.nodes in its file");
  }
  CandidateLimits limits;
  limits.ranks = ranks;
  limits.batch = batch_;
  limits.fixed = fixed_;
  // A search does not try layerwise by itself.
  if (fixed_.schedule &&
      std::ranges::find(limits.schedules, *fixed_.schedule) == limits.schedules.end()) {
    limits.schedules.push_back(*fixed_.schedule);
  }
  limits.ranks_per_node = std::min<int64_t>(cluster.node.devices, ranks);
  limits.tensor_parallel.clear();
  // The framework and the model themselves say what is possible.
  const auto lacks = [&](const std::string& key) {
    return [this, key](const std::string& value) {
      return !options_.dialect.CheckOption(absl::StrCat(key, "=", value)).ok();
    };
  };
  std::erase_if(limits.shards, lacks("data_parallel.shard"));
  std::erase_if(limits.schedules, lacks("pipeline.schedule"));
  const auto accepts = [&](const Candidate& candidate) -> absl::StatusOr<TrainingRun> {
    LS_RETURN_IF_ERROR(CheckOptions(candidate));
    return CheckRun(With(options_.workload, candidate.Assignments(batch_)), strategy_,
                    options_.make_model);
  };
  for (int tp = 1; tp <= cluster.node.devices; ++tp) {
    if (cluster.node.devices % tp != 0) continue;
    Candidate candidate;
    candidate.mesh.tp = tp;
    const auto run = accepts(candidate);
    if (!run.ok()) {
      limits.refused_tensor_parallel.push_back(tp);
      continue;
    }
    limits.tensor_parallel.push_back(tp);
    if (tp == 1) {
      LS_ASSIGN_OR_RETURN(const Model model, run->make_model(run->config, *run->dataset));
      limits.blocks = static_cast<int64_t>(model.blocks.size());
      for (int64_t ep = 2; ep <= ranks && model.experts > 0 && model.experts % ep == 0; ep *= 2) {
        if (lacks("mesh.ep")(absl::StrCat(ep))) break;
        limits.expert_parallel.push_back(ep);
      }
      continue;
    }
    candidate.sequence_parallel = true;
    if (accepts(candidate).ok()) limits.sequence_parallel.push_back(tp);
  }
  Candidate divided;
  for (divided.mesh.cp = 2; divided.mesh.cp <= ranks; divided.mesh.cp *= 2) {
    if (!accepts(divided).ok()) break;
    limits.context_parallel.push_back(divided.mesh.cp);
  }
  Candidate selective;
  selective.recompute = "selective";
  limits.has_selective = accepts(selective).ok();
  return limits;
}

absl::Status Planner::CheckOptions(const Candidate& candidate) const {
  const Dialect& dialect = options_.dialect;
  const MeshShape& mesh = candidate.mesh;
  for (const std::string& assignment : candidate.Assignments(batch_)) {
    // What changes nothing on this mesh.
    if (mesh.pp == 1 && assignment.starts_with("pipeline.")) continue;
    if (mesh.dp * mesh.cp == 1 && assignment.starts_with("data_parallel.")) continue;
    LS_RETURN_IF_ERROR(dialect.CheckOption(assignment));
  }
  if (dialect.parameter_bytes().total() > 0 && mesh.ep > 1 && candidate.shard != "none") {
    // Ranks divide the state of experts and of all else among different numbers of them.
    return InvalidArgument("the memory of ", dialect.name(), " is not known where mesh.ep is ",
                           mesh.ep, " and ranks divide states; use data_parallel.shard=none");
  }
  return absl::OkStatus();
}

absl::StatusOr<StepTime> Planner::Record(const Candidate& candidate) const {
  LS_RETURN_IF_ERROR(CheckOptions(candidate));
  LS_ASSIGN_OR_RETURN(RecordedRun recorded,
                      RecordRun(With(options_.workload, candidate.Assignments(batch_)), strategy_,
                                options_.make_model));
  return StepTime::Create(std::make_shared<const RecordedRun>(std::move(recorded)),
                          options_.dialect, options_.cluster);
}

RankMemory Planner::MemoryAt(const Candidate& candidate, const StepTime& time,
                             const std::vector<KernelCost>& costs, int pp) const {
  RankMemory memory;
  if (options_.dialect.parameter_bytes().total() > 0) {  // another framework's bytes
    DividedState divided;
    if (candidate.shard != "none") divided.ranks = candidate.mesh.dp * candidate.mesh.cp;
    divided.values = candidate.shard == "parameters";
    divided.gradients = divided.values || candidate.shard == "gradients";
    const DialectMemory bytes = time.Memory(costs, options_.dialect, pp, divided);
    memory.classes = {{"parameters, gradients and optimizer", bytes.layers + bytes.embeddings},
                      {"activations", bytes.layer_activations + bytes.other_activations},
                      {"recomputed", bytes.recomputed}};
    memory.total = bytes.total();
    return memory;
  }
  const PeakBytes bytes = MemoryOf(time.run().steps[pp], time.run().Stretches(pp));
  for (int c = 0; c < kMemoryClasses; ++c) {
    memory.classes.emplace_back(Name(static_cast<MemoryClass>(c)),
                                static_cast<double>(bytes.classes[c]));
  }
  memory.total = static_cast<double>(bytes.total);
  return memory;
}

absl::StatusOr<Forecast> Planner::Estimate(const Candidate& candidate, const StepTime& time,
                                           Timeline timeline) const {
  Forecast forecast;
  forecast.candidate = candidate;
  LS_ASSIGN_OR_RETURN(const std::vector<KernelCost> costs, time.Costs(options_.dialect));
  forecast.estimate = time.Estimate(costs, options_.dialect, options_.cluster, *network_, timeline);
  for (int pp = 0; pp < candidate.mesh.pp; ++pp) {
    RankMemory memory = MemoryAt(candidate, time, costs, pp);
    if (pp > 0 && memory.total <= forecast.memory.total) continue;
    forecast.fullest = pp;
    forecast.memory = std::move(memory);
  }
  forecast.seconds = forecast.estimate.seconds;
  const auto batch = static_cast<double>(batch_);
  forecast.unit = unit_;
  forecast.units_per_second = batch * units_per_sample_ / forecast.seconds;
  forecast.flops = 6 * forward_macs_ * batch;
  forecast.mfu = forecast.flops / forecast.seconds / candidate.mesh.ranks() /
                 PeakOf(options_.cluster.device, time.run().settings.precision.compute);
  forecast.fits = forecast.memory.total <= room();
  return forecast;
}

Forecast Planner::Plan(const Candidate& candidate) const {
  const auto plan = [&]() -> absl::StatusOr<Forecast> {
    LS_ASSIGN_OR_RETURN(const StepTime time, Record(candidate));
    return Estimate(candidate, time, Timeline::kLeaveOut);
  };
  absl::StatusOr<Forecast> forecast = plan();
  if (forecast.ok()) return *std::move(forecast);
  Forecast refused;
  refused.candidate = candidate;
  refused.refused = forecast.status();
  return refused;
}

absl::StatusOr<Explanation> Planner::Explain(const Candidate& candidate) const {
  LS_ASSIGN_OR_RETURN(const StepTime time, Record(candidate));
  Explanation explanation;
  LS_ASSIGN_OR_RETURN(explanation.forecast, Estimate(candidate, time, Timeline::kKeep));
  for (const Resource& resource : kResources) {
    Cluster cluster = options_.cluster;
    Dialect dialect = options_.dialect;
    resource.improve(cluster, dialect);
    LS_ASSIGN_OR_RETURN(const StepEstimate estimate,
                        time.Estimate(dialect, cluster, ClusterCommTime(cluster)));
    explanation.faster.push_back({resource.name, estimate.seconds});
  }
  std::ranges::stable_sort(explanation.faster, std::less(), &FasterResource::seconds);
  if (options_.dialect.parameter_bytes().total() == 0) {
    const int pp = explanation.forecast.fullest;
    explanation.memory = MemoryOf(time.run().steps[pp], time.run().Stretches(pp),
                                  explanation.forecast.estimate.ranks[pp].stretch_begins);
  }
  return explanation;
}

absl::StatusOr<std::string> Planner::ConfigurationOf(const Candidate& candidate) const {
  return EffectiveConfig(With(options_.workload, candidate.Assignments(batch_)), strategy_,
                         options_.make_model);
}

}  // namespace lockstep
