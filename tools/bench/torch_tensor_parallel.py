#!/usr/bin/env python3
"""PyTorch's tensor parallel over gloo on a GPT: the peer of the table `tp` of //tools/bench:training.

  torchrun --nproc_per_node 2 torch_tensor_parallel.py --layers 6 --heads 6 --width 384 --context 256 \
      --vocab 65 --batch 16 --threads 1 [--sequence_parallel]

Blocks are split as torch.distributed.tensor.parallel has it: queries, keys, values and the MLP's first layer by column,
the projections behind them by row. Embedding and head, small at this vocabulary, are whole on every rank.
"""
import torch
import torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import Replicate, Shard
from torch.distributed.tensor.parallel import (
    ColwiseParallel,
    PrepareModuleInput,
    RowwiseParallel,
    SequenceParallel,
    parallelize_module,
)

import torch_gpt


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
    parser = torch_gpt.parser(__doc__)
    parser.add_argument("--sequence_parallel", action="store_true")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)  # the same values and data on all ranks
    dist.init_process_group("gloo")
    model = torch_gpt.Gpt(options, packed=False)
    parallelize(model, init_device_mesh("cpu", (dist.get_world_size(),)), options.sequence_parallel)
    optimizer = torch_gpt.adamw(model.parameters())
    ids, targets = torch_gpt.random_batch(options)

    def train():
        loss = torch_gpt.cross_entropy(model(ids), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    torch_gpt.time_steps(options, train, reporter=0, samples=options.batch)


if __name__ == "__main__":
    main()
