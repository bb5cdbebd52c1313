#include "core/run/saving/best_watch.h"

#include <algorithm>
#include <array>
#include <map>

#include "absl/types/span.h"
#include "core/base/status.h"
#include "core/checkpoint/checkpoint_folder.h"
#include "core/comm/agree.h"
#include "core/comm/host_numbers.h"
#include "core/report/metrics.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

constexpr char kLabel[] = "validations before";
constexpr char kLoss[] = "validation_loss";  // of metrics.jsonl

// The loss behind each step that earlier attempts have validated after, by its number from 0. A run
// that was stopped before its summary validates its last step twice. JSON has null for a loss that
// is infinite or NaN.
absl::StatusOr<std::map<int64_t, double>> LossesBefore(const BestWatch::Earlier& earlier) {
  std::map<int64_t, double> losses;
  const absl::Status read =
      ForEachMetric(earlier.metrics, kLoss, earlier.steps, [&losses](const nlohmann::json& row) {
        const nlohmann::json& loss = row[kLoss];
        losses[row["step"].get<int64_t>()] =
            loss.is_number() ? loss.get<double>() : std::numeric_limits<double>::infinity();
      });
  if (!read.ok() && !absl::IsNotFound(read)) return read;
  return losses;
}

// Whether a checkpoint of at most `steps` steps is in a folder.
bool HasCheckpoint(const std::string& folder, int64_t steps) {
  const auto found = ListCheckpoints(folder);
  return found.ok() && std::ranges::any_of(*found, [steps](const FoundCheckpoint& checkpoint) {
           return checkpoint.step <= steps;
         });
}

}  // namespace

absl::Status BestWatch::Read(const Earlier& earlier) {
  lowest_ = best_ = kNone;
  without_gain_ = 0;
  LS_ASSIGN_OR_RETURN(const auto losses, LossesBefore(earlier));
  for (const auto& [step, loss] : losses) {
    const int64_t every = earlier.validation_every;
    if (every > 0 && (step + 1) % every == 0) Await(loss);
    IsBest(loss);
  }
  if (!HasCheckpoint(earlier.best_folder, earlier.steps)) best_ = kNone;
  return absl::OkStatus();
}

absl::Status BestWatch::Resume(const Earlier& earlier, Communicator& ranks) {
  if (!settings_.keep && settings_.patience == 0) return absl::OkStatus();
  LS_RETURN_IF_ERROR(AgreeOnFirst(ranks.rank() == 0 ? Read(earlier) : absl::OkStatus(), ranks));
  return Share(ranks);
}

absl::Status BestWatch::Share(Communicator& ranks) {
  std::array<double, 3> known = {lowest_, static_cast<double>(without_gain_), best_};
  LS_RETURN_IF_ERROR(BroadcastNumbers(ranks, absl::MakeSpan(known), 0, kLabel));
  lowest_ = known[0];
  without_gain_ = static_cast<int64_t>(known[1]);
  best_ = known[2];
  return absl::OkStatus();
}

bool BestWatch::Take(double loss) {
  Await(loss);
  return IsBest(loss);
}

// Never of NaN, as IsBest.
void BestWatch::Await(double loss) {
  const bool is_lowest = loss < lowest_ - settings_.min_delta;
  if (is_lowest) lowest_ = loss;
  without_gain_ = is_lowest ? 0 : without_gain_ + 1;
}

bool BestWatch::IsBest(double loss) {
  const bool is_best = loss < best_ - settings_.min_delta;
  if (is_best) best_ = loss;
  return is_best;
}

}  // namespace lockstep
