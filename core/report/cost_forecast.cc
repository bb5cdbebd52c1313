#include "core/report/cost_forecast.h"

#include <algorithm>
#include <cstdint>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/clock.h"
#include "core/comm/operation.h"

namespace lockstep {
namespace {

void AddLine(const std::string& name, const std::string& value, std::string& text) {
  absl::StrAppendFormat(&text, "    %-30s %14s\n", name, value);
}

void AddMemory(const std::vector<MemoryBooks>& memory, std::string& text) {
  text += "  memory of a rank, the most of each class\n";
  for (int i = 0; i < kMemoryClasses; ++i) {
    const auto memory_class = static_cast<MemoryClass>(i);
    int64_t most = 0;
    for (const MemoryBooks& books : memory) most = std::max(most, books.peak(memory_class));
    AddLine(Name(memory_class), FormatBytes(most), text);
  }
  int64_t most = 0;
  for (const MemoryBooks& books : memory) most = std::max(most, books.peak_total());
  AddLine("at one time, fullest rank", FormatBytes(most), text);
}

void AddTraffic(const std::vector<CostPrediction>& costs, CostPrediction::Often often,
                const std::string& title, std::string& text) {
  std::map<std::pair<std::string, std::string>, double> most;  // by operation and label
  for (const CostPrediction& cost : costs) {
    for (const CostPrediction::Traffic& traffic : cost.traffic) {
      if (traffic.often != often || traffic.wire_bytes == 0) continue;
      double& bytes = most[{Name(traffic.operation), traffic.label}];
      bytes = std::max(bytes, traffic.wire_bytes);
    }
  }
  if (most.empty()) return;
  absl::StrAppend(&text, "  ", title, "\n");
  for (const auto& [kind, bytes] : most) {
    AddLine(absl::StrCat(kind.first, " ", kind.second), FormatBytes(static_cast<int64_t>(bytes)),
            text);
  }
}

void AddBubble(const std::vector<CostPrediction>& costs, std::string& text) {
  double sum = 0, most = 0;
  for (const CostPrediction& cost : costs) {
    sum += cost.bubble_fraction;
    most = std::max(most, cost.bubble_fraction);
  }
  const auto percent = [](double fraction) { return absl::StrFormat("%.1f %%", 100 * fraction); };
  text += "  share of a step spent waiting for other stages\n";
  AddLine("all ranks together", percent(sum / static_cast<double>(costs.size())), text);
  AddLine("the one that waits most", percent(most), text);
}

void AddSkips(const std::vector<ForecastSkip>& skips, std::string& text) {
  if (skips.empty()) return;
  text += "  skips, each stashed once and popped once behind that; of one sample\n";
  for (const ForecastSkip& skip : skips) {
    AddLine(absl::StrCat(skip.name, ": ", skip.from, " to ", skip.to), FormatBytes(skip.bytes),
            text);
  }
}

void AddTime(const RunDescription& run, const TimePrediction& time, std::string& text) {
  if (!time.missing.empty()) {
    absl::StrAppend(&text, "  time of a step is not predicted: ", time.missing, "\n");
    return;
  }
  text += "  time of a step\n";
  AddLine("slowest rank", FormatDuration(time.step), text);
  AddLine("forward and backward", FormatDuration(time.compute), text);
  AddLine("optimizer", FormatDuration(time.optimizer), text);
  AddLine("communication, exposed", FormatDuration(time.exposed), text);
  AddLine("waiting for other stages", FormatDuration(time.bubble), text);
  AddLine("all steps", FormatDuration(time.step * static_cast<double>(run.settings.steps)), text);
  if (time.step <= 0) return;
  const double speed = static_cast<double>(run.units_per_step()) / time.step;
  AddLine(absl::StrCat(run.unit(), " in a second"), FormatCount(static_cast<int64_t>(speed)), text);
}

}  // namespace

std::string CostForecastText(const RunDescription& run, const CostForecast& forecast) {
  std::string text;
  AddMemory(forecast.memory, text);
  AddTraffic(forecast.costs, CostPrediction::Often::kEachStep, "sent by a rank in a step", text);
  AddTraffic(forecast.costs, CostPrediction::Often::kOnce, "sent by a rank in the first one", text);
  if (run.settings.mesh.pp > 1) AddBubble(forecast.costs, text);
  AddSkips(forecast.skips, text);
  AddTime(run, forecast.time, text);
  return text;
}

}  // namespace lockstep
