// What runs leave as trace.json, as its readers see it.

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "core/base/file.h"
#include "core/report/chrome_trace.h"
#include "core/report/testing/trace_check.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "models/models.h"
#include "nlohmann/json.hpp"
#include "strategies/cp/cp.h"
#include "strategies/ddp/ddp.h"
#include "strategies/fsdp/fsdp.h"
#include "strategies/fsdp_pipe/fsdp_pipe.h"
#include "strategies/gpipe/gpipe.h"
#include "strategies/layerwise/layerwise.h"
#include "strategies/single/single.h"
#include "strategies/testing/run_strategy.h"
#include "strategies/tp/tp.h"

namespace lockstep {
namespace {

using ::testing::Contains;
using ::testing::Each;
using ::testing::Gt;
using ::testing::IsEmpty;
using ::testing::SizeIs;
using Json = nlohmann::json;

// The trace.json of four steps. The data of the last one are loaded within: there are not as many
// micro-batches ahead.
std::string TraceOf(const StrategyDefinition& strategy, const Assignments& assignments) {
  const std::vector<RankReport> reports =
      RunStrategy(strategy, MakeModel, SmallGptConfig(),
                  With(assignments, {"train.steps=8", "trace.first_step=1", "trace.steps=4"}));
  std::vector<const TraceRecord*> traces;
  for (const RankReport& report : reports) traces.push_back(&report.trace);
  const std::string path = RunFolder() + "/trace.json";
  EXPECT_EQ(WriteChromeTrace(path, traces), absl::OkStatus());
  return ReadFile(path).value();
}

// By rank, the kinds of line that have something on them.
std::map<int, std::set<std::string>> LinesOf(const std::string& trace) {
  std::map<int, std::set<std::string>> lines;
  const Json document = Json::parse(trace);
  for (const Json& event : document.at("traceEvents")) {
    if (event.at("ph") == "X") lines[event.at("pid")].insert(event.at("cat"));
  }
  return lines;
}

// How many ends each arrow has.
std::vector<int> ArrowSizes(const std::string& trace) {
  std::map<int, int> ends;
  const Json document = Json::parse(trace);
  for (const Json& event : document.at("traceEvents")) {
    if (event.value("cat", "") == "flow") ++ends[event.at("id")];
  }
  std::vector<int> sizes;
  for (const auto& entry : ends) sizes.push_back(entry.second);
  return sizes;
}

TEST(TraceTest, OfOneRankHasNoArrows) {
  const std::string trace = TraceOf(SingleStrategy(), {});
  EXPECT_EQ(TraceFault(trace), "");
  EXPECT_THAT(LinesOf(trace)[0], ::testing::ElementsAre("compute", "data"));
  EXPECT_THAT(ArrowSizes(trace), IsEmpty());
}

// Each collective has an arrow that touches all members, each message one from here to there; also
// where a mesh has several groups of one name.
TEST(TraceTest, IsWholeUnderEachStrategyAndMesh) {
  struct Case {
    StrategyDefinition strategy;
    Assignments mesh;
  };
  const std::vector<Case> cases = {
      {DdpStrategy(), {"mesh.dp=3"}},
      {FsdpStrategy(), {"mesh.dp=2", "mesh.tp=2"}},
      {TpStrategy(), {"mesh.dp=2", "mesh.tp=2"}},
      {CpStrategy(), {"mesh.dp=2", "mesh.cp=2"}},
      {LayerwiseStrategy(), {"mesh.dp=2", "mesh.pp=2"}},
      {GPipeStrategy(), {"mesh.dp=2", "mesh.pp=2", "cut.micro_batches=3"}},
      {FsdpPipeStrategy(), {"mesh.dp=2", "mesh.pp=2", "cut.micro_batches=2"}},
  };
  for (const Case& run : cases) {
    SCOPED_TRACE(run.strategy.name);
    const std::string trace = TraceOf(run.strategy, run.mesh);
    EXPECT_EQ(TraceFault(trace), "");
    for (const auto& [rank, lines] : LinesOf(trace)) {
      EXPECT_THAT(lines, SizeIs(3)) << "rank " << rank << " has no compute, communication or data";
    }
    EXPECT_THAT(ArrowSizes(trace), Contains(Gt(1)));
    EXPECT_THAT(ArrowSizes(trace), Each(Gt(1)));
  }
}

}  // namespace
}  // namespace lockstep
