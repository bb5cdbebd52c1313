#!/usr/bin/env python3
"""PyTorch's data parallel over gloo on a GPT: the peer of the table `network` of //tools/bench:foresight.

  torchrun --nproc_per_node 2 torch_data_parallel.py --strategy ddp --layers 6 --heads 6 --width 384 --context 256 \
      --vocab 65 --batch 16 --threads 1

ddp: DistributedDataParallel. zero1: the same with ZeroRedundancyOptimizer. fsdp: fully_shard of each block and of the
model. `--batch` is that of a rank.
"""
import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import torch_gpt


def distribute(model, strategy):
    """The model and the optimizer as the strategy has them."""
    if strategy == "fsdp":
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
        return model, torch_gpt.adamw(model.parameters())
    model = DistributedDataParallel(model)
    if strategy == "ddp":
        return model, torch_gpt.adamw(model.parameters())
    return model, ZeroRedundancyOptimizer(
        model.parameters(), torch.optim.AdamW, lr=torch_gpt.LEARNING_RATE, foreach=False
    )


def main():
    parser = torch_gpt.parser(__doc__)
    parser.add_argument("--strategy", choices=("ddp", "zero1", "fsdp"), default="ddp")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    dist.init_process_group("gloo")
    model, optimizer = distribute(torch_gpt.Gpt(options), options.strategy)
    ids, targets = torch_gpt.random_batch(options)

    def train():
        loss = torch_gpt.cross_entropy(model(ids), targets)
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss

    torch_gpt.time_steps(options, train, reporter=0, samples=options.batch * dist.get_world_size())


if __name__ == "__main__":
    main()
