#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "core/config/config.h"

namespace lockstep {

// A strategy and the keys that lay it out: "fsdp dp=2 tp=2 pipeline.schedule=zb_h1". An axis of the
// mesh may stand without its table. Other keys lie in the tables of an engine's mechanisms: they
// change no number of a run.
struct Formation {
  std::string strategy;
  std::vector<std::string> assignments = {};  // as --set takes them: "mesh.dp=2"

  // As Parse reads it.
  std::string ToString() const;

  // InvalidArgument for text without a strategy, and for words that are no such key with a value.
  static absl::StatusOr<Formation> Parse(const std::string& text);

  friend bool operator==(const Formation&, const Formation&) = default;
};

// Steps of a run, one after another, under one strategy on one mesh: "100: ddp dp=4".
struct Leg {
  int64_t steps = 0;
  Formation formation;

  static absl::StatusOr<Leg> Parse(const std::string& text);

  friend bool operator==(const Leg&, const Leg&) = default;
};

// The legs that a configuration names (train.legs), in their order; none where a run has one
// strategy. InvalidArgument names the leg that cannot be read.
absl::StatusOr<std::vector<Leg>> ReadLegs(const Config& config);

// Whether the keys of a top-level table may differ from leg to leg: those of the mesh and of the
// engine's mechanisms, which a formation names.
bool IsLaidOutByLegs(std::string_view table);

// What --legs says, "100: ddp dp=4; 50: single", as assignments for --set: train.legs, and their
// sum as train.steps.
absl::StatusOr<std::vector<std::string>> AssignmentsOfLegs(const std::string& text);

}  // namespace lockstep
