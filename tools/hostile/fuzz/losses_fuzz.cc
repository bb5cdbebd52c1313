#include <string>
#include <string_view>
#include <vector>

#include "absl/strings/str_cat.h"
#include "core/base/status.h"
#include "core/report/metrics.h"
#include "core/report/row_file.h"
#include "glog/logging.h"
#include "tools/hostile/fuzz/fuzz_targets.h"
#include "tools/hostile/fuzz/memory_file.h"

namespace lockstep {
namespace {

std::string Rows(const std::vector<LossPoint>& curve) {
  std::string text;
  for (const LossPoint& point : curve) absl::StrAppend(&text, point.ToRow(), "\n");
  return text;
}

}  // namespace

absl::Status FuzzLosses(std::string_view input) {
  const MemoryFile file(input);
  const auto curve = ReadLossCurve(file.path());
  if (curve.ok()) {
    const std::string rows = Rows(*curve);
    const MemoryFile written(absl::StrCat(kLossesCsv.header, "\n", rows));
    const auto again = ReadLossCurve(written.path());
    CHECK(again.ok()) << again.status();
    CHECK_EQ(Rows(*again), rows);
  }
  const auto first_step = static_cast<int64_t>(curve.ok() ? curve->size() : 2);
  const absl::Status resumed =
      RowFile::Check(file.path(), kLossesCsv, first_step, EarlierRows::kEveryStep);
  return curve.ok() ? resumed : curve.status();
}

}  // namespace lockstep
