#pragma once

#include <vector>

#include "core/comm/ledger.h"
#include "core/report/trace.h"

namespace lockstep {

// Draws the calls of a step into a rank's trace; those of one collective are joined across ranks.
void TraceCommunication(const std::vector<LedgerEntry>& entries, Trace& trace);

}  // namespace lockstep
