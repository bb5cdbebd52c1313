#include "tools/draw/palette.h"

#include <cstdint>

#include "absl/strings/str_format.h"

namespace lockstep {
namespace {

// Neighbours differ in hue and in lightness.
constexpr uint32_t kPalette[kColours] = {0x2f6fde, 0xd97706, 0x16915a, 0xd6336c, 0x7c4dcf, 0x8a6242,
                                         0x0e94a8, 0x8f9a0c, 0xc0392b, 0x34495e, 0xb565c9, 0x1e5b3a,
                                         0xe0609a, 0x4455b0, 0x9a5b13, 0x5fa52a};

uint32_t ColourOf(int index) { return kPalette[index % kColours]; }

}  // namespace

std::string Colour(int index) { return absl::StrFormat("#%06x", ColourOf(index)); }

std::string Tint(int index, double white) {
  const auto channel = [&](int shift) {
    const auto full = static_cast<double>(ColourOf(index) >> shift & 255);
    return static_cast<int>(full + (255 - full) * white);
  };
  return absl::StrFormat("#%02x%02x%02x", channel(16), channel(8), channel(0));
}

std::string FilledWith(int index, double white) {
  return absl::StrFormat("fill=\"%s\" stroke=\"%s\"", Tint(index, white), Colour(index));
}

}  // namespace lockstep
