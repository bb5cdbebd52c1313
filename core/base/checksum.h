#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

namespace lockstep {

// A checksum of elements of `element_bytes` (1, 2, 4 or 8) bytes each, the first of which has the
// index `first` in what it is a part of: the sum modulo 2^64 of a mixture of each element's bits
// and its index. So the checksums of parts add up to that of the whole, in any order. About 2 GB/s.
// No protection from somebody who means to deceive.
uint64_t ChecksumOf(int64_t element_bytes, int64_t first, std::span<const std::byte> elements);

// The checksum of a text, as of elements of one byte from index 0 on.
uint64_t ChecksumOf(std::string_view text);

}  // namespace lockstep
