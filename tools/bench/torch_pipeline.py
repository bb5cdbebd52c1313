#!/usr/bin/env python3
"""PyTorch's pipelining over gloo on a GPT: the peer of //tools/bench:pipeline.

  torchrun --nproc_per_node 2 torch_pipeline.py --schedule 1f1b --micro_batches 8 --layers 6 --heads 6 --width 384 \
      --context 256 --vocab 65 --batch 16 --threads 1

torch.distributed.pipelining runs the schedule; each rank has a stage of equally many blocks. The head is not tied to the
embedding, which pipelining does not do; both are small at this vocabulary.
"""
import torch
import torch.distributed as dist
import torch.nn as nn
from torch.distributed.pipelining import PipelineStage, Schedule1F1B, ScheduleGPipe

import torch_gpt


def make_stage(options, rank, ranks):
    """The share of one rank: its blocks, and what is before the first and behind the last."""
    begin, end = (options.layers * r // ranks for r in (rank, rank + 1))
    modules = [torch_gpt.Block(options) for _ in range(begin, end)]
    if rank == 0:
        modules.insert(0, torch_gpt.Embedding(options))
    if rank + 1 == ranks:
        modules += [nn.LayerNorm(options.width), nn.Linear(options.width, options.vocab, bias=False)]
    return nn.Sequential(*modules)


def main():
    parser = torch_gpt.parser(__doc__)
    parser.add_argument("--micro_batches", type=int, default=8)
    parser.add_argument("--schedule", choices=("gpipe", "1f1b"), default="gpipe")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    dist.init_process_group("gloo")
    rank, ranks = dist.get_rank(), dist.get_world_size()
    module = make_stage(options, rank, ranks)
    optimizer = torch_gpt.adamw(module.parameters())
    schedule_class = {"gpipe": ScheduleGPipe, "1f1b": Schedule1F1B}[options.schedule]
    schedule = schedule_class(
        PipelineStage(module, rank, ranks, torch.device("cpu")), options.micro_batches, loss_fn=torch_gpt.cross_entropy
    )
    torch.manual_seed(0)
    ids, targets = torch_gpt.random_batch(options)

    def train():
        losses = []
        if rank == 0:
            schedule.step(ids)
        elif rank + 1 == ranks:
            schedule.step(target=targets, losses=losses)
        else:
            schedule.step()
        optimizer.step()
        optimizer.zero_grad()
        return torch.stack([loss.detach() for loss in losses]).mean() if losses else None

    torch_gpt.time_steps(options, train, reporter=ranks - 1, samples=options.batch)


if __name__ == "__main__":
    main()
