#include "core/nn/recompute.h"

#include <algorithm>
#include <utility>

#include "glog/logging.h"

namespace lockstep {

Variables Recomputed(Pass& pass, Variables inputs, const PassFunction& function) {
  if (!pass.tape.recording()) return function(pass, std::move(inputs));
  Pass second = pass;
  second.skips = {};
  second.replay = Pass::Replay::kRecomputing;
  const auto first = [&pass, &function](Variables values) {
    // Inside a run that is itself the second one, the first run leaves no traces either.
    const Pass::Replay outer = pass.replay;
    if (!pass.is_recomputing()) pass.replay = Pass::Replay::kCheckpointing;
    Variables outputs = function(pass, std::move(values));
    pass.replay = outer;
    return outputs;
  };
  const auto again = [second, function](Variables values) mutable {
    Variables outputs = function(second, std::move(values));
    CHECK(second.skips.empty()) << "a skip left a part of a block that is recomputed";
    return outputs;
  };
  return pass.tape.Recompute(std::move(inputs), first, again);
}

Variable Operate(Pass& pass, std::string_view kind, Variables inputs,
                 const OperationFunction& function) {
  const auto* recomputed = pass.recomputed_operations;
  if (recomputed == nullptr ||
      std::find(recomputed->begin(), recomputed->end(), kind) == recomputed->end()) {
    return function(pass, inputs);
  }
  return Recomputed(pass, std::move(inputs), [function](Pass& inner, const Variables& values) {
    return Variables{function(inner, values)};
  })[0];
}

}  // namespace lockstep
