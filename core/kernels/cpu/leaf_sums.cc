#include "core/kernels/cpu/leaf_sums.h"

#include "glog/logging.h"

namespace lockstep::cpu {
namespace {

void AddTo(const float* from, int64_t count, float* to) {
  for (int64_t i = 0; i < count; ++i) to[i] += from[i];
}

}  // namespace

LeafSums::LeafSums(int64_t leaves, int chunks, int64_t width)
    : leaves_(leaves), width_(width), chunks_(chunks) {}

float* LeafSums::Open(int chunk, int64_t leaf) {
  Chunk& p = chunks_[chunk];
  if (p.stack.empty()) p.stack.emplace_back(leaves_, leaf);
  if (p.nodes == p.values.size()) p.values.emplace_back(width_);
  float* sums = p.values[p.nodes].data();
  std::fill_n(sums, width_, 0.0f);
  return sums;
}

void LeafSums::Close(int chunk) {
  Chunk& p = chunks_[chunk];
  CHECK(!p.stack.empty()) << "no leaf is open";
  for (int64_t merged = p.stack.front().Push(); merged > 0; --merged, --p.nodes) {
    AddTo(p.values[p.nodes].data(), width_, p.values[p.nodes - 1].data());
  }
  ++p.nodes;
}

const float* LeafSums::Finish() {
  std::vector<TreeNode> nodes;
  std::vector<float*> values;
  for (Chunk& chunk : chunks_) {
    if (chunk.stack.empty()) continue;
    const std::vector<TreeNode>& of_chunk = chunk.stack.front().nodes();
    for (size_t i = 0; i < of_chunk.size(); ++i) {
      nodes.push_back(of_chunk[i]);
      values.push_back(chunk.values[i].data());
    }
  }
  if (nodes.empty()) {
    zeros_.assign(width_, 0.0f);
    return zeros_.data();
  }
  for (const TreeAddition& addition : TreeAdditions(nodes, leaves_)) {
    AddTo(values[addition.right], width_, values[addition.left]);
  }
  return values.front();
}

void LeafSums::WriteTo(std::initializer_list<Tensor> shares, Write write) {
  if (SkipsLoops()) return;
  const float* sums = Finish();
  for (const Tensor& share : shares) {
    WriteSums(sums, write, share);
    sums += width_ / static_cast<int64_t>(shares.size());
  }
}

void AddRows(const float* x, int64_t stride, int64_t rows, int64_t columns, float* sums) {
  for (int64_t r = 0; r < rows; ++r) AddTo(x + r * stride, columns, sums);
}

}  // namespace lockstep::cpu
