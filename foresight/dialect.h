#pragma once

#include <cstdint>
#include <functional>  // std::less
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/kernels/kernel_call.h"
#include "foresight/expression.h"

namespace lockstep {

// One kernel as a framework launches it on a device.
struct DeviceKernel {
  enum class Kind : uint8_t {
    kProduct,        // `batch` matrix products [m, k] x [k, n]
    kSingleProduct,  // those products in single precision, whatever the dtype of the operands
    kPass,           // reads and writes `bytes` of activations or parameters
    kMaps,           // reads and writes `bytes` of attention maps
  };
  Kind kind = Kind::kPass;
  DType dtype = DType::kF32;  // of the first operand
  double m = 0, n = 0, k = 0, batch = 1;
  double bytes = 0;
};

// What a recorded kernel call is in another framework.
struct KernelCost {
  std::vector<DeviceKernel> kernels;
  double host_seconds = 0;  // of the host, beside the launches
  double kept_bytes = 0;    // that stay until backward
  // Whether its time adds up with that of its neighbours, instead of hiding their launches.
  bool apart = false;
};

// Bytes per parameter that stay on a device.
struct ParameterBytes {
  double value = 0, gradient = 0, optimizer = 0;

  double total() const { return value + gradient + optimizer; }
};

// What the formulas of a dialect know beside the tensors of a call.
struct DialectContext {
  double tp = 1, sequence_ranks = 1, token_leaves = 1;
  double vocabulary = 0;             // words whose embeddings a rank has; 0: none
  std::set<std::string> recomputed;  // kernels that a backward pass runs again
};

// A framework, as far as time and memory depend on it, as data: what each of our kernels is there,
// what it keeps, and what a step does beside. foresight/dialects has the files:
//
//   name = "megatron_2021"
//   based_on = "..."           # another file beside it, whose rules and numbers this one replaces
//   parameter_bytes = {value = 2, gradient = 4, optimizer = 12}
//   overlaps = false           # and the other keys of the accessors below
//
//   [fitted]                   # numbers that fits change, and formulas may name
//   loss_bytes = 58.9
//
//   [kernels.LayerNorm]        # of core/kernels/kernels.h; "default": those that have no rule
//   does = ["pass(2 x)"]       # device kernels, in order; nothing: the kernel is free
//   keeps = "x"                # bytes that stay until backward
//
//   [kernels.Linear.0]         # several rules: the first whose condition holds
//   when = "w.rows == vocabulary"
//   let = { both = "x + y" }   # names for what follows
//   does = ["product(x.rows, w.rows, w.columns)", "pass(both)"]
//   host = "1e-6"              # seconds of the host, beside the launches
//   apart = true               # its time adds up with that of its neighbours (KernelCost::apart)
//
// Formulas (expression.h) know each tensor of the kernel by its parameter's name: x is its bytes,
// 0 if it is undefined; x.rows, x.columns (the last extent) and x.elements. They know `all`, the
// bytes of all tensors; tp; sequence_ranks, over which sequence parallelism divides what lies
// between split layers; token_leaves; vocabulary, words whose embeddings the rank has;
// recomputes_blocks and recomputes_attention, 1 if backward computes LayerNorm or attention again;
// and fitted numbers. Device kernels are product(m, n, k) and product(m, n, k, batch),
// single_product(...), pass(bytes) and maps(bytes): DeviceKernel::Kind.
class Dialect {
 public:
  // Reads a file, and those it is based on, which lie beside it. InvalidArgument names file, key
  // and what is wrong: an unknown kernel, key or name in a formula.
  static absl::StatusOr<Dialect> Read(const std::string& path);
  // foresight/dialects/lockstep.toml, which is part of the program.
  static absl::StatusOr<Dialect> Lockstep();

  // InvalidArgument for a kernel for which the dialect has no rule. `repeats` as in TensorsOf.
  absl::StatusOr<KernelCost> CostOf(const KernelCall& call, const DialectContext& context,
                                    int64_t repeats = 1) const;

  const std::string& name() const { return name_; }
  // The value of a fitted number, or 0 if the dialect has none of this name.
  double Fitted(const std::string& name) const;
  std::map<std::string, double>& fitted() { return fitted_; }
  const std::map<std::string, double>& fitted() const { return fitted_; }

  // All 0: memory is as recorded.
  const ParameterBytes& parameter_bytes() const { return parameter_bytes_; }
  // Whether collectives run beside kernels: if not, they begin where they are waited for.
  bool overlaps() const { return overlaps_; }
  // Whether the ranks along tp each send their part of what passes between stages.
  bool divides_messages() const { return divides_messages_; }
  // Whether calls of one kernel on the token leaves of a batch are one kernel.
  bool merges_token_leaves() const { return merges_token_leaves_; }
  // "key=value": what runs that were measured with the framework set besides (measured_rows.h).
  const std::vector<std::string>& row_settings() const { return row_settings_; }
  // InvalidArgument where the framework has no such option, "key=value". `options` of the file
  // lists assignments: plans may give those keys those values alone.
  absl::Status CheckOption(absl::string_view assignment) const;
  // Labels of calls that the framework does not make, or whose time does not count.
  const std::set<std::string>& free_calls() const { return free_calls_; }

 private:
  struct Launch {
    DeviceKernel::Kind kind;
    std::vector<Expression> arguments;
  };
  struct Rule {
    bool has_condition = false;
    Expression when;
    std::vector<std::pair<int, Expression>> lets;  // slot, value
    std::vector<Launch> launches;
    Expression host, keeps;
    bool apart = false;
    int slots = 0;
  };

  friend class DialectReader;

  std::string name_;
  ParameterBytes parameter_bytes_;
  bool overlaps_ = true, divides_messages_ = false, merges_token_leaves_ = false;
  std::vector<std::string> row_settings_, options_;
  std::set<std::string> free_calls_;
  std::map<std::string, double> fitted_;
  // The rules of each kernel, by its name without leaves; the first whose condition holds applies.
  // "" has the rule of all other kernels.
  std::map<std::string, std::vector<Rule>, std::less<>> rules_;
};

}  // namespace lockstep
