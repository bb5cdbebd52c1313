#include "strategies/data_parallel/data_parallel_option.h"

#include <bit>  // std::has_single_bit
#include <cstdint>
#include <string>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/config/config_reader.h"
#include "core/config/key_ranges.h"
#include "strategies/data_parallel/replicated.h"
#include "strategies/data_parallel/sharded.h"

namespace lockstep {
namespace {

constexpr char kTable[] = "data_parallel";
constexpr char kUnshard[] = "unshard", kReshard[] = "reshard", kAccumulate[] = "accumulate";

// Keys that belong to other choices of `shard`.
void RefuseKeys(ConfigReader& reader, const std::vector<std::string>& keys,
                const std::string& shard) {
  for (const std::string& key : keys) {
    if (!reader.IsGiven(key)) continue;
    reader.Table(key);  // makes the key known, so that this is the only problem
    reader.AddProblem(key, absl::StrCat("has a meaning only with data_parallel.shard = ", shard,
                                        ": leave it out"));
  }
}

Unshard ReadUnshard(ConfigReader& reader, const Schedule& schedule) {
  Unshard unshard = Unshard::kPass;
  reader.ReadChoice(kUnshard, &unshard,
                    {{"micro_batch", Unshard::kPass}, {"step", Unshard::kStep}});
  if (unshard == Unshard::kPass && HalvesBackwards(schedule)) {
    reader.AddProblem(kUnshard,
                      absl::StrCat("is \"micro_batch\", which gives parameters back behind the "
                                   "first half of a backward, and the schedule ",
                                   schedule.name,
                                   " has a second one that reads them; use \"step\", or a schedule "
                                   "of whole backwards"));
  }
  return unshard;
}

// How many neighbouring ranks keep a unit together between its forward and its backward.
int ReadNeighbours(ConfigReader& reader, const MeshShape& mesh, Unshard unshard) {
  const int ranks = mesh.dp * mesh.cp;
  std::variant<bool, int64_t> reshard = true;
  reader.Read(kReshard, &reshard);
  if (unshard == Unshard::kStep && reader.IsGiven(kReshard)) {
    reader.AddProblem(kReshard,
                      "says what is kept between a forward and its backward, and with "
                      "data_parallel.unshard = \"step\" all is: use unshard = \"micro_batch\", or "
                      "leave it out");
  }
  const int64_t* neighbours = std::get_if<int64_t>(&reshard);
  if (neighbours == nullptr) return std::get<bool>(reshard) ? ranks : 1;
  if (*neighbours < 2) {
    reader.AddProblem(kReshard, absl::StrCat("is ", *neighbours,
                                             ": a group has 2 ranks or more; false keeps units "
                                             "whole, true leaves a shard of them"));
  } else if (*neighbours > ranks || ranks % *neighbours != 0) {
    reader.AddProblem(
        kReshard, absl::StrCat("is ", *neighbours, ", but mesh.dp", mesh.cp > 1 ? " x mesh.cp" : "",
                               ", ", ranks, ", does not divide into groups of as many ranks"));
  } else if (mesh.ep > 1) {
    reader.AddProblem(kReshard,
                      absl::StrCat("is ", *neighbours, ", and mesh.ep is ", mesh.ep,
                                   ": experts are not kept by groups of neighbours, which have "
                                   "other experts; use true or false, or mesh.ep=1"));
  } else {
    return static_cast<int>(*neighbours);
  }
  return ranks;
}

void ReadAccumulate(ConfigReader& reader, int64_t micro_batches) {
  bool reduces_each_micro_batch = false;
  reader.ReadChoice(kAccumulate, &reduces_each_micro_batch, {{"whole", false}, {"shards", true}});
  if (!reduces_each_micro_batch || micro_batches == 1) return;
  reader.AddProblem(
      kAccumulate,
      absl::StrCat("is \"shards\", which sums over the ranks behind each micro-batch; but with "
                   "cut.micro_batches = ",
                   micro_batches,
                   " those of a shard are added up first, as `single` does: use \"whole\", or "
                   "cut.micro_batches=1 with more shards"));
}

Divided ReadShard(ConfigReader& reader) {
  Divided divided = Divided::kNothing;
  reader.ReadChoice("shard", &divided,
                    {{"none", Divided::kNothing},
                     {"optimizer", Divided::kOptimizerState},
                     {"gradients", Divided::kGradients},
                     {"parameters", Divided::kParameters}});
  return divided;
}

}  // namespace

Divided ReadDivided(const Config& config) {
  ConfigReader reader(config.Table(kTable));
  return ReadShard(reader);  // ReadDataParallel tells what is wrong with it
}

bool SumsTokens(const Settings& settings, Divided divided) {
  const bool are_nodes = settings.mesh.data_ranks() == 1 ||
                         std::has_single_bit(static_cast<uint64_t>(settings.mesh.cp));
  return are_nodes && (divided >= Divided::kGradients || settings.shards_of_rank() == 1);
}

ShardAssignment AssignmentOf(Divided divided) {
  return divided >= Divided::kGradients ? ShardAssignment::kStrided : ShardAssignment::kConsecutive;
}

absl::StatusOr<DataParallelMaker> ReadDataParallel(const Config& config, const Settings& settings,
                                                   const Schedule& schedule) {
  ConfigReader reader(config.Table(kTable));
  Sharding sharding = {.divided = ReadShard(reader)};
  BucketLimits buckets;
  if (sharding.divided == Divided::kNothing) {
    reader.Read("first_bucket_bytes", &buckets.first, {.at_least = 1, .at_most = kMostBytes});
    reader.Read("bucket_bytes", &buckets.others, {.at_least = 1, .at_most = kMostBytes});
  } else {
    RefuseKeys(reader, {"first_bucket_bytes", "bucket_bytes"}, "\"none\"");
  }
  if (sharding.divided == Divided::kParameters) {
    sharding.unshard = ReadUnshard(reader, schedule);
    sharding.neighbours = ReadNeighbours(reader, settings.mesh, sharding.unshard);
    ReadAccumulate(reader, settings.cut.micro_batches);
  } else {
    RefuseKeys(reader, {kUnshard, kReshard, kAccumulate}, "\"parameters\"");
  }
  const bool divides_nodes = std::has_single_bit(static_cast<uint64_t>(settings.mesh.cp));
  if (sharding.divided != Divided::kNothing && settings.mesh.data_ranks() > 1 && !divides_nodes) {
    reader.AddProblem(
        "shard",
        absl::StrCat("divides among the ranks along dp and cp, which sum nodes "
                     "of the tree over shards only where mesh.cp, ",
                     settings.mesh.cp, ", is a power of two: use \"none\", or change mesh.cp"));
  }
  LS_RETURN_IF_ERROR(reader.Finish());
  return sharding.divided == Divided::kNothing ? MakeReplicated(buckets) : MakeSharded(sharding);
}

}  // namespace lockstep
