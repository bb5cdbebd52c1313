#include "core/config/best_settings.h"

#include "absl/strings/str_cat.h"
#include "core/config/key_ranges.h"

namespace lockstep {

void ReadBest(ConfigReader& checkpoint, BestSettings& best) { checkpoint.Read("best", &best.keep); }

void ReadPatience(ConfigReader& validation, int64_t every, BestSettings& best) {
  best.every = every;
  validation.Read("patience", &best.patience, {.at_least = 0, .at_most = kMostSteps});
  validation.Read("min_delta", &best.min_delta, {.at_least = 0, .at_most = kLargestFloat});
  if (best.patience > 0 && every == 0) {
    validation.AddProblem("patience",
                          absl::StrCat("is ", best.patience,
                                       " validations, but validation.every is 0, so there is one "
                                       "at the end alone; set validation.every"));
  }
}

BestSettings BestSettingsOf(const Config& config) {
  BestSettings best;
  ConfigReader checkpoint(config.Table("checkpoint")), validation(config.Table("validation"));
  ReadBest(checkpoint, best);
  validation.Read("every", &best.every);
  ReadPatience(validation, best.every, best);
  return best;
}

}  // namespace lockstep
