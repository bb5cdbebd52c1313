#include "tools/certify/run_bits.h"

#include <algorithm>
#include <cmath>  // std::nan
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/json.h"
#include "core/base/status.h"
#include "core/checkpoint/state_tensor.h"
#include "core/report/metrics.h"
#include "core/report/row_checksums.h"
#include "nlohmann/json.hpp"

namespace lockstep {
namespace {

// By step.
absl::StatusOr<std::map<int64_t, double>> ReadNorms(const std::string& path) {
  LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  std::map<int64_t, double> norms;
  for (const auto line : absl::StrSplit(text, '\n', absl::SkipEmpty())) {
    const auto row = ParseJson({line.data(), line.size()});
    if (!row.is_object() || !row.contains("step")) {
      return InvalidArgument(path, ": \"", line, "\" is no row of metrics");
    }
    const auto norm = row.find("gradient_norm");  // rows of validation have none
    if (norm == row.end()) continue;
    norms[row["step"].get<int64_t>()] = norm->is_number() ? norm->get<double>() : std::nan("");
  }
  return norms;
}

// With all digits, so that two numbers have the same text where they have the same value.
std::string Text(double number) { return absl::StrFormat("%.17g", number); }

std::string Hex(uint64_t hash) { return absl::StrFormat("%016x", hash); }

// One step of both.
std::optional<BitsDifference> Difference(const StepBits& actual, const StepBits& expected) {
  BitsDifference difference = {.step = expected.step};
  struct Hashes {
    std::string actual = "missing", expected = "missing";
  };
  std::map<std::string, Hashes> hashes;
  std::vector<std::string> all;  // tensors, in the order of `expected`
  for (const TensorHash& value : expected.tensors) {
    all.push_back(value.tensor);
    hashes[value.tensor].expected = Hex(value.hash);
  }
  for (const TensorHash& value : actual.tensors) {
    if (!hashes.contains(value.tensor)) all.push_back(value.tensor);
    hashes[value.tensor].actual = Hex(value.hash);
  }
  const auto compare = [&](const std::string& what, const std::string& one,
                           const std::string& other) {
    if (one == other) return false;
    if (difference.what.empty()) {
      difference.what = what;
      difference.actual = one;
      difference.expected = other;
    }
    return true;
  };
  compare("loss", Text(actual.loss), Text(expected.loss));
  compare("gradient norm", Text(actual.gradient_norm), Text(expected.gradient_norm));
  for (const std::string& tensor : all) {
    if (compare(tensor, hashes[tensor].actual, hashes[tensor].expected)) {
      difference.tensors.push_back(tensor);
    }
  }
  difference.all_tensors = static_cast<int64_t>(all.size());
  if (difference.what.empty()) return std::nullopt;
  return difference;
}

}  // namespace

absl::StatusOr<std::vector<StepBits>> ReadRunBits(const std::string& directory) {
  for (const char* file : {"/losses.csv", "/metrics.jsonl", "/hashes.csv"}) {
    LS_RETURN_IF_ERROR(RowChecksums::CheckBeside(directory + file));
  }
  LS_ASSIGN_OR_RETURN(const std::vector<LossPoint> losses,
                      ReadLossCurve(directory + "/losses.csv"));
  LS_ASSIGN_OR_RETURN(const auto norms, ReadNorms(directory + "/metrics.jsonl"));
  LS_ASSIGN_OR_RETURN(std::vector<StepHashes> hashes, ReadHashes(directory + "/hashes.csv"));
  std::vector<StepBits> run;
  for (size_t i = 0; i < losses.size(); ++i) {
    const int64_t step = losses[i].step;
    if (i >= hashes.size() || hashes[i].step != step || !norms.contains(step)) {
      return absl::FailedPreconditionError(absl::StrCat(
          directory, ": has the loss of step ", step,
          ", but not its gradient norm and hashes; run it whole, with --set hashes.every=1"));
    }
    run.push_back({.step = step,
                   .loss = losses[i].loss,
                   .gradient_norm = norms.at(step),
                   .tensors = std::move(hashes[i].tensors)});
  }
  return run;
}

std::string BitsDifference::ToString() const {
  if (what.empty()) return absl::StrCat("step ", step, ": only one of the runs has it");
  const bool is_tensor = !tensors.empty() && what == tensors[0];
  const std::string value =
      is_tensor ? absl::StrCat("loss and gradient norm are the same, but the hash of ", what)
                : absl::StrCat("the ", what);
  const std::string after =
      tensors.empty()
          ? absl::StrCat("after it all ", all_tensors, " tensors are the same")
          : absl::StrCat("after it ", tensors.size(), " of ", all_tensors, " tensors differ",
                         is_tensor ? "" : ", the first is " + tensors[0]);
  return absl::StrCat("step ", step, ": ", value, " is ", actual, ", not ", expected, "; ", after);
}

std::optional<BitsDifference> FirstDifference(const std::vector<StepBits>& actual,
                                              const std::vector<StepBits>& expected) {
  for (size_t i = 0; i < std::max(actual.size(), expected.size()); ++i) {
    const bool has_both = i < actual.size() && i < expected.size();
    if (!has_both || actual[i].step != expected[i].step) {
      return BitsDifference{.step = (i < expected.size() ? expected : actual)[i].step};
    }
    if (auto difference = Difference(actual[i], expected[i])) return difference;
  }
  return std::nullopt;
}

BitsDigest DigestOf(const std::vector<StepBits>& run) {
  uint64_t losses = 0xcbf29ce484222325;  // FNV-1a
  uint64_t weights = 0, optimizer = 0;
  for (const StepBits& step : run) {
    for (const char c : absl::StrCat(Text(step.loss), ",", Text(step.gradient_norm), "\n")) {
      losses = (losses ^ static_cast<uint8_t>(c)) * 0x100000001b3;
    }
  }
  if (!run.empty()) {
    for (const TensorHash& value : run.back().tensors) {
      (IsOptimizerState(value.tensor) ? optimizer : weights) += value.hash;
    }
  }
  return {.losses = Hex(losses), .weights = Hex(weights), .optimizer = Hex(optimizer)};
}

}  // namespace lockstep
