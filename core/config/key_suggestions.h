// What somebody meant who wrote a key or a choice that nobody knows.

#pragma once

#include <span>
#include <string>

namespace lockstep {

// Ends the message about the unknown key `key` of the table `table` (dotted; empty: the whole
// configuration), whose known keys are `known`, without their table:
//
//   "; did you mean schedule.learning_rate?"   another program's name, or the nearest of all keys
//   "; [optimizer] has kind, weight_decay"     nothing is near
//   ""                                         nothing is near, and the table has no keys
std::string SuggestKey(const std::string& table, const std::string& key,
                       std::span<const std::string> known);

// Ends the message about the key `key` of `table`, a table that nobody knows beside `tables`, the
// known ones: "; did you mean cut.micro_batches?" for the key "chunks" of "gpipe". The key of the
// table that was meant comes first. Empty where nothing is near, where only the table's name is
// wrong, and where that name is too long to be another program's.
std::string SuggestKeyOfUnknownTable(const std::string& table, const std::string& key,
                                     std::span<const std::string> tables);

// Ends the message about the choice `name` of the dotted key `key`: "did you mean \"adamw\"? ", or
// another program's name with what it takes besides; empty where nothing is near.
std::string SuggestChoice(const std::string& key, const std::string& name,
                          std::span<const std::string> choices);

}  // namespace lockstep
