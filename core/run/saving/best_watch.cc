#include "core/run/saving/best_watch.h"

#include <array>
#include <map>
#include <optional>

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

// The loss behind the best checkpoint of the first steps; nullopt where there is none.
std::optional<double> LossOfBest(const BestWatch::Earlier& earlier,
                                 const std::map<int64_t, double>& losses) {
  const auto found = ListCheckpoints(earlier.best_folder);
  if (!found.ok()) return std::nullopt;
  for (const FoundCheckpoint& checkpoint : *found) {
    const auto loss = losses.find(checkpoint.step - 1);
    if (checkpoint.step <= earlier.steps && loss != losses.end()) return loss->second;
  }
  return std::nullopt;
}

}  // namespace

absl::Status BestWatch::Read(const Earlier& earlier) {
  lowest_ = kNone;
  without_gain_ = 0;
  LS_ASSIGN_OR_RETURN(const auto losses, LossesBefore(earlier));
  for (const auto& [step, loss] : losses) {
    if (settings_.every > 0 && (step + 1) % settings_.every == 0) Await(loss);
  }
  best_ = LossOfBest(earlier, losses).value_or(kNone);
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
