"""The GPT that PyTorch's sides of the benchmarks train, and how they time it.

Blocks are GPT-2's: norm first, tanh GELU, causal attention by scaled_dot_product_attention.
"""
import argparse
import json
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F

WARM_UP_STEPS = 2
LEARNING_RATE = 3e-4


def parser(description):
    """Options that all scripts have."""
    options = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name, value in (("layers", 6), ("heads", 6), ("width", 384), ("context", 256), ("vocab", 65), ("batch", 16)):
        options.add_argument("--" + name, type=int, default=value)
    options.add_argument("--threads", type=int, default=1)
    options.add_argument("--steps", type=int, default=10)
    return options


class Attention(nn.Module):
    """Queries, keys and values by one product; or by three, which tensor parallelism splits."""

    def __init__(self, width, head_width, packed):
        super().__init__()
        self.head_width = head_width
        if packed:
            self.input = nn.Linear(width, 3 * width)
        else:
            self.query, self.key, self.value = (nn.Linear(width, width) for _ in range(3))
        self.packed = packed
        self.projection = nn.Linear(width, width)

    def forward(self, x):
        batch, time_ = x.shape[:2]  # also of a split sequence: the input has been gathered
        inputs = self.input(x).chunk(3, dim=2) if self.packed else (self.query(x), self.key(x), self.value(x))
        heads = [y.view(batch, time_, -1, self.head_width).transpose(1, 2) for y in inputs]  # of this rank
        y = F.scaled_dot_product_attention(*heads, is_causal=True)
        return self.projection(y.transpose(1, 2).reshape(batch, time_, -1))


class Mlp(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.up, self.down = nn.Linear(width, 4 * width), nn.Linear(4 * width, width)

    def forward(self, x):
        return self.down(F.gelu(self.up(x), approximate="tanh"))


class Block(nn.Module):
    def __init__(self, options, packed=True):
        super().__init__()
        width = options.width
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.attention, self.mlp = Attention(width, width // options.heads, packed), Mlp(width)

    def forward(self, x):
        x = x + self.attention(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class Embedding(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.tokens = nn.Embedding(options.vocab, options.width)
        self.positions = nn.Embedding(options.context, options.width)

    def forward(self, ids):
        return self.tokens(ids) + self.positions(torch.arange(ids.shape[1], device=ids.device))


class Gpt(nn.Module):
    def __init__(self, options, packed=True):
        super().__init__()
        self.embedding = Embedding(options)
        self.blocks = nn.Sequential(*(Block(options, packed) for _ in range(options.layers)))
        self.norm = nn.LayerNorm(options.width)
        self.head = nn.Linear(options.width, options.vocab, bias=False)
        self.head.weight = self.embedding.tokens.weight

    def forward(self, ids):
        return self.head(self.norm(self.blocks(self.embedding(ids))))


def adamw(parameters):
    return torch.optim.AdamW(parameters, LEARNING_RATE, foreach=False)


def random_batch(options):
    return (torch.randint(0, options.vocab, (options.batch, options.context)) for _ in range(2))


def cross_entropy(logits, targets):
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten())


def time_steps(options, train, reporter, samples):
    """Trains the steps and lets rank `reporter` print one line of JSON.

    `train` does one step and returns its loss, or None where another rank knows it; `samples` are those of a step on all
    ranks. "model_gflops_per_s": 6 multiply-adds of forward, attention counted in full, by the median step.
    """
    seconds = []
    for _ in range(WARM_UP_STEPS + options.steps):
        begin = time.perf_counter()
        loss = train()
        dist.barrier()
        seconds.append(time.perf_counter() - begin)
    step = statistics.median(seconds[WARM_UP_STEPS:])
    macs = options.layers * (12 * options.width**2 + 2 * options.context * options.width) + options.vocab * options.width
    gflops = 6e-9 * macs * samples * options.context / step
    if dist.get_rank() == reporter:
        print(json.dumps({"step_seconds": step, "loss": loss.item(), "model_gflops_per_s": gflops}))
    dist.destroy_process_group()
