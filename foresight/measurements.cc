#include "foresight/measurements.h"

#include <algorithm>
#include <cmath>
#include <iterator>
#include <optional>

#include "absl/strings/numbers.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/status.h"
#include "foresight/kernel_tensors.h"
#include "foresight/quantity.h"

namespace lockstep {
namespace {

// "<words> : <amount> in <seconds>"
struct Line {
  std::vector<std::string> words;
  double amount = 0, seconds = 0;
};

bool ParsePair(const std::string& text, const char* between, double* first, double* second) {
  const std::vector<std::string> parts = absl::StrSplit(text, between);
  return parts.size() == 2 && absl::SimpleAtod(parts[0], first) &&
         absl::SimpleAtod(parts[1], second) && *first > 0 && *second > 0 &&
         *first <= kLargestQuantity && *second <= kLargestQuantity;
}

// Whether it is a whole number from 1 to `most`.
bool IsCount(double number, double most) {
  return number >= 1 && number <= most && number == std::floor(number);
}

constexpr double kMostRanks = 1 << 20;  // and threads
// Rows, columns and bytes: whole numbers up to here are exact.
constexpr double kMostElements = 0x1p53;

absl::Status Wrong(const std::string& text, const char* example) {
  return InvalidArgument("'", text, "' is no measurement, such as '", example,
                         "'; run //tools/plan:calibrate again");
}

std::optional<Line> ParseLine(const std::string& text) {
  const std::vector<std::string> halves = absl::StrSplit(text, " : ");
  Line line;
  if (halves.size() != 2 || !ParsePair(halves[1], " in ", &line.amount, &line.seconds)) return {};
  line.words = absl::StrSplit(halves[0], ' ', absl::SkipEmpty());
  return line;
}

std::optional<DType> DTypeNamed(const std::string& name) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF64, DType::kI32,
                            DType::kI64, DType::kU8}) {
    if (name == Name(dtype)) return dtype;
  }
  return {};
}

}  // namespace

const char* Name(Transport transport) {
  return transport == Transport::kThreads ? "threads" : "mpi";
}

std::map<std::string, std::pair<double, double>> ExtentsOf(const KernelCall& call) {
  constexpr absl::string_view kByElement[] = {
      "Fill",         "Copy",     "Cast",         "Add",
      "Multiply",     "Scale",    "AddScaled",    "Relu",
      "ReluBackward", "Gelu",     "GeluBackward", "ApplyDropout",
      "SumOfSquares", "SumOfAll", "MaxMagnitude", "UpdateParameters"};
  const bool by_element =
      std::find(std::begin(kByElement), std::end(kByElement), call.kernel) != std::end(kByElement);
  std::map<std::string, std::pair<double, double>> extents;
  for (const NamedTensor& tensor : TensorsOf(call)) {
    if (tensor.elements == 0) continue;
    extents[std::string(tensor.name)] =
        by_element ? std::pair(tensor.elements, 1.0) : std::pair(tensor.rows, tensor.columns);
  }
  if (call.leaves > 1) extents["leaves"] = {static_cast<double>(call.leaves), 1};
  return extents;
}

std::string ToText(const MeasuredKernel& row) {
  std::string text =
      absl::StrFormat("%s %s %dx%d", row.kernel, Name(row.dtype), row.ranks, row.threads);
  for (const auto& [name, extent] : row.extents) {
    absl::StrAppendFormat(&text, " %s=%.0fx%.0f", name, extent.first, extent.second);
  }
  return text + absl::StrFormat(" : %.6g in %.4g", row.work, row.seconds);
}

std::string ToText(const MeasuredCall& row) {
  return absl::StrFormat("%s %s %d : %.0f in %.4g", Name(row.operation), Name(row.transport),
                         row.ranks, row.bytes, row.seconds);
}

std::string ToText(const MeasuredWait& row) {
  return absl::StrFormat("wait %s %d : %.4g in %.4g", Name(row.transport), row.ranks, row.apart,
                         row.seconds);
}

absl::StatusOr<MeasuredKernel> ParseMeasuredKernel(const std::string& text) {
  const auto wrong = [&] {
    return Wrong(text, "Linear f32 1x2 w=768x256 x=1024x256 y=1024x768 : 4.03e+08 in 0.00212");
  };
  const std::optional<Line> line = ParseLine(text);
  if (!line || line->words.size() < 3) return wrong();
  MeasuredKernel row = {.kernel = line->words[0], .work = line->amount, .seconds = line->seconds};
  const std::optional<DType> dtype = DTypeNamed(line->words[1]);
  double ranks = 0, threads = 0;
  if (!dtype || !ParsePair(line->words[2], "x", &ranks, &threads)) return wrong();
  if (!IsCount(ranks, kMostRanks) || !IsCount(threads, kMostRanks)) return wrong();
  row.dtype = *dtype;
  row.ranks = static_cast<int>(ranks);
  row.threads = static_cast<int>(threads);
  for (size_t i = 3; i < line->words.size(); ++i) {
    const std::vector<std::string> parts = absl::StrSplit(line->words[i], '=');
    std::pair<double, double> extent;
    if (parts.size() != 2 || !ParsePair(parts[1], "x", &extent.first, &extent.second) ||
        !IsCount(extent.first, kMostElements) || !IsCount(extent.second, kMostElements)) {
      return wrong();
    }
    row.extents[parts[0]] = extent;
  }
  return row;
}

absl::StatusOr<MeasuredWait> ParseMeasuredWait(const std::string& text) {
  const std::optional<Line> line = ParseLine(text);
  MeasuredWait row;
  const bool is_wait = line && line->words.size() == 3 && line->words[0] == "wait" &&
                       absl::SimpleAtoi(line->words[2], &row.ranks) && row.ranks >= 2;
  const bool is_mpi = is_wait && line->words[1] == Name(Transport::kMpi);
  if (!is_wait || (!is_mpi && line->words[1] != Name(Transport::kThreads))) {
    return Wrong(text, "wait threads 2 : 0.0025 in 3.1e-05");
  }
  row.transport = is_mpi ? Transport::kMpi : Transport::kThreads;
  row.apart = line->amount;
  row.seconds = line->seconds;
  return row;
}

absl::StatusOr<MeasuredCall> ParseMeasuredCall(const std::string& text) {
  const auto wrong = [&] { return Wrong(text, "all_reduce threads 2 : 65536 in 1.2e-05"); };
  const std::optional<Line> line = ParseLine(text);
  if (!line || line->words.size() != 3 || !IsCount(line->amount, kMostElements)) return wrong();
  MeasuredCall row = {.bytes = line->amount, .seconds = line->seconds};
  int operation = 0;
  while (operation < kOperations && line->words[0] != Name(static_cast<Operation>(operation))) {
    ++operation;
  }
  const bool is_mpi = line->words[1] == Name(Transport::kMpi);
  if (operation == kOperations || (!is_mpi && line->words[1] != Name(Transport::kThreads)) ||
      !absl::SimpleAtoi(line->words[2], &row.ranks) || row.ranks < 2) {
    return wrong();
  }
  row.operation = static_cast<Operation>(operation);
  row.transport = is_mpi ? Transport::kMpi : Transport::kThreads;
  return row;
}

}  // namespace lockstep
