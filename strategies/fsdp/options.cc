#include "strategies/fsdp/options.h"

#include <cstdint>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/config/config_reader.h"

namespace lockstep {

absl::StatusOr<FsdpOptions> ReadFsdpOptions(const Config& config, const Settings& settings) {
  constexpr char kReshard[] = "reshard_after_forward", kAccumulate[] = "accumulate";
  FsdpOptions options;
  ConfigReader reader(config.Table("fsdp"));
  std::variant<bool, int64_t> reshard = true;
  reader.Read(kReshard, &reshard);
  const int ranks = settings.mesh.dp;
  if (const int64_t* neighbours = std::get_if<int64_t>(&reshard)) {
    options.neighbours = static_cast<int>(*neighbours);
    if (*neighbours < 2) {
      reader.AddProblem(kReshard, absl::StrCat("is ", *neighbours,
                                               ": a group has 2 ranks or more; false keeps units "
                                               "whole, true leaves a shard of them"));
    } else if (*neighbours > ranks || ranks % *neighbours != 0) {
      reader.AddProblem(kReshard, absl::StrCat("is ", *neighbours, ", but mesh.dp, ", ranks,
                                               ", does not divide into groups of as many ranks"));
    }
  } else if (std::get<bool>(reshard)) {
    options.neighbours = ranks;
  }
  bool reduces_each_micro_batch = false;
  reader.ReadChoice(kAccumulate, &reduces_each_micro_batch, {{"whole", false}, {"shards", true}});
  if (reduces_each_micro_batch && settings.cut.micro_batches > 1) {
    reader.AddProblem(
        kAccumulate,
        absl::StrCat("is \"shards\", which sums over the ranks behind each micro-batch; but with "
                     "cut.micro_batches = ",
                     settings.cut.micro_batches,
                     " those of a shard are added up first, as `single` does: use \"whole\", or "
                     "cut.micro_batches=1 with more shards"));
  }
  LS_RETURN_IF_ERROR(reader.Finish());
  return options;
}

}  // namespace lockstep
