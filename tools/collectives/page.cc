#include "tools/collectives/page.h"

#include "absl/strings/str_cat.h"
#include "tools/collectives/catalogue.h"
#include "tools/collectives/picture.h"
#include "tools/collectives/text.h"
#include "tools/report/html.h"

namespace lockstep {
namespace {

constexpr char kWhat[] =
    "What ranks do together, each operation run through the communicator and checked against a "
    "serial computation.";
constexpr char kNotation[] =
    "n ranks, 0 to n−1; rank i holds xᵢ; X is all of them one after the other; ⊕ combines elements "
    "(sum, product, min, max, average), and y is the result. B is the payload in bytes, α the time "
    "of a message whatever its size, β the time of a byte.";

Section SectionOf(const Demo& demo) {
  const Collective& collective = CollectiveOf(demo.options.operation);
  return {.title = collective.name,
          .items = {Paragraph{collective.summary}, Drawing{Picture(demo)}, Listing{DataText(demo)},
                    Paragraph{absl::StrCat("Time: ", collective.time, "; sends: ", collective.sends,
                                           "; here: ", SentText(demo), ".")},
                    Paragraph{absl::StrCat("Strategies: ", collective.users)}}};
}

}  // namespace

std::string Page(const std::vector<Demo>& demos) {
  Report report = {.title = "Collectives"};
  report.sections.push_back(
      {.title = "Notation", .items = {Paragraph{kWhat}, Paragraph{kNotation}}});
  for (const Demo& demo : demos) report.sections.push_back(SectionOf(demo));
  return HtmlOf(report);
}

}  // namespace lockstep
