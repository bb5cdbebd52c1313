#pragma once

#include "core/run/strategy.h"

namespace lockstep {

// Fully sharded data parallel (Rajbhandari et al., "ZeRO", SC 2020, stage 3; Zhao et al., "PyTorch
// FSDP", VLDB 2023): every rank takes one shard of the batch and keeps one shard of each block's
// parameters, gradients and optimizer state. A block's parameters are gathered before its forward,
// given back after it, and gathered again for its backward; its gradients are summed and scattered
// after that. The next block is gathered while this one computes, in both directions.
//
// With [mesh] replicas, dp ranks hold a model's shards, and each such group is one replica of it
// (hybrid sharding): parameters are gathered within a replica only, gradients summed and scattered
// within it, and their shards then summed over the replicas. All replicas x dp ranks share the
// batch. The bits are those of `single` with as many shards: dp is a power of two there, so that a
// replica sums a node of the tree over shards.
//
// A parameter that another block uses too (a tied head) stays gathered from the first of these
// blocks to the last, in each direction.
//
// With tp ranks, each of these is one of tp ranks that compute layers together, as `tp` does, and
// shards its slices of the parameters. The bits are those of `tp`.
//
// Options, table [fsdp] (and [tp], see there):
//
// reshard_after_forward (true): what a rank keeps of a block between its forward and its backward:
// its shard (true), the whole (false, which saves a third of the traffic), or, for a number g of
// ranks that divides mesh.dp, one of g parts, so that the gather for backward stays within groups
// of g neighbouring ranks. It is the option of this name of PyTorch's fully_shard.
//
// accumulate ("whole"): how a rank keeps the gradients of a step. "whole": in full until its shard
// ends, and then summed over the ranks once. "shards": summed over the ranks behind each backward,
// so that a rank never holds more than a block's gradients in full. A shard's micro-batches are
// added up before its gradient is added to other shards', so "shards" takes cut.micro_batches = 1,
// where both are the same.
StrategyDefinition FsdpStrategy();

}  // namespace lockstep
