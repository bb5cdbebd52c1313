// What ranks do together, shown.
//
//   ./bazelw run //tools/collectives -- all_reduce --ranks 4
//   ./bazelw run //tools/collectives -- --all

#include <cstdio>
#include <string>
#include <vector>

#include "core/base/flags.h"
#include "core/base/status.h"
#include "tools/collectives/demo.h"
#include "tools/collectives/page.h"
#include "tools/collectives/picture.h"
#include "tools/collectives/request.h"
#include "tools/collectives/text.h"
#include "tools/experiment/paths.h"

namespace lockstep {
namespace {

absl::StatusOr<int> Run(const std::vector<std::string>& words) {
  LS_ASSIGN_OR_RETURN(const Request request, RequestFromFlags(words));
  std::vector<Demo> demos;
  for (const DemoOptions& options : request.demos) {
    LS_ASSIGN_OR_RETURN(demos.emplace_back(), RunDemo(options));
    if (request.all) {
      std::printf("%s: checked\n", Title(options).c_str());
    } else {
      std::fputs(TextReport(demos.back()).c_str(), stdout);
    }
  }
  LS_RETURN_IF_ERROR(WriteOutput(request.out, request.all ? Page(demos) : Picture(demos[0])));
  std::printf("%s   %s\n", request.all ? "page" : "picture", request.out.c_str());
  return 0;
}

}  // namespace
}  // namespace lockstep

int main(int argc, char** argv) {
  return lockstep::RunProgram(argc, argv, lockstep::CollectivesFlags(), lockstep::Run);
}
