#include "models/transformer/gpt2_file.h"

#include <cmath>

#include "absl/strings/str_cat.h"

namespace lockstep {

float Gpt2Value(const std::string& parameter, int64_t row, int64_t column) {
  double phase = 0;
  for (const char c : parameter) phase = 1.7 * phase + c;
  const double wave = std::sin(phase + 1.3 * static_cast<double>(row) +
                               0.37 * static_cast<double>(column * column));
  const bool is_scale = parameter.ends_with("norm.weight");
  return static_cast<float>(is_scale ? 1 + 0.1 * wave : 0.2 * wave);
}

SafetensorsByHand Gpt2File(const TransformerOptions& options, const std::string& prefix,
                           int64_t spare_positions) {
  SafetensorsByHand file;
  const int64_t width = options.width;
  const auto table = [&](const std::string& theirs, const std::string& ours, int64_t rows) {
    file.Add(prefix + theirs, rows, width,
             [ours](int64_t row, int64_t column) { return Gpt2Value(ours, row, column); });
  };
  const auto vector = [&](const std::string& theirs, const std::string& ours, int64_t elements) {
    file.AddVector(prefix + theirs, elements,
                   [ours](int64_t, int64_t i) { return Gpt2Value(ours, 0, i); });
  };
  const auto norm = [&](const std::string& theirs, const std::string& ours) {
    vector(theirs + ".weight", ours + ".weight", width);
    vector(theirs + ".bias", ours + ".bias", width);
  };
  // A Conv1D: inputs by outputs.
  const auto linear = [&](const std::string& theirs, const std::string& ours, int64_t in,
                          int64_t out) {
    file.Add(prefix + theirs + ".weight", in, out, [ours](int64_t row, int64_t column) {
      return Gpt2Value(ours + ".weight", column, row);
    });
    vector(theirs + ".bias", ours + ".bias", out);
  };
  table("wte.weight", "embedding.token.weight", options.vocabulary);
  table("wpe.weight", "embedding.position.weight", options.context + spare_positions);
  for (int64_t i = 0; i < options.layers; ++i) {
    const std::string theirs = absl::StrCat("h.", i, "."), ours = absl::StrCat("blocks.", i, ".");
    norm(theirs + "ln_1", ours + "attention.norm");
    linear(theirs + "attn.c_attn", ours + "attention.qkv", width, 3 * width);
    linear(theirs + "attn.c_proj", ours + "attention.projection", width, width);
    norm(theirs + "ln_2", ours + "network.norm");
    linear(theirs + "mlp.c_fc", ours + "network.up", width, 4 * width);
    linear(theirs + "mlp.c_proj", ours + "network.down", 4 * width, width);
  }
  norm("ln_f", "head.norm");
  return file;
}

}  // namespace lockstep
