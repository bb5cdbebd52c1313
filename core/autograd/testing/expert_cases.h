#pragma once

#include <vector>

#include "core/autograd/testing/operation_cases.h"

namespace lockstep {

// The part of OperationCases that is about mixtures of experts.
std::vector<OperationCase> ExpertCases();

}  // namespace lockstep
