#!/usr/bin/env python3
"""PyTorch's side of the benchmarks: the time of a training step on the same work.

  torch_peer.py resnet18 --batch 64 --threads 2
  torch_peer.py gpt --layers 6 --heads 6 --width 384 --context 256 --vocab 65 --batch 16 --threads 2 --amp bf16
  torch_peer.py resnet50 --batch 256 --image 224 --classes 1000 --device cuda --amp bf16
  torchrun --nproc_per_node 2 torch_peer.py gpt --strategy fsdp --threads 1

Prints one line of JSON. "model_gflops_per_s" counts 6 multiply-adds of forward, attention in full, by the median step.
"""
import contextlib
import json
import os
import statistics
import time

import torch
import torch.distributed as dist
import torch.nn as nn
import torch.nn.functional as F
from torch.distributed.fsdp import fully_shard

import torch_gpt
import torch_resnet


def forward_macs(model, inputs):
    """Multiply-adds of one forward pass, from the shapes that layers see."""
    macs = 0

    def count(layer, arguments, output):
        nonlocal macs
        if isinstance(layer, nn.Linear):
            macs += output.numel() * layer.in_features
        elif isinstance(layer, nn.Conv2d):
            macs += output.numel() * layer.in_channels * layer.kernel_size[0] * layer.kernel_size[1]
        elif isinstance(layer, torch_gpt.Attention):
            batch, tokens, width = arguments[0].shape
            macs += 2 * batch * tokens * tokens * width

    hooks = [module.register_forward_hook(count) for module in model.modules()]
    with torch.no_grad():
        model(inputs)
    for hook in hooks:
        hook.remove()
    return macs


def make_work(options):
    """Model, optimizer class with its options, inputs and targets."""
    device = options.device
    if options.model == "gpt":
        ids, targets = (tensor.to(device) for tensor in torch_gpt.random_batch(options))
        optimizer = (torch.optim.AdamW, {"lr": torch_gpt.LEARNING_RATE, "fused": device == "cuda"})
        return torch_gpt.Gpt(options).to(device), optimizer, ids, targets
    model = torch_resnet.ResNet(options.model, options.image, options.classes)
    images = torch.randn(options.batch, 3, options.image, options.image)
    layout = {"device": device, "memory_format": torch.channels_last}
    targets = torch.randint(0, options.classes, (options.batch,), device=device)
    optimizer = (torch.optim.SGD, {"lr": 0.01, "momentum": 0.9})
    return model.to(**layout), optimizer, images.to(**layout), targets


def distribute(model, strategy):
    if strategy == "ddp":
        return nn.parallel.DistributedDataParallel(model)
    if strategy == "fsdp":
        for block in model.blocks:
            fully_shard(block)
        fully_shard(model)
    return model


def main():
    parser = torch_gpt.parser(__doc__)
    parser.add_argument("model", choices=("gpt", *torch_resnet.DEPTHS))
    parser.add_argument("--image", type=int, default=32)
    parser.add_argument("--classes", type=int, default=10)
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--amp", choices=("none", "bf16", "fp16"), default="none")
    parser.add_argument("--compile", action="store_true")
    parser.add_argument("--strategy", choices=("single", "ddp", "fsdp"), default="single")
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    cuda = options.device == "cuda"
    if cuda:
        torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
    ranks = 1
    if options.strategy != "single":
        dist.init_process_group("nccl" if cuda else "gloo")
        ranks = dist.get_world_size()

    model, (optimizer_class, optimizer_options), inputs, targets = make_work(options)
    flops = 6 * ranks * forward_macs(model, inputs)
    model = distribute(model, options.strategy)
    optimizer = optimizer_class(model.parameters(), **optimizer_options)
    if options.compile:
        model = torch.compile(model)
    dtype = {"bf16": torch.bfloat16, "fp16": torch.float16}.get(options.amp)
    autocast = torch.autocast(options.device, dtype) if dtype else contextlib.nullcontext()
    scaler = torch.amp.GradScaler(options.device, enabled=options.amp == "fp16")

    def train():
        with autocast:
            outputs = model(inputs)
            loss = F.cross_entropy(outputs.flatten(0, -2).float(), targets.flatten())
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    seconds = []
    for _ in range(torch_gpt.WARM_UP_STEPS + options.steps):
        begin = time.perf_counter()
        train()
        if cuda:
            torch.cuda.synchronize()
        seconds.append(time.perf_counter() - begin)
    seconds = seconds[torch_gpt.WARM_UP_STEPS :]
    step = statistics.median(seconds)
    if int(os.environ.get("RANK", 0)) == 0:
        result = {"step_seconds": step, "mean_step_seconds": statistics.mean(seconds)}
        print(json.dumps(result | {"model_gflops_per_s": 1e-9 * flops / step}))
    if ranks > 1:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
