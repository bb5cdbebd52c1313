#include "tools/divergence/foreign.h"

#include <algorithm>
#include <optional>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/checkpoint/state_tensor.h"
#include "tools/divergence/divergence.h"
#include "tools/divergence/own_errors.h"
#include "tools/divergence/semantics.h"

namespace lockstep {
namespace {

// What must have the same bits in both programs: what training starts from.
bool IsStart(const ProbeKey& key) {
  return absl::StartsWith(key.place, "batch.") ||
         (key.kind == ProbeKind::kStateBefore && !IsOptimizerState(key.place));
}

// The module that computes a place: the place itself, or the one that has the parameter or
// estimate.
std::string ModuleOf(const std::string& place) {
  for (const char* ending : {".weight", ".bias", ".running_mean", ".running_var"}) {
    if (absl::EndsWith(place, ending)) return place.substr(0, place.rfind('.'));
  }
  return place;
}

std::string Describe(const OwnErrors& errors) {
  const OwnError& first = errors.errors.front();
  return absl::StrFormat(
      "B is wrong first at %s\n  module: %s\n  element %d of %d: B has %.9g, its own inputs give "
      "%.9g: %.3g units of their rounding (up to %g are rounding)\n  %d of %d recomputed tensors "
      "have an error of their own\n",
      first.tensor->key.ToString(), ModuleOf(first.tensor->key.place), first.element,
      first.tensor->elements, first.recorded, first.expected, first.units, kOwnErrorUnits,
      errors.errors.size(), errors.judged);
}

}  // namespace

bool IsForeign(const ProbedRun& run) { return !absl::StartsWith(run.header().program, "lockstep"); }

absl::StatusOr<ForeignComparison> CompareForeign(const ProbedRun& ours, const Config& config,
                                                 const ProbedRun& theirs) {
  if (!theirs.has_values()) {
    return InvalidArgument(theirs.folder,
                           ": holds hashes only, and another program's bits are its own; record "
                           "with values=True");
  }
  LS_ASSIGN_OR_RETURN(const ModelSemantics semantics, ReadModelSemantics(config));
  LS_ASSIGN_OR_RETURN(const std::optional<OptimizerSemantics> optimizer,
                      ReadOptimizerSemantics(config));
  LS_ASSIGN_OR_RETURN(const Divergence divergence, FindDivergence(ours, theirs));
  const auto& differences = divergence.differences;
  const auto start = std::find_if(differences.begin(), differences.end(),
                                  [](const Difference& each) { return IsStart(each.key()); });
  if (start != differences.end()) {
    return ForeignComparison{
        .agrees = false,
        .text = absl::StrCat("the runs train on other numbers: ", start->key().ToString(),
                             " differs; take the weights of A (//tools/language_model:export "
                             "--checkpoint=initial, or load_weights of torch_probe.py) and its "
                             "batches (//tools/batches)\n")};
  }
  LS_ASSIGN_OR_RETURN(const OwnErrors errors, JudgeOwnErrors(theirs, semantics, optimizer));
  if (errors.judged == 0) {
    return InvalidArgument(theirs.folder,
                           ": has no operation together with its inputs; probe more places");
  }
  if (!errors.errors.empty()) return ForeignComparison{.agrees = false, .text = Describe(errors)};
  return ForeignComparison{
      .text = absl::StrFormat("no report: %d tensors of B recomputed from its own inputs, off by "
                              "%.3g units of their rounding at most (up to %g are rounding)\n",
                              errors.judged, errors.most_units, kOwnErrorUnits)};
}

}  // namespace lockstep
