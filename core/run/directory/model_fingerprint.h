#pragma once

#include <string>

#include "core/config/config.h"

namespace lockstep {

// Identifies what a model computes: 16 hexadecimal digits, which checkpoints and probes keep. A run
// goes on from a checkpoint, and two runs are compared, only where they are equal.
//
// It is the fingerprint of the tables [model] and [lora] of `config`, a resolved configuration,
// without what training starts from and without how adapters are trained. The keys that existed
// when fingerprints were first kept always enter. A key that was added later enters only where its
// value is not its default, so adding a key changes the fingerprint of no model that leaves it
// alone.
//
// `record` has the keys that making the model from `config` has asked for, with their defaults.
std::string ModelFingerprint(const Config& config, const ConfigRecord& record);

}  // namespace lockstep
