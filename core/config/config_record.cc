#include "core/config/config_record.h"

#include <algorithm>
#include <utility>

namespace lockstep {

void ConfigRecord::Add(const std::string& table, Key key) {
  std::vector<Key>& keys = tables_[table];
  const auto earlier = std::ranges::find(keys, key.name, &Key::name);
  if (earlier == keys.end()) {
    keys.push_back(std::move(key));
  } else {
    *earlier = std::move(key);
  }
}

}  // namespace lockstep
