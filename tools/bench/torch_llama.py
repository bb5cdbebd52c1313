#!/usr/bin/env python3
"""A Llama under PyTorch: the peer of the tables `llama`, `context` and `moe` of //tools/bench:training.

  torch_llama.py llama --layers 6 --heads 6 --key_heads 2 --width 384 --mlp_width 1024 --context 256 --vocab 65 --batch 16 \\
      --threads 2

With --experts 8, each layer's MLP is a mixture of experts, of which a token has --top_k, each --mlp_width wide: a loop over the
experts, each on the rows that chose it, or torch's grouped product over all of them, where it has one for this device and dtype. The best
of all counts.

Attention is scaled_dot_product_attention. Steps are timed with torch.compile off and on, and the better one counts.
"""
import json
import statistics
import sys
import time

import torch
import torch.nn as nn
import torch.nn.functional as F

import torch_gpt


def rotary_table(head_width, context, theta=10000.0):
    frequencies = theta ** (-torch.arange(0, head_width, 2).float() / head_width)
    angles = torch.outer(torch.arange(context).float(), frequencies).repeat(1, 2)
    return angles.cos(), angles.sin()


def rotate(x, cosines, sines):
    low, high = x.chunk(2, dim=-1)
    return x * cosines + torch.cat((-high, low), dim=-1) * sines


class Experts(nn.Module):
    """Mixtral's: the softmax's top k, renormalised; every expert an MLP with SwiGLU."""

    def __init__(self, options, grouped):
        super().__init__()
        self.top_k, self.grouped = options.top_k, grouped
        self.router = nn.Linear(options.width, options.experts, bias=False)
        self.gate_up = nn.Parameter(0.02 * torch.randn(options.experts, options.width, 2 * options.mlp_width))
        self.down = nn.Parameter(0.02 * torch.randn(options.experts, options.mlp_width, options.width))

    def forward(self, x):
        rows = x.reshape(-1, x.shape[-1])
        weights, chosen = F.softmax(self.router(rows), dim=-1).topk(self.top_k, dim=-1)
        weights = weights / weights.sum(dim=-1, keepdim=True)
        order = chosen.flatten().argsort(stable=True)
        counts = torch.bincount(chosen.flatten(), minlength=len(self.gate_up))
        sent = rows[order // self.top_k]
        if self.grouped:
            ends = counts.cumsum(0).to(torch.int32)
            gate, up = torch._grouped_mm(sent, self.gate_up, offs=ends).chunk(2, dim=-1)
            made = torch._grouped_mm(F.silu(gate) * up, self.down, offs=ends)
        else:
            parts = []
            for expert, part in enumerate(sent.split(counts.tolist())):
                gate, up = (part @ self.gate_up[expert]).chunk(2, dim=-1)
                parts.append((F.silu(gate) * up) @ self.down[expert])
            made = torch.cat(parts)
        made = made * weights.flatten()[order, None]
        return torch.zeros_like(rows).index_add(0, order // self.top_k, made).view_as(x)


class Mlp(nn.Module):
    def __init__(self, options):
        super().__init__()
        self.gate_up = nn.Linear(options.width, 2 * options.mlp_width, bias=False)
        self.down = nn.Linear(options.mlp_width, options.width, bias=False)

    def forward(self, x):
        gate, up = self.gate_up(x).chunk(2, dim=-1)
        return self.down(F.silu(gate) * up)


class Block(nn.Module):
    def __init__(self, options, grouped):
        super().__init__()
        width, self.head_width = options.width, options.width // options.heads
        self.widths = [width, options.key_heads * self.head_width, options.key_heads * self.head_width]
        self.norm1, self.norm2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.qkv = nn.Linear(width, sum(self.widths), bias=False)
        self.projection = nn.Linear(width, width, bias=False)
        self.network = Experts(options, grouped) if options.experts else Mlp(options)

    def forward(self, x, cosines, sines):
        batch, time_ = x.shape[:2]
        query, key, value = [y.view(batch, time_, -1, self.head_width).transpose(1, 2)
                             for y in self.qkv(self.norm1(x)).split(self.widths, dim=2)]
        query, key = rotate(query, cosines, sines), rotate(key, cosines, sines)
        group = query.shape[1] // key.shape[1]
        key, value = key.repeat_interleave(group, dim=1), value.repeat_interleave(group, dim=1)
        y = F.scaled_dot_product_attention(query, key, value, is_causal=True)
        x = x + self.projection(y.transpose(1, 2).reshape(batch, time_, -1))
        return x + self.network(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, options, grouped):
        super().__init__()
        self.tokens = nn.Embedding(options.vocab, options.width)
        self.blocks = nn.ModuleList(Block(options, grouped) for _ in range(options.layers))
        self.norm = nn.RMSNorm(options.width, eps=1e-5)
        self.head = nn.Linear(options.width, options.vocab, bias=False)
        cosines, sines = rotary_table(options.width // options.heads, options.context)
        self.register_buffer("cosines", cosines)
        self.register_buffer("sines", sines)

    def forward(self, ids):
        x = self.tokens(ids)
        for block in self.blocks:
            x = block(x, self.cosines, self.sines)
        return self.head(self.norm(x))


def median_step(options, compiled, grouped=False):
    torch.manual_seed(0)
    model = Llama(options, grouped)
    forward = torch.compile(model) if compiled else model
    optimizer = torch_gpt.adamw(model.parameters())
    ids, targets = torch_gpt.random_batch(options)
    seconds = []
    for _ in range(torch_gpt.WARM_UP_STEPS + options.steps):
        begin = time.perf_counter()
        torch_gpt.cross_entropy(forward(ids), targets).backward()
        optimizer.step()
        optimizer.zero_grad()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds[torch_gpt.WARM_UP_STEPS:])


def main():
    parser = torch_gpt.parser(__doc__)
    parser.add_argument("model", choices=["llama"])
    parser.add_argument("--key_heads", type=int, default=2)
    parser.add_argument("--mlp_width", type=int, default=1024)
    parser.add_argument("--experts", type=int, default=0, help="0: one MLP")
    parser.add_argument("--top_k", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    steps = {}
    for name, kind in {"eager": (False, False), "compiled": (True, False), "eager, grouped": (False, True)}.items():
        if kind[1] and not options.experts:
            continue
        try:
            steps[name] = median_step(options, *kind)
        except Exception as error:  # no compiler for the generated code, or no grouped product on this device
            print(f"{name} is left out: {error}", file=sys.stderr)
    best = min(steps, key=steps.get)
    width, key_width = options.width, options.width // options.heads * options.key_heads
    mlps = options.top_k if options.experts else 1
    macs = options.layers * (2 * width**2 + 2 * width * key_width + 3 * mlps * width * options.mlp_width
                             + width * options.experts + 2 * options.context * width) + options.vocab * width
    gflops = 6e-9 * macs * options.batch * options.context / steps[best]
    print(json.dumps({"step_seconds": steps[best], "best": best, "model_gflops_per_s": gflops, "all": steps}))


if __name__ == "__main__":
    main()
