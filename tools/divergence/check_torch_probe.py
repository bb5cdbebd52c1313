#!/usr/bin/env python3
"""Trains GPT-2 and Llama of transformers and ResNets of torchvision on Lockstep's weights and batches, and holds them to
Lockstep:

  ./bazelw build //strategies/single:main //tools/batches //tools/language_model:export //tools/divergence
  python3 tools/divergence/check_torch_probe.py

Without a fault nothing may be reported; each of six faults, and two of the optimizer, must be found at its module. The
language models are also trained under DDP, FSDP2 and tensor parallelism of DTensor, on two processes. Needs torch,
transformers and torchvision; no part of CI. docs/debugging.md has its output.
"""
import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile

import torch
import torch.distributed as dist
import torchvision
import transformers

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, HERE)
from torch_probe import Batches, TorchProbe, load_weights  # noqa: E402

STEPS = 3
MODELS = {"gpt2": 'kind = "transformer"\nlayers = 2\nheads = 2\nwidth = 16',
          "llama": 'kind = "llama"\nlayers = 2\nheads = 4\nkey_heads = 2\nwidth = 16\nmlp_width = 32',
          "resnet18": 'kind = "resnet"\ndepth = 18\nstem = "imagenet"\nwidth = 64',
          "resnet50": 'kind = "resnet"\ndepth = 50\nstem = "imagenet"\nwidth = 64'}
NAMES = {"gpt2": "gpt2", "llama": "llama", "resnet18": "resnet_basic", "resnet50": "resnet_bottleneck"}
COMMON = """name = "check_torch_probe"
[model]
{model}
[batch]
size = 8
[train]
steps = {steps}
clip_norm = 1.0
deferred_batch_norm = false  # the estimates of batch normalisation move as PyTorch does it
[schedule]
kind = "constant"
learning_rate = 1e-2
[probe]
steps = {steps}
values = true
"""
TEXT = COMMON + """[data]
kind = "markov"
vocabulary = 16
order = 1
successors = 4
context = 8
[cut]
shards = 2
tokens = 2
[optimizer]
kind = "adamw"
weight_decay = 0.1
"""
IMAGES = COMMON + """[data]
kind = "shapes"
[cut]
shards = 2
[optimizer]
kind = "sgd"
momentum = 0.9
weight_decay = 0.1
"""


def is_resnet(name):
    return name.startswith("resnet")


# --- faults: each returns nothing and spoils a model in place --------------------------------------------------------------


def module(model, block, ours):
    """A module of a block of a decoder by our name of it."""
    if hasattr(model, "transformer"):
        names = {"attention.norm": "ln_1", "attention.qkv": "attn.c_attn", "attention.projection": "attn.c_proj",
                 "network.norm": "ln_2", "network.down": "mlp.c_proj"}
        return model.transformer.h[block].get_submodule(names[ours])
    names = {"attention.norm": "input_layernorm", "attention.qkv": "self_attn.q_proj",
             "attention.projection": "self_attn.o_proj", "network.norm": "post_attention_layernorm",
             "network.down": "mlp.down_proj"}
    return model.model.layers[block].get_submodule(names[ours])


def wrong_epsilon(model):
    norm = module(model, 1, "network.norm")
    for name in ("eps", "variance_epsilon"):
        if hasattr(norm, name):
            setattr(norm, name, 2e-5)


def scaled_projection(model):
    module(model, 0, "attention.projection").register_forward_hook(lambda _, args, y: y * 1.0001)


def wrong_softmax_scale(model):
    blocks = model.transformer.h if hasattr(model, "transformer") else model.model.layers
    attention = getattr(blocks[1], "attn", None) or blocks[1].self_attn
    attention.scaling = attention.scaling * 0.99


def swap_features(_, args, y):
    return torch.cat([y[..., 1:2], y[..., :1], y[..., 2:]], dim=-1)


def swapped_features(model):
    module(model, 1, "attention.qkv").register_forward_hook(swap_features)


def truncated_gradient(model):
    module(model, 0, "network.norm").weight.register_hook(lambda gradient: gradient * 0.999)


def doubled_residual(model):
    module(model, 1, "network.down").register_forward_hook(lambda _, args, y: y * 2)


FAULTS = {"an epsilon of 2e-5": (wrong_epsilon, "blocks.1.network.norm"),
          "a projection scaled by 1.0001": (scaled_projection, "blocks.0.attention.projection"),
          "logits scaled by 0.99": (wrong_softmax_scale, "blocks.1.attention.core"),
          "two features of the queries swapped": (swapped_features, "blocks.1.attention.qkv"),
          "a norm's gradient times 0.999": (truncated_gradient, "blocks.0.network.norm"),
          "an MLP that is added twice": (doubled_residual, "blocks.1.network.down")}


def wrong_norm_epsilon(model):
    model.layer1[1].bn1.eps = 1e-4


def scaled_convolution(model):
    model.layer2[0].conv2.register_forward_hook(lambda _, args, y: y * 1.0001)


def swapped_channels(model):
    model.layer3[0].downsample[0].register_forward_hook(
        lambda _, args, y: torch.cat([y[:, 1:2], y[:, :1], y[:, 2:]], dim=1))


def mean_pool(model):
    model.maxpool = torch.nn.AvgPool2d(3, stride=2, padding=1)


def truncated_norm_gradient(model):
    model.layer2[1].bn2.weight.register_hook(lambda gradient: gradient * 0.999)


def slow_estimate(model):
    model.layer1[0].bn2.momentum = 0.01


IMAGE_FAULTS = {"an epsilon of 1e-4": (wrong_norm_epsilon, "layer1.1.unit1.norm"),
                "a convolution scaled by 1.0001": (scaled_convolution, "layer2.0.unit2.conv"),
                "two channels of a shortcut swapped": (swapped_channels, "layer3.0.shortcut.conv"),
                "a mean in place of max pooling": (mean_pool, "stem"),
                "a norm's gradient times 0.999": (truncated_norm_gradient, "layer2.1.unit2.norm"),
                "an estimate that moves by 0.01": (slow_estimate, "layer1.0.unit2.norm")}


def decay_all(optimizer):
    for group in optimizer.param_groups:
        group["weight_decay"] = 0.1


def wrong_beta(optimizer):
    for group in optimizer.param_groups:
        group["betas"] = (0.9, 0.98)


def nesterov(optimizer):
    for group in optimizer.param_groups:
        group["nesterov"] = True


# Faults of the optimizer, and the module whose state is wrong first.
OPTIMIZER_FAULTS = {"weight decay on the norms": (decay_all, "blocks.0.attention.norm"),
                    "a second beta of 0.98": (wrong_beta, "optimizer.second_moment.embedding.token")}
IMAGE_OPTIMIZER_FAULTS = {"weight decay on the norms": (decay_all, "optimizer.momentum.stem.unit.norm"),
                          "Nesterov's momentum": (nesterov, "stem.unit.conv")}


# --- training ----------------------------------------------------------------------------------------------------------


def load(name, source):
    """A model with the weights that Lockstep started from. `source`: the folder that has them: an exported model, or the run."""
    if is_resnet(name):
        model = torchvision.models.get_model(name, num_classes=10)
        load_weights(model, names_of(name), source)
        return model
    model = transformers.AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    model.config.use_cache = False
    for each in model.modules():
        if isinstance(each, torch.nn.Dropout):
            each.p = 0.0
    return model


def names_of(name):
    return os.path.join(HERE, "names", NAMES[name] + ".json")


def make_optimizer(name, model):
    decayed = [p for p in model.parameters() if p.dim() >= 2]
    others = [p for p in model.parameters() if p.dim() < 2]
    groups = [{"params": decayed}, {"params": others, "weight_decay": 0.0}]
    if is_resnet(name):
        return torch.optim.SGD(groups, lr=1e-2, momentum=0.9, weight_decay=0.1, foreach=False)
    return torch.optim.AdamW(groups, lr=1e-2, weight_decay=0.1, foreach=False)


def sum_of_losses(name, model, inputs, targets):
    if is_resnet(name):
        return torch.nn.functional.cross_entropy(model(inputs.permute(0, 3, 1, 2)), targets, reduction="sum")
    logits = model(input_ids=inputs).logits
    return torch.nn.functional.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")


def clip(model, most):
    """clip_grad_norm_ for mixtures of DTensors and tensors, which PyTorch does not clip."""
    gradients = [parameter.grad for parameter in model.parameters()]
    whole = [each.full_tensor() if hasattr(each, "placements") else each for each in gradients]
    factor = torch.clamp(most / (torch.stack([each.norm() for each in whole]).norm() + 1e-6), max=1.0).item()
    for each in gradients:
        each.mul_(factor)


def train(name, weights, batches, out, spoil=None, wrap=lambda model: model, *, spoil_optimizer=None, steps=STEPS):
    """Trains `steps` steps and leaves their probes in `out`. `spoil` puts a fault into the model, and `spoil_optimizer`
    into the optimizer."""
    model = load(name, weights)
    if spoil:
        spoil(model)
    model = wrap(model)
    rank, ranks = (dist.get_rank(), dist.get_world_size()) if dist.is_initialized() else (0, 1)
    shares = not hasattr(model, "is_tensor_parallel")
    optimizer = make_optimizer(name, model)
    if spoil_optimizer:
        spoil_optimizer(optimizer)
    probe = TorchProbe(model, optimizer, out, names_of(name), batches, steps=steps)
    for step in range(steps):
        with probe.step(step):
            for number, inputs, targets in batches.of(step):
                if shares and number % ranks != rank:
                    continue
                with probe.micro_batch(number, inputs, targets):
                    (sum_of_losses(name, model, inputs, targets) / batches.targets(step)).backward()
            probe.gradients()
            if shares:
                torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            else:
                clip(model, 1.0)
            optimizer.step()
            optimizer.zero_grad()


def sum_bucket(_, bucket):
    return dist.all_reduce(bucket.buffer(), async_op=True).get_future().then(lambda future: future.value()[0])


def wrap_ddp(model):
    """The loss is divided by the targets of all ranks, so gradients are summed, not averaged."""
    model = torch.nn.parallel.DistributedDataParallel(model)
    model.register_comm_hook(None, sum_bucket)
    return model


def wrap_fsdp(model):
    from torch.distributed.fsdp import fully_shard
    blocks = model.transformer.h if hasattr(model, "transformer") else model.model.layers
    for block in blocks:
        fully_shard(block)
    fully_shard(model)
    for each in (model, *blocks):
        each.set_gradient_divide_factor(1.0)
        each.set_force_sum_reduction_for_comms(True)
    return model


def wrap_tp(model):
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan = {f"self_attn.{each}_proj": ColwiseParallel() for each in "qkv"}
    plan |= {"self_attn.o_proj": RowwiseParallel(), "mlp.gate_proj": ColwiseParallel(), "mlp.up_proj": ColwiseParallel(),
             "mlp.down_proj": RowwiseParallel()}
    for layer in model.model.layers:
        parallelize_module(layer, mesh, plan)
    model.is_tensor_parallel = True
    return model


WRAPPERS = {"DDP": wrap_ddp, "FSDP2": wrap_fsdp, "DTensor": wrap_tp}


def train_rank(rank, name, weights, batches, out, wrapper, rendezvous):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=2)
    train(name, weights, Batches(batches), out, wrap=WRAPPERS[wrapper])
    dist.destroy_process_group()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bin", default="bazel-bin", help="where Bazel has put the programs")
    parser.add_argument("--keep", help="a folder for the runs, which are some 6 GB for each ResNet")
    parser.add_argument("--models", nargs="+", choices=MODELS, help="these alone")
    args = parser.parse_args()
    torch.set_num_threads(1)
    failures = 0

    def call(program, *words):
        return subprocess.run([os.path.join(args.bin, program), *words], check=False, capture_output=True, text=True)

    with tempfile.TemporaryDirectory() as temporary:
        folder = args.keep or temporary
        for name in args.models or MODELS:
            config, ours = os.path.join(folder, name + ".toml"), os.path.join(folder, name)
            with open(config, "w") as file:
                file.write((IMAGES if is_resnet(name) else TEXT).format(model=MODELS[name], steps=STEPS))
            weights, batches = os.path.join(folder, name + "_weights"), os.path.join(folder, name + "_batches")
            commands = [("strategies/single/main", "--config", config, "--out", ours),
                        ("tools/batches/batches", "--run", ours, "--output", batches, "--steps", str(STEPS))]
            if is_resnet(name):
                weights = ours
            else:
                commands.append(("tools/language_model/export", "--run", ours, "--checkpoint", "initial", "--output", weights))
            for words in commands:
                result = call(*words)
                if result.returncode:
                    print(result.stderr)
                    return 1

            def compare(what, out, expected):
                nonlocal failures
                result = call("tools/divergence/divergence", ours, out)
                found = re.search(r"module: (\S+)", result.stdout)
                passed = result.returncode == (expected is not None) and (found[1] if found else None) == expected
                failures += not passed
                print(f"{'ok  ' if passed else 'FAIL'} {name}, {what}: {(result.stdout or result.stderr).strip()}", flush=True)
                if not args.keep:
                    shutil.rmtree(out)

            out = os.path.join(folder, f"{name}_torch")
            train(name, weights, Batches(batches), out)
            compare("no fault", out, None)
            faults = IMAGE_FAULTS if is_resnet(name) else FAULTS
            for number, (what, (spoil, expected)) in enumerate(faults.items()):
                out = os.path.join(folder, f"{name}_fault{number}")
                train(name, weights, Batches(batches), out, spoil)
                compare(what, out, expected)
            faults = IMAGE_OPTIMIZER_FAULTS if is_resnet(name) else OPTIMIZER_FAULTS
            for number, (what, (spoil, expected)) in enumerate(faults.items()):
                out = os.path.join(folder, f"{name}_optimizer_fault{number}")
                train(name, weights, Batches(batches), out, spoil_optimizer=spoil)
                compare(what, out, expected)
            for wrapper in () if is_resnet(name) else WRAPPERS:
                if wrapper == "DTensor" and name == "gpt2":
                    continue
                out = os.path.join(folder, f"{name}_{wrapper}")
                torch.multiprocessing.spawn(train_rank, nprocs=2, args=(
                    name, weights, batches, out, wrapper, os.path.join(folder, f"{name}_{wrapper}_rendezvous")))
                compare(wrapper + " on 2 processes", out, None)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
