// A demo in words and numbers.

#pragma once

#include <string>

#include "tools/collectives/demo.h"

namespace lockstep {

// "all_reduce (sum), 4 ranks", "gather, 3 ranks, root 1, uneven parts"
std::string Title(const DemoOptions& options);

// What each rank holds before and after, a line a rank, in PyTorch's notation: a tensor, or a list
// of them where the data has parts.
//
//   before
//   [0] data = tensor([0.])
//   [1] data = tensor([1.])
//   after
//   [0] data = [tensor([0.]), tensor([1.])]
//   [1] data = empty
std::string DataText(const Demo& demo);

// "n = 4, B = 4 bytes: all ranks together send 24 bytes", as the ledgers have it.
std::string SentText(const Demo& demo);

// All of it, for the terminal.
std::string TextReport(const Demo& demo);

}  // namespace lockstep
