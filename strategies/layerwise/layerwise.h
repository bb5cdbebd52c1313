#pragma once

#include "core/run/strategy.h"

namespace lockstep {

// Layer-wise model parallel: the model's blocks are divided over the ranks of the pp axis, in
// order, and a batch passes through them in turn, forward and back: one of these ranks works at a
// time, and each holds parameters, gradients and optimizer state of its own blocks only (Dean et
// al., "Large Scale Distributed Deep Networks", NIPS 2012). Micro-batches follow one another; a
// pipeline would overlap them.
//
// With dp ranks as well, each of them is one of pp ranks that hold the model together and take a
// shard of the batch; the gradients of a stage are summed over its dp ranks in buckets, as `ddp`
// does. The bits are those of `single` with as many shards.
//
// With tp ranks, each stage is one of tp ranks that compute its layers together, as `tp` does: a
// rank hands what it has on to the one of its place in the next stage. The bits are those of `tp`.
//
// Options, table [layerwise] (and [tp], see there):
//
// balance: how many blocks each rank gets, as [n1, n2, ...]; or what is evened out, so that the
// costliest rank has as little of it as it can (EvenBalance in strategies/stages): "cost", the
// default, multiply-adds of the forward pass; "time" of forward and backward or "size" in bytes,
// both measured on rank 0 before the run, which takes a second or two and holds the whole model.
//
// first_bucket_bytes (1 MiB), bucket_bytes (25 MiB): those of `ddp`.
StrategyDefinition LayerwiseStrategy();

}  // namespace lockstep
