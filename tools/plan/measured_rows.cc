#include "tools/plan/measured_rows.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "core/base/file.h"
#include "core/base/status.h"

namespace lockstep {
namespace {

struct Column {
  const char* name;
  int64_t MeasuredRow::*member;  // null: the time
};
constexpr Column kColumns[] = {{"# GPUs", &MeasuredRow::gpus},
                               {"global batch", &MeasuredRow::batch},
                               {"micro batch", &MeasuredRow::micro_batch},
                               {"hidden size", &MeasuredRow::width},
                               {"attention heads", &MeasuredRow::heads},
                               {"# layers", &MeasuredRow::layers},
                               {"sequence length", &MeasuredRow::context},
                               {"tensor parallelism", &MeasuredRow::tp},
                               {"data parallelism", &MeasuredRow::dp},
                               {"pipeline parallelism", &MeasuredRow::pp},
                               {"iteration time (ms)", nullptr}};

std::vector<std::string> Cells(absl::string_view line) {
  std::vector<std::string> cells;
  for (const absl::string_view cell : absl::StrSplit(line, ',')) {
    cells.emplace_back(absl::StripAsciiWhitespace(cell));
  }
  return cells;
}

absl::Status Check(const MeasuredRow& row) {
  if (row.tp * row.dp * row.pp != row.gpus) {
    return InvalidArgument("a mesh of tp ", row.tp, " x dp ", row.dp, " x pp ", row.pp,
                           " is not of ", row.gpus, " GPUs");
  }
  if (row.batch % (row.dp * row.micro_batch) != 0) {
    return InvalidArgument("micro-batches of ", row.micro_batch, " on ", row.dp,
                           " ranks do not divide a batch of ", row.batch);
  }
  if (row.layers % row.pp != 0) {
    return InvalidArgument(row.pp, " stages do not divide ", row.layers, " layers");
  }
  return absl::OkStatus();
}

}  // namespace

std::string MeasuredRow::GroupName() const {
  return absl::StrCat(gpus, " GPUs, batch ", batch, ", ", layers, " x ", width, ", ", heads,
                      " heads, sequence ", context);
}

std::string MeasuredRow::MeshName() const {
  return absl::StrCat("tp ", tp, ", dp ", dp, ", pp ", pp, ", micro-batch ", micro_batch);
}

absl::StatusOr<std::vector<MeasuredRow>> ReadMeasuredRows(const std::string& path) {
  LS_ASSIGN_OR_RETURN(const std::string text, ReadFile(path));
  const std::vector<std::string> lines = absl::StrSplit(text, '\n');
  const std::vector<std::string> header = Cells(lines[0]);
  std::vector<size_t> places;
  std::vector<std::string> missing;
  for (const Column& column : kColumns) {
    const auto at = std::find(header.begin(), header.end(), column.name);
    if (at == header.end()) missing.push_back(absl::StrCat("'", column.name, "'"));
    places.push_back(at - header.begin());
  }
  if (!missing.empty()) {
    return InvalidArgument(path, ": its first line names no column ", absl::StrJoin(missing, ", "));
  }
  std::vector<MeasuredRow> rows;
  for (size_t line = 1; line < lines.size(); ++line) {
    if (absl::StripAsciiWhitespace(lines[line]).empty()) continue;
    const std::string place = absl::StrCat(path, ":", line + 1, ": ");
    const std::vector<std::string> cells = Cells(lines[line]);
    if (cells.size() < header.size()) {
      return InvalidArgument(place, "has ", cells.size(), " cells for ", header.size(), " columns");
    }
    MeasuredRow row;
    for (size_t i = 0; i < places.size(); ++i) {
      const std::string& cell = cells[places[i]];
      double milliseconds = 0;
      int64_t number = 0;
      const bool is_time = kColumns[i].member == nullptr;
      if (is_time ? !absl::SimpleAtod(cell, &milliseconds) || !(milliseconds > 0)
                  : !absl::SimpleAtoi(cell, &number) || number < 1) {
        return InvalidArgument(place, "'", cell, "' in column '", kColumns[i].name,
                               "' is no number above zero");
      }
      if (is_time) {
        row.seconds = milliseconds / 1e3;
      } else {
        row.*kColumns[i].member = number;
      }
    }
    LS_RETURN_IF_ERROR(Annotate(Check(row), absl::StrCat(path, ":", line + 1)));
    row.name = absl::StrCat("line ", line + 1, ": ", row.gpus, " GPUs, ", row.MeshName());
    rows.push_back(std::move(row));
  }
  if (rows.empty()) return InvalidArgument(path, ": no rows behind the first line");
  return rows;
}

CommandLine RunOf(const MeasuredRow& row, const std::vector<std::string>& settings,
                  int64_t stages_per_rank) {
  CommandLine command_line;
  std::vector<std::string>& to = command_line.assignments;
  command_line.configs = {"tools/plan/workloads/measured_gpt.toml"};
  to = {absl::StrCat("model.layers=", row.layers),
        absl::StrCat("model.heads=", row.heads),
        absl::StrCat("model.width=", row.width),
        absl::StrCat("data.context=", row.context),
        absl::StrCat("batch.size=", row.batch),
        absl::StrCat("cut.shards=", row.dp),
        absl::StrCat("cut.micro_batches=", row.batch / row.dp / row.micro_batch),
        absl::StrCat("mesh.tp=", row.tp),
        absl::StrCat("mesh.dp=", row.dp),
        absl::StrCat("mesh.pp=", row.pp)};
  const int64_t stages = row.pp * stages_per_rank;
  if (stages > 1) {
    std::vector<int64_t> blocks(stages, row.layers / stages);
    ++blocks.front();  // the embedding
    ++blocks.back();   // the logits
    to.push_back(absl::StrCat("pipeline.balance=[", absl::StrJoin(blocks, ", "), "]"));
  }
  if (stages_per_rank > 1) {
    to.push_back("pipeline.schedule=interleaved_1f1b");
    to.push_back(absl::StrCat("pipeline.stages_per_rank=", stages_per_rank));
  }
  to.insert(to.end(), settings.begin(), settings.end());
  return command_line;
}

}  // namespace lockstep
