#!/usr/bin/env python3
"""PyTorch's tensor parallel over gloo on a GPT: the peer of the table `tp` of //tools/bench:training.

  torchrun --nproc_per_node 2 torch_tensor_parallel.py --layers 6 --heads 6 --width 384 --context 256 \
      --vocab 65 --batch 16 --threads 1 [--sequence_parallel]

Blocks are split as torch.distributed.tensor.parallel has it: queries, keys, values and the MLP's first layer by column,
the projections behind them by row. Embedding and head, small at this vocabulary, are whole on every rank. Prints one line
of JSON with "model_gflops_per_s": 6 multiply-adds of forward, attention counted in full, by the median step.
"""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

WARM_UP_STEPS = 2


class Attention(nn.Module):
    def __init__(self, width, head_width):
        super().__init__()
        self.head_width = head_width
        self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.projection = nn.Linear(width, width)

    def forward(self, x):
        batch, time = x.shape[:2]  # also of a split sequence: the input has been gathered

        def heads(y):  # of this rank
            return y.view(batch, time, -1, self.head_width).transpose(1, 2)

        y = F.scaled_dot_product_attention(heads(self.query(x)), heads(self.key(x)), heads(self.value(x)), is_causal=True)
        return self.projection(y.transpose(1, 2).reshape(batch, time, -1))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = Attention(width, width // heads), Mlp(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Gpt(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.tokens = nn.Embedding(options.vocab, options.width)
        self.positions = nn.Embedding(options.context, options.width)
        self.blocks = nn.Sequential(*(Block(options.width, options.heads) for _ in range(options.layers)))
        self.norm = nn.LayerNorm(options.width)
        self.head = nn.Linear(options.width, options.vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))
        return self.head(self.norm(self.blocks(x)))


def parallelize(model, ranks, sequence_parallel):
    inside = {
        "attention.query": ColwiseParallel(),
        "attention.key": ColwiseParallel(),
        "attention.value": ColwiseParallel(),
        "mlp.up": ColwiseParallel(),
    }
    if sequence_parallel:
        gathered = {"input_layouts": (Shard(1),), "desired_input_layouts": (Replicate(),)}
        inside |= {
            "norm1": SequenceParallel(),
            "norm2": SequenceParallel(),
            "attention": PrepareModuleInput(**gathered),
            "mlp": PrepareModuleInput(**gathered),
            "attention.projection": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
            "mlp.down": RowwiseParallel(output_layouts=Shard(1), use_local_output=False),
        }
    else:
        inside |= {"attention.projection": RowwiseParallel(), "mlp.down": RowwiseParallel()}
    for block in model.blocks:
        parallelize_module(block, ranks, inside)
    if sequence_parallel:
        # Sliced on the way into the blocks, gathered on the way out.
        parallelize_module(
            model,
            ranks,
            {
                "blocks": PrepareModuleInput(
                    input_layouts=(Replicate(),), desired_input_layouts=(Shard(1),), use_local_output=False
                ),
                "norm": PrepareModuleInput(
                    input_layouts=(Shard(1),), desired_input_layouts=(Replicate(),), use_local_output=True
                ),
            },
        )


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("layers", 6), ("heads", 6), ("width", 384), ("context", 256), ("vocab", 65), ("batch", 16)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    parser.add_argument("--sequence_parallel", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)  # the same values and data on all ranks
    dist.init_process_group("gloo")
    model = Gpt(options)
    parallelize(model, init_device_mesh("cpu", (dist.get_world_size(),)), options.sequence_parallel)
    optimizer = torch.optim.AdamW(model.parameters(), 3e-4, foreach=False)
    shape = (options.batch, options.context)
    ids, targets = (torch.randint(0, options.vocab, shape) for _ in range(2))
    seconds = []
    for _ in range(WARM_UP_STEPS + options.steps):
        begin = time.perf_counter()
        loss = F.cross_entropy(model(ids).flatten(0, 1), targets.flatten())
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        seconds.append(time.perf_counter() - begin)
    step = statistics.median(seconds[WARM_UP_STEPS:])
    macs = options.layers * (12 * options.width**2 + 2 * options.context * options.width) + options.vocab * options.width
    if dist.get_rank() == 0:
        tokens = options.batch * options.context
        print(json.dumps({"step_seconds": step, "loss": loss.item(), "model_gflops_per_s": 6e-9 * macs * tokens / step}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
