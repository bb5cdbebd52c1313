#!/usr/bin/env python3
"""PyTorch's pipelining over gloo on a GPT: the peer of //tools/bench:pipeline.

  torchrun --nproc_per_node 2 torch_pipeline.py --schedule 1f1b --micro_batches 8 --layers 6 --heads 6 --width 384 \
      --context 256 --vocab 65 --batch 16 --threads 1

torch.distributed.pipelining runs the schedule; each rank has a stage of equally many blocks. The head is not tied to the
embedding, which pipelining does not do; both are small at this vocabulary. Prints one line of JSON with
"model_gflops_per_s": 6 multiply-adds of forward, attention counted in full, by the median step.
"""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

WARM_UP_STEPS = 2


class Attention(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.heads = heads
        self.input, self.projection = nn.Linear(width, 3 * width), nn.Linear(width, width)

    def forward(self, x):
        batch, time, width = x.shape
        query, key, value = (
            y.view(batch, time, self.heads, width // self.heads).transpose(1, 2) for y in self.input(x).split(width, dim=2)
        )
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        return self.projection(y.transpose(1, 2).reshape(batch, time, width))


class Block(nn.Module):
    def __init__(self, width, heads):
        super().__init__()
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention = Attention(width, heads)
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x)), approximate="tanh"))


class Embedding(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.tokens = nn.Embedding(options.vocab, options.width)
        self.positions = nn.Embedding(options.context, options.width)

    def forward(self, ids):
        return self.tokens(ids) + self.positions(torch.arange(ids.shape[1]))


def make_stage(options, rank, ranks):
    """The share of one rank: its blocks, and what is before the first and behind the last."""
    begin, end = (options.layers * r // ranks for r in (rank, rank + 1))
    modules = [Block(options.width, options.heads) for _ in range(begin, end)]
    if rank == 0:
        modules.insert(0, Embedding(options))
    if rank + 1 == ranks:
        modules += [nn.LayerNorm(options.width), nn.Linear(options.width, options.vocab, bias=False)]
    return nn.Sequential(*modules)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("layers", 6), ("heads", 6), ("width", 384), ("context", 256), ("vocab", 65), ("batch", 16)):
        parser.add_argument("--" + name, type=int, default=value)
    parser.add_argument("--micro_batches", type=int, default=8)
    parser.add_argument("--schedule", choices=("gpipe", "1f1b"), default="gpipe")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--steps", type=int, default=10)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    module = make_stage(options, rank, ranks)
    optimizer = torch.optim.AdamW(module.parameters(), 3e-4, foreach=False)
    schedule_class = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[options.schedule]
    schedule = schedule_class(
        PipelineStage(module, rank, ranks, torch.device("cpu")),
        options.micro_batches,
        loss_fn=lambda logits, targets: F.cross_entropy(logits.flatten(0, 1), targets.flatten()),
    )
    torch.manual_seed(0)
    shape = (options.batch, options.context)
    ids, targets = (torch.randint(0, options.vocab, shape) for _ in range(2))
    seconds, losses = [], []
    for _ in range(WARM_UP_STEPS + options.steps):
        begin = time.perf_counter()
        if rank == 0:
            schedule.step(ids)
        elif rank + 1 == ranks:
            losses = []
            schedule.step(target=targets, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        dist.barrier()
        seconds.append(time.perf_counter() - begin)
    step = statistics.median(seconds[WARM_UP_STEPS:])
    macs = options.layers * (12 * options.width**2 + 2 * options.context * options.width) + options.vocab * options.width
    if rank + 1 == ranks:
        tokens = options.batch * options.context
        loss = torch.stack([loss.detach() for loss in losses]).mean().item()
        print(json.dumps({"step_seconds": step, "loss": loss, "model_gflops_per_s": 6e-9 * macs * tokens / step}))
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
