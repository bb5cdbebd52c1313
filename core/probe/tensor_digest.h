// What a probe knows of a tensor without keeping its values.

#pragma once

#include <array>
#include <cstdint>

#include "core/checkpoint/tensor_slice.h"
#include "core/tensor/dtype.h"

namespace lockstep {

// The hash is a sum, modulo 2^64 in each word, over elements of mixtures of the element's index in
// the whole tensor and its bits. So the digests of disjoint shards add up to the digest of the
// whole, whatever the mesh. Two tensors with one hash are equal but for a chance of about 2^-64;
// nobody who wants to can be kept from making two such tensors.
struct TensorDigest {
  std::array<uint64_t, 2> hash = {0, 0};
  // Over finite elements, in double precision: not to the bit the same for other shards.
  double squares = 0;
  double largest = 0;      // magnitude
  int64_t not_finite = 0;  // elements that are infinite or NaN

  void Add(const TensorDigest& other);
  double norm() const;
};

// The digest of the elements of a slice, which lie from `bytes` on in their order.
TensorDigest DigestOf(DType dtype, const uint8_t* bytes, const TensorSlice& held);

}  // namespace lockstep
