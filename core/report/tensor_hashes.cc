#include "core/report/tensor_hashes.h"

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

constexpr char kHeader[] = "step,hash,tensor";

struct Row {
  int64_t step = 0;
  TensorHash value;
};

absl::StatusOr<Row> ParseRow(absl::string_view text) {
  const std::vector<std::string> cells = absl::StrSplit(text, absl::MaxSplits(',', 2));
  Row row;
  if (cells.size() < 3 || !absl::SimpleAtoi(cells[0], &row.step) ||
      !absl::SimpleHexAtoi(cells[1], &row.value.hash)) {
    return absl::InvalidArgumentError(
        absl::StrCat("expected step, hash and tensor, such as \"12,00ff00ff00ff00ff,head.weight\", "
                     "found \"",
                     text, "\""));
  }
  row.value.tensor = cells[2];
  return row;
}

absl::StatusOr<int64_t> StepOfRow(const std::string& text) {
  LS_ASSIGN_OR_RETURN(const Row row, ParseRow(text));
  return row.step;
}

}  // namespace

absl::StatusOr<HashesCsv> HashesCsv::Create(const std::string& path) {
  LS_ASSIGN_OR_RETURN(RowFile file, RowFile::Create(path, kHeader));
  return HashesCsv(std::move(file));
}

absl::StatusOr<HashesCsv> HashesCsv::Resume(const std::string& path, int64_t next_step) {
  LS_ASSIGN_OR_RETURN(RowFile file, RowFile::Resume(path, kHeader, next_step, StepOfRow));
  return HashesCsv(std::move(file));
}

absl::Status HashesCsv::Append(const StepHashes& hashes) {
  std::string rows;
  for (const TensorHash& value : hashes.tensors) {
    absl::StrAppendFormat(&rows, "%s%d,%016x,%s", rows.empty() ? "" : "\n", hashes.step, value.hash,
                          value.tensor);
  }
  return rows.empty() ? absl::OkStatus() : file_.Append(std::move(rows));
}

absl::StatusOr<std::vector<StepHashes>> ReadHashes(const std::string& path) {
  LS_ASSIGN_OR_RETURN(const std::string contents, ReadFile(path));
  std::vector<StepHashes> steps;
  int64_t line = 0;
  for (const absl::string_view text : absl::StrSplit(contents, '\n', absl::SkipEmpty())) {
    const std::string where = absl::StrCat(path, ":", ++line);
    if (line == 1 && text == kHeader) continue;
    if (line == 1) {
      return absl::InvalidArgumentError(
          absl::StrCat(where, ": expected the line \"", kHeader, "\", found \"", text, "\""));
    }
    absl::StatusOr<Row> row = ParseRow(text);
    if (!row.ok()) return Annotate(row.status(), where);
    if (steps.empty() || steps.back().step != row->step) {
      steps.push_back({.step = row->step, .tensors = {}});
    }
    steps.back().tensors.push_back(std::move(row->value));
  }
  return steps;
}

}  // namespace lockstep
