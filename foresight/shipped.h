#pragma once

#include <string>

namespace lockstep {

// The path of a description that a user names: "a100_80g" is a file of `folder`, which the
// repository ships; a name with a slash or that ends in ".toml" is a file of the user's.
std::string ShippedPath(const std::string& folder, const std::string& name);

}  // namespace lockstep
