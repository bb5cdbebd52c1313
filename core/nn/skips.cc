#include "core/nn/skips.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "core/base/status.h"
#include "core/nn/module.h"
#include "glog/logging.h"

namespace lockstep {
namespace {

absl::Status Fault(const SkipName& name, const char* what) {
  return absl::FailedPreconditionError(absl::StrCat("skip '", name.ToString(), "' ", what));
}

}  // namespace

std::string SkipName::ToString() const {
  return space.empty() ? name : absl::StrCat(space, "/", name);
}

absl::Status VerifySkips(const std::vector<std::unique_ptr<Block>>& blocks) {
  std::vector<std::string> faults;
  const auto add = [&faults](const Block& block, const SkipName& name, const char* what) {
    faults.push_back(absl::StrCat(block.name(), ": skip '", name.ToString(), "' ", what));
  };
  struct Ends {
    const Block* stashed_by = nullptr;
    const Block* popped_by = nullptr;
  };
  std::map<SkipName, Ends> skips;
  for (const auto& block : blocks) {
    for (const SkipName& name : block->pops()) {
      Ends& ends = skips[name];
      const bool is_own = block->Stashes(name);
      if (is_own) add(*block, name, "is stashed and popped by the same block");
      if (!is_own && ends.stashed_by == nullptr) {
        add(*block, name, "is popped, but no earlier block stashes it");
      }
      if (ends.popped_by != nullptr) add(*block, name, "is popped a second time");
      ends.popped_by = block.get();
    }
    for (const SkipName& name : block->stashes()) {
      Ends& ends = skips[name];
      if (ends.stashed_by != nullptr) add(*block, name, "is stashed a second time");
      ends.stashed_by = block.get();
    }
  }
  for (const auto& [name, ends] : skips) {
    if (ends.popped_by == nullptr) add(*ends.stashed_by, name, "is stashed, but never popped");
  }
  if (faults.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(faults, "\n"));
}

std::vector<SkipPath> SkipPaths(const std::vector<std::unique_ptr<Block>>& blocks) {
  std::vector<SkipPath> paths;
  std::map<SkipName, SkipPath> stashed;
  for (size_t i = 0; i < blocks.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    for (const SkipName& name : blocks[i]->pops()) {
      const auto found = stashed.find(name);
      CHECK(found != stashed.end()) << name.ToString();
      found->second.to = at;
      paths.push_back(found->second);
    }
    for (size_t j = 0; j < blocks[i]->stashes().size(); ++j) {
      const SkipName& name = blocks[i]->stashes()[j];
      stashed[name] = {.name = name, .from = at, .elements = blocks[i]->stash_elements()[j]};
    }
  }
  return paths;
}

void Skips::Put(const SkipName& name, Variable variable) {
  if (!waiting_.emplace(name, std::move(variable)).second) {
    throw StatusException(Fault(name, "is stashed while another one waits to be popped"));
  }
}

Variable Skips::Take(const SkipName& name) {
  auto node = waiting_.extract(name);
  if (node.empty()) throw StatusException(Fault(name, "is popped, but nothing was stashed"));
  return std::move(node.mapped());
}

}  // namespace lockstep
