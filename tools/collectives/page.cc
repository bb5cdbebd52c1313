#include "tools/collectives/page.h"

#include "absl/strings/str_cat.h"
#include "tools/collectives/catalogue.h"
#include "tools/collectives/picture.h"
#include "tools/collectives/text.h"
#include "tools/draw/svg.h"

namespace lockstep {
namespace {

constexpr char kHead[] = R"(<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>Collectives</title>
<style>
:root { color-scheme: light dark;
        --ink: #1b2330; --soft: #5a6475; --ground: #eef1f5; --card: #fff; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ef; --soft: #a3acba; --ground: #14181f; --card: #1d232d; }
}
body { margin: 0 auto; max-width: 60rem; padding: 2rem 1rem;
       background: var(--ground); color: var(--ink);
       font: 16px/1.5 system-ui, 'Segoe UI', Helvetica, Arial, sans-serif; }
nav { display: flex; flex-wrap: wrap; gap: .4rem 1rem; margin: 1rem 0 2rem; }
a { color: inherit; }
section { background: var(--card); border-radius: 14px; padding: 1.2rem 1.4rem;
          margin-bottom: 1.6rem; }
h2 { margin: 0; }
p { margin: .3rem 0 1rem; }
svg { display: block; max-width: 100%; height: auto; }
pre { overflow-x: auto; font: 13px/1.45 ui-monospace, 'DejaVu Sans Mono', monospace; }
dl { display: grid; grid-template-columns: max-content 1fr; gap: .2rem 1rem; margin: 1rem 0 0; }
dt { color: var(--soft); }
dd { margin: 0; }
.soft { color: var(--soft); }
</style>
</head>
<body>
<h1>Collectives</h1>
<p>What ranks do together, each operation run through the communicator and checked against a serial
computation.</p>
<p class="soft">n ranks, 0 to n−1; rank i holds xᵢ; X is all of them one after the other; ⊕ combines
elements (sum, product, min, max, average), and y is the result. B is the payload in bytes, α the
time of a message whatever its size, β the time of a byte. Strategies that are not there yet are
named for what they are designed to call.</p>
)";

std::string Entry(const char* term, const std::string& text) {
  return absl::StrCat("<dt>", term, "</dt><dd>", Escaped(text), "</dd>\n");
}

std::string Section(const Demo& demo) {
  const Collective& collective = CollectiveOf(demo.options.operation);
  return absl::StrCat("<section id=\"", collective.name, "\">\n<h2>", collective.name, "</h2>\n<p>",
                      Escaped(collective.summary), "</p>\n", Picture(demo), "<pre>",
                      Escaped(DataText(demo)), "</pre>\n<dl>\n", Entry("time", collective.time),
                      Entry("sends", collective.sends), Entry("here", SentText(demo)),
                      Entry("strategies", collective.users), "</dl>\n</section>\n");
}

}  // namespace

std::string Page(const std::vector<Demo>& demos) {
  std::string page = kHead;
  page += "<nav>\n";
  for (const Demo& demo : demos) {
    const char* name = CollectiveOf(demo.options.operation).name;
    absl::StrAppend(&page, "<a href=\"#", name, "\">", name, "</a>\n");
  }
  page += "</nav>\n";
  for (const Demo& demo : demos) page += Section(demo);
  return page + "</body>\n</html>\n";
}

}  // namespace lockstep
