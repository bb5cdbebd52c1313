#pragma once

#include <string>
#include <vector>

namespace lockstep {

// An encoder.json in which every byte has its own value as id, and `others`, written as the file
// writes them, those from 256 on.
std::string TokensJson(const std::vector<std::string>& others);

}  // namespace lockstep
