#pragma once

#include <string>

namespace lockstep {

// What a summary calls "pp=1,dp=2,tp=1", without the axes of size 1: "dp=2"; empty for one rank.
std::string ShortMesh(const std::string& mesh);

// The axes of a mesh along which there are several ranks: "dp x tp"; empty for one rank.
std::string MeshKind(const std::string& mesh);

}  // namespace lockstep
