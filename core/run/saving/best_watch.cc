#include "core/run/saving/best_watch.h"

#include <array>
#include <vector>

#include "absl/strings/str_split.h"
#include "absl/types/span.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/comm/agree.h"
#include "core/comm/host_numbers.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

constexpr char kLabel[] = "validations before";

// The losses of all validations of the first `steps` steps, oldest first. JSON has null for a loss
// that is infinite or NaN.
absl::StatusOr<std::vector<double>> LossesBefore(const std::string& metrics, int64_t steps) {
  std::vector<double> losses;
  const absl::StatusOr<std::string> text = ReadFile(metrics);
  if (absl::IsNotFound(text.status())) return losses;
  LS_RETURN_IF_ERROR(text.status());
  for (const auto line : absl::StrSplit(*text, '\n', absl::SkipEmpty())) {
    const auto row = nlohmann::json::parse(line.begin(), line.end(), nullptr, false);
    if (!row.is_object() || !row.contains("step") || !row.contains("validation_loss")) continue;
    if (!row["step"].is_number_integer() || row["step"].get<int64_t>() >= steps) continue;
    const auto& loss = row["validation_loss"];
    losses.push_back(loss.is_number() ? loss.get<double>()
                                      : std::numeric_limits<double>::infinity());
  }
  return losses;
}

}  // namespace

absl::Status BestWatch::Resume(const std::string& metrics, int64_t steps, Communicator& ranks) {
  if (!settings_.keep && settings_.patience == 0) return absl::OkStatus();
  lowest_ = std::numeric_limits<double>::infinity();
  without_gain_ = 0;
  absl::Status read;
  if (ranks.rank() == 0) {
    const auto losses = LossesBefore(metrics, steps);
    read = losses.status();
    if (losses.ok()) {
      for (const double loss : *losses) Take(loss);
    }
  }
  LS_RETURN_IF_ERROR(AgreeOnFirst(read, ranks));
  return Share(ranks);
}

absl::Status BestWatch::Share(Communicator& ranks) {
  std::array<double, 2> known = {lowest_, static_cast<double>(without_gain_)};
  LS_RETURN_IF_ERROR(BroadcastNumbers(ranks, absl::MakeSpan(known), 0, kLabel));
  lowest_ = known[0];
  without_gain_ = static_cast<int64_t>(known[1]);
  return absl::OkStatus();
}

bool BestWatch::Take(double loss) {
  const bool is_lowest = loss < lowest_ - settings_.min_delta;  // never of NaN
  if (is_lowest) lowest_ = loss;
  without_gain_ = is_lowest ? 0 : without_gain_ + 1;
  return is_lowest;
}

}  // namespace lockstep
