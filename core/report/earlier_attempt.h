// What a run that goes on would otherwise overwrite of the attempt before it.

#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "core/report/row_file.h"

namespace lockstep {

// The folder of a run directory that holds what is left of earlier attempts.
inline constexpr char kEarlierFolder[] = "earlier";

// Keeps what a run in the directory `out` is about to overwrite when it goes on with `first_step`,
// as files of the folder earlier/<n>, where n is the first free number:
//
//   losses.csv, ...  the rows that RowFile::Open cuts, below their header
//   config.toml      where it is not `config`, the configuration that the run goes on with
//   summary.json     of a run that was complete, and now has more steps
//
// Makes no folder where there is nothing to keep, or where the newest folder has it all: the
// program was killed before it had cut the rows. The folder gets its number when it is whole. The
// caller must sync `out` before it overwrites anything (WriteFileAtomically does).
absl::Status KeepEarlierAttempt(const std::string& out, const std::string& config,
                                const std::vector<NamedRows>& rows, int64_t first_step);

}  // namespace lockstep
