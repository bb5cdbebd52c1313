#include "tools/collectives/text.h"

#include <algorithm>  // std::max
#include <cmath>      // std::trunc
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "core/comm/signature.h"
#include "tools/collectives/catalogue.h"
#include "tools/report/report.h"
#include "tools/report/text.h"

namespace lockstep {
namespace {

// Up to six digits, and a point behind whole numbers.
std::string Number(float x) {
  return absl::StrFormat("%g%s", x, std::trunc(x) == x && std::abs(x) < 1e6f ? "." : "");
}

std::string TensorText(const std::vector<float>& elements) {
  return absl::StrCat(
      "tensor([",
      absl::StrJoin(elements, ", ",
                    [](std::string* out, float x) { absl::StrAppend(out, Number(x)); }),
      "])");
}

std::string PartsText(const Parts& parts) {
  if (parts.empty()) return "empty";
  if (parts.size() == 1) return TensorText(parts[0]);
  return absl::StrCat(
      "[",
      absl::StrJoin(parts, ", ",
                    [](std::string* out, const auto& part) { *out += TensorText(part); }),
      "]");
}

std::string Lines(const Demo& demo, const RankData& data) {
  std::string text;
  for (int rank = 0; rank < demo.options.ranks; ++rank) {
    if (demo.options.operation == Operation::kBarrier) {
      absl::StrAppend(&text, "[", rank, "] arrived = ", data[rank][0][0], "\n");
    } else {
      absl::StrAppend(&text, "[", rank, "] data = ", PartsText(data[rank]), "\n");
    }
  }
  return text;
}

// Each rank's calls as its ledger has them: payload and bytes sent by the closed formula.
std::string LedgerText(const Demo& demo) {
  Table table = {.columns = {{.title = "rank"},
                             {.title = "call", .align = Table::Align::kLeft},
                             {.title = "payload, bytes"},
                             {.title = "sends, bytes"}}};
  for (int rank = 0; rank < demo.options.ranks; ++rank) {
    for (const LedgerEntry& entry : demo.ledgers[rank]) {
      table.Add({absl::StrCat(rank), DescribeCall(entry.signature, entry.label),
                 absl::StrCat(entry.bytes), absl::StrFormat("%.6g", entry.wire_bytes)});
    }
  }
  return TextOf(table);
}

}  // namespace

std::string Title(const DemoOptions& options) {
  std::string title = CollectiveOf(options.operation).name;
  if (Reduces(options.operation)) absl::StrAppend(&title, " (", Name(options.reduce_op), ")");
  absl::StrAppend(&title, ", ", options.ranks, options.ranks == 1 ? " rank" : " ranks");
  if (HasRoot(options.operation)) absl::StrAppend(&title, ", root ", options.root);
  if (options.uneven) title += ", uneven parts";
  if (!options.groups.empty()) {
    const auto group = [](std::string* text, const std::vector<int>& members) {
      absl::StrAppend(text, "[", absl::StrJoin(members, " "), "]");
    };
    absl::StrAppend(&title, ", in groups ", absl::StrJoin(options.members(), " ", group));
  }
  return title;
}

std::string DataText(const Demo& demo) {
  return absl::StrCat("before\n", Lines(demo, demo.before), "after\n", Lines(demo, demo.after));
}

std::string SentText(const Demo& demo) {
  int64_t payload = 0;  // the B of the formulas; 0 for a barrier
  double sent = 0;
  for (const auto& ledger : demo.ledgers) {
    for (const LedgerEntry& entry : ledger) {
      payload = std::max(payload, entry.bytes);
      sent += entry.wire_bytes;
    }
  }
  return absl::StrFormat("n = %d, B = %d bytes: all ranks together send %.6g bytes",
                         demo.options.ranks, payload, sent);
}

std::string TextReport(const Demo& demo) {
  const Collective& collective = CollectiveOf(demo.options.operation);
  return absl::StrCat(Title(demo.options), "\n", collective.summary, "\n", collective.notation,
                      "\n\n", DataText(demo), "checked: a serial computation gives the same\n\n",
                      "ledger\n", LedgerText(demo), "\ntime   ", collective.time, "\nsends  ",
                      collective.sends, "; ", SentText(demo), "\n");
}

}  // namespace lockstep
