#include "tools/divergence/foreign.h"

#include <algorithm>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "core/base/status.h"
#include "core/checkpoint/state_tensor.h"
#include "core/config/config_reader.h"
#include "core/config/settings.h"
#include "core/nn/positions.h"
#include "tools/divergence/divergence.h"

namespace lockstep {
namespace {

// What must have the same bits in both programs: what training starts from.
bool IsStart(const ProbeKey& key) {
  return absl::StartsWith(key.place, "batch.") ||
         (key.kind == ProbeKind::kStateBefore && !IsOptimizerState(key.place));
}

// The module that computes a place: the place itself, or the one that has the parameter.
std::string ModuleOf(const std::string& place) {
  for (const char* ending : {".weight", ".bias"}) {
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

absl::StatusOr<DecoderSemantics> ReadDecoderSemantics(const Config& config) {
  DecoderSemantics semantics;
  ConfigReader data(config.Table("data"));
  data.Read("context", &semantics.context);
  ConfigReader model(config.Table("model"));
  std::string kind;
  model.Read("kind", &kind);
  model.Read("heads", &semantics.heads);
  semantics.key_heads = semantics.heads;
  double dropout = 0;
  model.Read("dropout", &dropout);
  if ((kind != "transformer" && kind != "llama") || dropout != 0 ||
      config.Table("model.experts").value != nullptr ||
      config.Table("model.rope_scaling").value != nullptr) {
    return absl::UnimplementedError(absl::StrCat(
        "model.kind is '", kind, "': operations are recomputed for GPT-2 (transformer) and Llama ",
        "without dropout, experts and rope_scaling; set these off for the comparison"));
  }
  if (kind == "transformer") return semantics;
  semantics.family = DecoderSemantics::Family::kLlama;
  model.Read("key_heads", &semantics.key_heads);
  model.Read("norm_epsilon", &semantics.norm_epsilon);
  RotaryOptions rotary;
  model.Read("rope_theta", &rotary.theta);
  int64_t width = 0;
  model.Read("width", &width);
  semantics.frequencies = RotaryFrequencies(width / semantics.heads, rotary);
  return semantics;
}

absl::StatusOr<std::optional<AdamWSemantics>> ReadAdamWSemantics(const Config& config) {
  LS_ASSIGN_OR_RETURN(const Settings settings, ReadSettings(config));
  const auto* rule = std::get_if<AdamW>(&settings.optimizer.rule);
  if (rule == nullptr) return std::nullopt;
  // The nearest float to 0.999 is 1e-8 off; relative to 1 - 0.999 that is a thousand times more.
  const auto decimal = [](float number) {
    double exact = number;
    (void)absl::SimpleAtod(absl::StrCat(number), &exact);
    return exact;
  };
  return AdamWSemantics{.beta1 = decimal(rule->beta1),
                        .beta2 = decimal(rule->beta2),
                        .epsilon = decimal(rule->epsilon),
                        .weight_decay = decimal(settings.optimizer.weight_decay),
                        .clip_norm = settings.clip_norm,
                        .learning_rate = [schedule = settings.schedule](int64_t step) {
                          return schedule.RateAt(step);
                        }};
}

absl::StatusOr<ForeignComparison> CompareForeign(const ProbedRun& ours, const Config& config,
                                                 const ProbedRun& theirs) {
  if (!theirs.has_values()) {
    return InvalidArgument(theirs.folder,
                           ": holds hashes only, and another program's bits are its own; record "
                           "with values=True");
  }
  LS_ASSIGN_OR_RETURN(const DecoderSemantics semantics, ReadDecoderSemantics(config));
  LS_ASSIGN_OR_RETURN(const std::optional<AdamWSemantics> optimizer, ReadAdamWSemantics(config));
  LS_ASSIGN_OR_RETURN(const Divergence divergence, FindDivergence(ours, theirs));
  const auto& differences = divergence.differences;
  const auto start = std::find_if(differences.begin(), differences.end(),
                                  [](const Difference& each) { return IsStart(each.key()); });
  if (start != differences.end()) {
    return ForeignComparison{
        .agrees = false,
        .text = absl::StrCat("the runs train on other numbers: ", start->key().ToString(),
                             " differs; export weights (//tools/language_model:export "
                             "--checkpoint=initial) and batches (//tools/batches) from A\n")};
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
