#pragma once

#include <map>
#include <string>
#include <vector>

namespace lockstep {

// Which keys of a configuration readers ask for: what a program can be told. Values are TOML.
class ConfigRecord {
 public:
  struct Key {
    std::string name;      // without its table
    std::string expected;  // "a whole number"; with choices: "one of"
    std::vector<std::string> choices = {};
    std::string by_default = "";  // empty: the key is required
    std::string value = "";       // in effect: the configuration's, else by_default
    std::string source = "";      // where the configuration's value comes from; empty: by default
  };

  // Notes a key of a table. A later reading replaces an earlier one.
  void Add(const std::string& table, Key key);

  // The keys of each table, in the order in which they were first asked for.
  const std::map<std::string, std::vector<Key>>& tables() const { return tables_; }

 private:
  std::map<std::string, std::vector<Key>> tables_;
};

}  // namespace lockstep
