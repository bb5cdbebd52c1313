#include "tools/curve/band_report.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/file.h"
#include "core/base/status.h"
#include "core/report/row_checksums.h"
#include "tools/curve/curve_check.h"

namespace lockstep {
namespace {

constexpr size_t kRows = 8;  // of BandTable

std::vector<std::pair<double, double>> DistancesOf(const LossBand& band,
                                                   const std::vector<LossPoint>& curve) {
  constexpr double kLeast = 1e-3;  // what equals the mean shows at the bottom of a logarithmic axis
  std::vector<std::pair<double, double>> points;
  auto step = band.steps.begin();
  for (const LossPoint& point : curve) {
    while (step != band.steps.end() && step->step < point.step) ++step;
    if (step == band.steps.end()) break;
    if (step->step != point.step) continue;
    points.emplace_back(static_cast<double>(point.step),
                        std::max(kLeast, std::abs(point.loss - step->mean) / step->spread));
  }
  return points;
}

}  // namespace

absl::StatusOr<NamedCurve> ReadNamedCurve(const std::string& path) {
  const std::string file = IsDirectory(path) ? path + "/losses.csv" : path;
  LS_RETURN_IF_ERROR(RowChecksums::CheckBeside(file));
  LS_ASSIGN_OR_RETURN(std::vector<LossPoint> losses, ReadLossCurve(file));
  return NamedCurve{.name = path, .losses = std::move(losses)};
}

Table BandTable(const LossBand& band) {
  Table table = {.columns = {{"step"}, {"lowest"}, {"highest"}, {"width, relative"}}};
  for (size_t row = 0; row < kRows; ++row) {
    const size_t at = row * (band.steps.size() - 1) / (kRows - 1);
    if (row > 0 && at == (row - 1) * (band.steps.size() - 1) / (kRows - 1)) continue;
    const BandStep& step = band.steps[at];
    table.Add({absl::StrCat(step.step), absl::StrFormat("%.9g", step.lowest),
               absl::StrFormat("%.9g", step.highest),
               absl::StrFormat("%.1e", (step.highest - step.lowest) / std::abs(step.mean))});
  }
  return table;
}

absl::StatusOr<Section> BandSection(const LossBand& band, const std::vector<NamedCurve>& curves,
                                    const std::string& id) {
  using Align = Table::Align;
  Section section = {.title = absl::StrCat("In the band of ", band.workload)};
  Table table = {.columns = {{"losses", Align::kLeft}, {"", Align::kLeft}, {"steps compared"}}};
  LineChart chart = {.x = {.title = "step", .whole = true},
                     .y = {.title = "spreads from the mean", .logarithmic = true}};
  LineChart::Line limit = {.name = "limit of the band", .style = LineChart::Style::kWide};
  for (const BandStep& step : band.steps) {
    limit.points.emplace_back(static_cast<double>(step.step),
                              (step.highest - step.mean) / step.spread);
  }
  chart.lines.push_back(std::move(limit));
  for (const NamedCurve& curve : curves) {
    const absl::StatusOr<BandPlacement> placement = PlaceInBand(curve.losses, band);
    if (!placement.ok()) {
      return InvalidArgument(curve.name, ": ", placement.status().message());
    }
    table.Add({curve.name, placement->ToString(band), absl::StrCat(placement->compared)});
    chart.lines.push_back({.name = curve.name,
                           .colour = static_cast<int>(chart.lines.size()),
                           .points = DistancesOf(band, curve.losses)});
  }
  section.items.push_back(std::move(table));
  section.items.push_back(Paragraph{
      absl::StrFormat("The band is made of %d runs that cut, order or round the same sums in other "
                      "ways; a further one leaves it with a probability of %g at most.",
                      band.runs, band.rate),
      Paragraph::Tone::kNote});
  section.items.push_back(Chart{id, "Distance from the band's mean", std::move(chart)});
  return section;
}

}  // namespace lockstep
