#include "strategies/fsdp/options.h"

#include <cstdint>
#include <variant>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/train/config_reader.h"

namespace lockstep {

absl::StatusOr<FsdpOptions> ReadFsdpOptions(const Config& config, const Settings& settings) {
  constexpr char kReshard[] = "reshard_after_forward";
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
  reader.ReadChoice("accumulate", &options.accumulation,
                    {{"whole", Accumulation::kWhole}, {"shards", Accumulation::kShards}});
  LS_RETURN_IF_ERROR(reader.Finish());
  return options;
}

}  // namespace lockstep
