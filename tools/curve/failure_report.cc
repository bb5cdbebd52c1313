#include "tools/curve/failure_report.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "tools/curve/curve_check.h"

namespace lockstep {
namespace {

constexpr char kNotThere[] = "-";

bool HasMoved(const HeldCurve& curve) { return absl::IsOutOfRange(curve.status); }

Table MovesTable(const std::vector<LossPoint>& golden, const std::vector<HeldCurve>& curves,
                 double tolerance) {
  constexpr auto kLeft = Table::Align::kLeft;
  Table table = {
      .title = absl::StrFormat("against the kept curve, relative tolerance %g", tolerance),
      .columns = {{"strategy", kLeft},
                  {"", kLeft},
                  {"first step outside"},
                  {"loss"},
                  {"expected"},
                  {"largest difference"}}};
  for (const HeldCurve& curve : curves) {
    if (!curve.status.ok() && !HasMoved(curve)) {
      const std::vector<std::string> lines = absl::StrSplit(curve.status.message(), '\n');
      table.Add({curve.strategy, absl::StrCat("did not run: ", lines[0])});
      continue;
    }
    const CurveComparison comparison = CompareCurves(curve.losses, golden, tolerance);
    // A curve that ends early has moved without leaving the tolerance where it is.
    const CurveDeviation* first =
        HasMoved(curve) && comparison.first_outside ? &*comparison.first_outside : nullptr;
    table.Add({curve.strategy, HasMoved(curve) ? "moved" : "did not move",
               first ? absl::StrCat(first->step) : kNotThere,
               first ? absl::StrFormat("%.9g", first->actual) : kNotThere,
               first ? absl::StrFormat("%.9g", first->expected) : kNotThere,
               comparison.largest ? absl::StrFormat("%.1e", comparison.largest->relative) : "0"});
  }
  return table;
}

// What it says that some moved and others did not.
std::string Conclusion(const std::vector<HeldCurve>& curves) {
  std::vector<std::string> moved, stayed;
  for (const HeldCurve& curve : curves) {
    if (HasMoved(curve)) moved.push_back(curve.strategy);
    if (curve.status.ok()) stayed.push_back(curve.strategy);
  }
  if (moved.empty()) {
    return "No strategy left the tolerance of the kept curve: what has changed is less than that.";
  }
  if (stayed.empty()) {
    return "All moved: the workload's numbers have, in what strategies share (kernels, model, "
           "data, "
           "optimizer, configuration).";
  }
  if (moved.size() == 1)
    return absl::StrCat("Only ", moved[0], " moved: the change is in this strategy.");
  return absl::StrCat(absl::StrJoin(moved, ", "), " moved, ", absl::StrJoin(stayed, ", "),
                      " did not: look at what the first have in common.");
}

}  // namespace

Report FailureReport(const std::string& title, const std::vector<LossPoint>& golden,
                     const std::vector<HeldCurve>& curves, double tolerance) {
  size_t longest = 0;
  for (const HeldCurve& curve : curves) longest = std::max(longest, curve.losses.size());
  std::vector<LossPoint> kept = golden;
  kept.resize(std::min(kept.size(), longest));

  LineChart losses = {.x = {"step"}, .y = {"loss"}};
  LineChart differences = {.x = {"step"},
                           .y = {.title = "relative difference", .least_range = tolerance}};
  losses.lines.push_back({.name = "kept curve",
                          .colour = 0,
                          .points = PointsOf(kept),
                          .style = LineChart::Style::kWide});
  const auto moved = std::ranges::count_if(curves, HasMoved);
  for (size_t i = 0; i < curves.size(); ++i) {
    // Curves that did not move cover each other, and so do all where what they share has moved.
    const auto style =
        moved == 1 && HasMoved(curves[i]) ? LineChart::Style::kPlain : LineChart::Style::kInTurns;
    const auto add = [&](LineChart& chart, const std::vector<LossPoint>& points) {
      chart.lines.push_back({.name = curves[i].strategy,
                             .colour = static_cast<int>(i) + 1,
                             .points = PointsOf(points),
                             .style = style});
    };
    add(losses, curves[i].losses);
    add(differences, Differences(curves[i].losses, kept));
  }
  return {
      .title = title,
      .sections = {{.title = "Which strategies moved",
                    .items = {MovesTable(golden, curves, tolerance), Paragraph{Conclusion(curves)},
                              Chart{"loss", "Loss", std::move(losses)},
                              Chart{"difference", "Difference to the kept curve, relative",
                                    std::move(differences)}}}}};
}

}  // namespace lockstep
