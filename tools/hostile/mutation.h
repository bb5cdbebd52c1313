#pragma once

#include <cstdint>
#include <random>
#include <string>

namespace lockstep {

// What a try draws from: the same seed gives the same try on any machine.
using HostileRandom = std::mt19937_64;

// A whole number in [0, below).
inline uint64_t Draw(HostileRandom& random, uint64_t below) { return random() % below; }

// A value as somebody may write it: borders of types, no numbers, wrong types, paths, long texts.
std::string HostileValue(HostileRandom& random);

// `bytes` with one to four changes: bits, bytes, pieces that go, come twice or move, numbers that
// become others, an early end.
std::string Mutated(const std::string& bytes, HostileRandom& random);

}  // namespace lockstep
