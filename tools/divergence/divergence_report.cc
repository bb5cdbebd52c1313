#include "tools/divergence/divergence_report.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace lockstep {
namespace {

constexpr size_t kFollowing = 12;  // places in the table of what flows from the first difference

std::string FolderOf(const ProbedRun& run) {
  return run.folder.substr(0, run.folder.size() - std::string(kProbeFolder).size() - 1);
}

std::string Indices(const std::vector<int64_t>& index) {
  return absl::StrCat("[", absl::StrJoin(index, ", "), "]");
}

Table FirstPlace(const Difference& first, const Divergence& divergence,
                 const Judgement& judgement) {
  using Align = Table::Align;
  Table table = {.columns = {{"", Align::kLeft}, {"", Align::kLeft}}};
  table.Add({"first difference", first.key().ToString()});
  table.Add({"last agreement",
             divergence.last_agreed ? divergence.last_agreed->ToString() : "none before it"});
  table.Add({"tensor", absl::StrCat(Name(first.a->dtype), Indices(first.a->shape))});
  table.Add({"norm", absl::StrFormat("%.9g in A, %.9g in B", first.a->digest.norm(),
                                     first.b->digest.norm())});
  table.Add({"largest magnitude", absl::StrFormat("%.9g in A, %.9g in B", first.a->digest.largest,
                                                  first.b->digest.largest)});
  if (first.a->digest.not_finite + first.b->digest.not_finite > 0) {
    table.Add({"infinite or NaN", absl::StrCat(first.a->digest.not_finite, " in A, ",
                                               first.b->digest.not_finite, " in B")});
  }
  if (judgement.first) {
    const ElementDifference& element = *judgement.first;
    table.Add(
        {"first element",
         absl::StrFormat("%s: %.9g in A, %.9g in B%s", Indices(element.index), element.a, element.b,
                         element.ulps < 0 ? "" : absl::StrCat(", ", element.ulps, " ULP apart"))});
    std::vector<std::string> extent;
    for (const auto& [least, most] : judgement.extent) {
      extent.push_back(absl::StrCat(least, "..", most));
    }
    table.Add({"elements that differ",
               absl::StrCat(judgement.differing, ", at most ", judgement.most_ulps,
                            " ULP, within [", absl::StrJoin(extent, ", "), "]")});
  }
  table.Add({"looks like", judgement.text});
  return table;
}

Table Following(const Divergence& divergence) {
  using Align = Table::Align;
  Table table = {.title = "What flows from it",
                 .columns = {{"place", Align::kLeft}, {"norm in A"}, {"norm in B"}}};
  const size_t end = std::min(divergence.differences.size(), kFollowing + 1);
  for (size_t i = 1; i < end; ++i) {
    const Difference& each = divergence.differences[i];
    table.Add({each.key().ToString(), absl::StrFormat("%.6g", each.a->digest.norm()),
               absl::StrFormat("%.6g", each.b->digest.norm())});
  }
  if (end < divergence.differences.size()) {
    table.Add({absl::StrCat("and ", divergence.differences.size() - end, " more")});
  }
  return table;
}

// By block, a line for each step: the largest relative difference of norms, which hashes tell too.
// Values that differ while their norms agree to the last digit show as the smallest number.
Chart Growth(const Divergence& divergence) {
  constexpr double kLeast = 1e-16;
  std::map<int64_t, std::map<int64_t, double>> steps;
  for (const Difference& each : divergence.differences) {
    const double a = each.a->digest.norm(), b = each.b->digest.norm();
    const double apart = std::abs(a - b) / std::max({std::abs(a), std::abs(b), kLeast});
    double& most = steps[each.key().step][each.block];
    most = std::max({most, apart, kLeast});
  }
  LineChart chart = {.x = {.title = "block (-1: in none)", .whole = true},
                     .y = {.title = "relative difference of norms", .logarithmic = true}};
  for (const auto& [step, blocks] : steps) {
    LineChart::Line line = {.name = absl::StrCat("step ", step + 1),
                            .colour = static_cast<int>(chart.lines.size())};
    for (const auto& [block, apart] : blocks) {
      line.points.emplace_back(static_cast<double>(block), apart);
    }
    chart.lines.push_back(std::move(line));
  }
  return {.id = "growth", .title = "How the difference grows", .body = std::move(chart)};
}

// What records the values of a place. Inputs, losses and numbers are recorded with any places.
std::string CommandFor(const Difference& first) {
  const std::string command =
      absl::StrCat("To see values, run both again with --set probe.values=true --set ",
                   "probe.first_step=", first.key().step, " --set probe.steps=1");
  const std::string parameter = ParameterOf(first.key().place);
  if (!first.is_in_block) return command;
  constexpr absl::string_view kCore = ".core";  // what attention computes belongs to its module
  return absl::StrCat(command, " --set 'probe.places=[\"", absl::StripSuffix(parameter, kCore),
                      "\"]'");
}

}  // namespace

Report DivergenceReport(const ProbedRun& a, const ProbedRun& b, const Divergence& divergence,
                        const Judgement& judgement) {
  Report report = {.title = "Where two runs part"};
  Section summary = {.title = "A and B"};
  summary.items.push_back(Paragraph{absl::StrCat("A: ", FolderOf(a), " (", a.Programs(), ")")});
  summary.items.push_back(Paragraph{absl::StrCat("B: ", FolderOf(b), " (", b.Programs(), ")")});
  summary.items.push_back(
      Paragraph{absl::StrCat(divergence.compared, " places compared; ", divergence.only_a,
                             " are in A only, ", divergence.only_b, " in B only"),
                Paragraph::Tone::kNote});
  if (divergence.differences.empty()) {
    summary.items.push_back(Paragraph{"The runs agree to the bit at all of these places."});
    report.sections.push_back(std::move(summary));
    return report;
  }
  const Difference& first = divergence.differences.front();
  summary.items.push_back(FirstPlace(first, divergence, judgement));
  if (!judgement.first) {
    summary.items.push_back(Paragraph{CommandFor(first), Paragraph::Tone::kNote});
  }
  report.sections.push_back(std::move(summary));
  Section following = {.title = "From there on"};
  following.items.push_back(Paragraph{
      absl::StrCat(divergence.differences.size(), " of ", divergence.compared, " places differ.")});
  if (divergence.differences.size() > 1) following.items.push_back(Following(divergence));
  following.items.push_back(Growth(divergence));
  report.sections.push_back(std::move(following));
  return report;
}

}  // namespace lockstep
