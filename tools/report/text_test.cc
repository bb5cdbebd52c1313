#include "tools/report/text.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

Table Example() {
  Table table = {
      .columns = {{"name", Table::Align::kLeft}, {"count"}, {"note", Table::Align::kLeft}}};
  table.Add({"a", "1000000", "x"});
  table.Add({"longer", "7"});
  return table;
}

TEST(TextOfTableTest, SetsColumns) {
  EXPECT_EQ(TextOf(Example()),
            "  name      count  note\n"
            "  a       1000000  x\n"
            "  longer        7\n");
}

TEST(TextOfTableTest, CountsLettersNotBytes) {
  Table table = {.columns = {{"drawing"}, {"n"}}};
  table.Add({"▁▂▃▄▅▆▇█", "1"});
  EXPECT_EQ(TextOf(table),
            "   drawing  n\n"
            "  ▁▂▃▄▅▆▇█  1\n");
}

TEST(TextOfReportTest, HasTablesAndParagraphsOfEachSection) {
  Table titled = Example();
  titled.title = "what was counted";
  Chart chart = {.id = "chart", .title = "not to be seen", .body = LineChart()};
  const Report report = {.title = "title",
                         .sections = {{.title = "one", .items = {Example(), titled, chart}},
                                      {.title = "charts alone", .items = {chart}},
                                      {.title = "two", .items = {Paragraph{"All is well."}}}}};
  const std::string table = TextOf(Example());
  EXPECT_EQ(TextOf(report),
            "\none\n" + table + "\n  what was counted\n" + table + "\ntwo\n  All is well.\n");
}

TEST(TextOfReportTest, ANoteBelongsToTheTableAboveIt) {
  const Report report = {
      .title = "",
      .sections = {{.title = "one",
                    .items = {Example(), Paragraph{"But x.", Paragraph::Tone::kNote}, Example()}}}};
  const std::string table = TextOf(Example());
  EXPECT_EQ(TextOf(report), "\none\n" + table + "  But x.\n\n" + table);
}

}  // namespace
}  // namespace lockstep
