#include "tools/draw/testing/markup_check.h"

#include "gtest/gtest.h"

namespace lockstep {
namespace {

TEST(MarkupFaultTest, FindsFaults) {
  EXPECT_EQ(MarkupFault("<a x=\"1\"><b/>text &lt;</a>\n"), "");
  for (const char* wrong : {"<a><b></a></b>", "<a>", "</a>", "<a x=1/>", "<a x=\"1\" x=\"2\"/>",
                            "<a>R&D</a>", "<a>1 < 2</a>", "<a id=\"i\"/><a id=\"i\"/>",
                            "<a x=\"url(#i)\"/>", "<a href=\"#i\"/>", "<a x=\"1/>"}) {
    EXPECT_NE(MarkupFault(wrong), "") << wrong;
  }
}

}  // namespace
}  // namespace lockstep
