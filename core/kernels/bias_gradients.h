#pragma once

namespace lockstep {

// Who chooses the order in which a GPU adds up a bias's gradient over rows.
enum class BiasGradients {
  // Our own kernel: no number of columns changes its order.
  kOwnOrder,
  // For 16-bit operands the library that computes the weight's gradient, beside it and for the
  // shape of the call. Only where no mesh divides the columns (cut.features = 1): elsewhere ranks
  // with some of them might have other bits than a rank with all.
  kLibrary,
};

}  // namespace lockstep
