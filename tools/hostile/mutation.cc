#include "tools/hostile/mutation.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace lockstep {
namespace {

constexpr const char* kValues[] = {
    "0",
    "1",
    "-1",
    "2",
    "3",
    "7",
    "64",
    "255",
    "256",
    "65535",
    "65536",
    "1048576",
    "2147483647",
    "2147483648",
    "4294967295",
    "4294967296",
    "4611686018427387904",
    "9223372036854775807",
    "-9223372036854775808",
    "9223372036854775808",
    "0.0",
    "-0.0",
    "0.5",
    "1e-320",
    "1e-300",
    "1e30",
    "1e38",
    "1e39",
    "1e300",
    "1e308",
    "nan",
    "inf",
    "-inf",
    "true",
    "false",
    "null",
    "\"\"",
    "\"a\"",
    "\"..\"",
    "\"../x\"",
    "\"/\"",
    "\"/dev/zero\"",
    "\"/dev/null\"",
    "\"*\"",
    "[]",
    "[[]]",
    "[0]",
    "[-1, 9223372036854775807]",
    "[\"*\"]",
    "{}",
    "{a = 1}",
    "1979-05-27",
    "0x7fffffffffffffff",
    "\"\\u0000\"",
    "\"\xc3\x28\"",
};

// Where a number stands in a text, and how long it is; 0 bytes where there is none behind `from`.
std::pair<size_t, size_t> NumberFrom(const std::string& bytes, size_t from) {
  const size_t begin = std::min(bytes.find_first_of("0123456789", from), bytes.size());
  const size_t end = std::min(bytes.find_first_not_of("0123456789.e+-", begin), bytes.size());
  return {begin, end - begin};
}

void MutateOnce(std::string& bytes, HostileRandom& random) {
  if (bytes.empty()) {
    bytes = HostileValue(random);
    return;
  }
  const size_t at = Draw(random, bytes.size());
  const size_t most = std::min<size_t>(bytes.size() - at, 1 + Draw(random, 40));
  switch (Draw(random, 9)) {
    case 0:
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << Draw(random, 8)));
      break;
    case 1:
      bytes[at] = static_cast<char>(random());
      break;
    case 2:
      bytes.erase(at, most);
      break;
    case 3:
      bytes.insert(at, bytes.substr(Draw(random, bytes.size()), most));
      break;
    case 4:
      bytes.insert(at, HostileValue(random));
      break;
    case 5:
      bytes.resize(at);
      break;
    case 6:
      for (size_t i = 0; i < most; ++i) {
        std::swap(bytes[at + i], bytes[Draw(random, bytes.size())]);
      }
      break;
    case 7:
      bytes.insert(at, std::string(1 + Draw(random, 5000), bytes[at]));
      break;
    default:
      if (const auto [begin, size] = NumberFrom(bytes, at); size > 0) {
        bytes.replace(begin, size, HostileValue(random));
      }
  }
}

}  // namespace

std::string HostileValue(HostileRandom& random) {
  const uint64_t choice = Draw(random, std::size(kValues) + 2);
  if (choice < std::size(kValues)) return kValues[choice];
  if (choice == std::size(kValues)) return std::to_string(static_cast<int64_t>(random()));
  return "\"" + std::string(1 + Draw(random, 3000), 'x') + "\"";
}

std::string Mutated(const std::string& bytes, HostileRandom& random) {
  std::string mutated = bytes;
  const uint64_t changes = 1 + Draw(random, 4);
  for (uint64_t i = 0; i < changes; ++i) MutateOnce(mutated, random);
  return mutated;
}

}  // namespace lockstep
