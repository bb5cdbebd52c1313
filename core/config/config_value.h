// One value of a configuration, with the place that it came from.

#pragma once

#include <cstdint>
#include <functional>  // std::less
#include <map>
#include <string>
#include <variant>
#include <vector>

namespace lockstep {

// A small mirror of TOML's types, so that the TOML library stays inside config_toml.cc.
struct ConfigValue {
  using Table = std::map<std::string, ConfigValue, std::less<>>;
  using List = std::vector<ConfigValue>;

  std::variant<Table, List, std::string, double, int64_t, bool> data;

  // "file.toml:12" or "--set", as messages show it. Not part of the value.
  std::string origin;
  // Whether a preset has set the value, and nobody has replaced it. Not part of the value either.
  bool is_default = false;

  // The value as one of the types above; null if it is another one.
  template <typename T>
  const T* As() const {
    return std::get_if<T>(&data);
  }
  template <typename T>
  T* As() {
    return std::get_if<T>(&data);
  }
};

}  // namespace lockstep
