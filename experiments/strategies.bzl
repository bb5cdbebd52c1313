"""Which workloads run which strategies.

A strategy is a preset, by its name in //strategies:presets.bzl, or a variant of one. A workload takes
up a preset by its name in EXPERIMENTS alone; a variant has a line in _VARIANTS, and a <variant>.toml in
the folder of each of these workloads, which says where it departs.
"""

load("//strategies:presets.bzl", "PRESETS")

def _strategy(program, has_curve = True):
    return struct(program = program, has_curve = has_curve)

# Variant -> the preset, whose program it runs. Without `has_curve` it is there to part from the
# curve, and has no curve test.
_VARIANTS = {
    "dp_tp": _strategy("tp"),
    # A run that changes its strategy and mesh, as train.legs says.
    "legs": _strategy("mesh"),
    "single_unscaled": _strategy("single", has_curve = False),
    # Where a workload trains adapters, all strategies do; `lora` on one rank is what they are held to,
    # and `full`, which trains the whole model instead, what adapters are compared with.
    "lora_r1": _strategy("lora", has_curve = False),
    "lora_r4": _strategy("lora"),
    "lora_r16": _strategy("lora", has_curve = False),
    "full": _strategy("single", has_curve = False),
    # The model that such a workload starts from.
    "base": _strategy("single", has_curve = False),
}

STRATEGIES = dict(
    [(name, _strategy(name)) for name in PRESETS] +
    _VARIANTS.items(),
)

# Workload (its folder) -> its strategies, in the order of the comparison. The first with a curve is
# the reference.
EXPERIMENTS = {
    "gpt_fp16": ["single", "ddp", "fsdp", "single_unscaled"],
    "gpt_long": ["single", "fsdp", "tp", "cp"],
    "gpt_lora": ["lora", "ddp", "fsdp", "layerwise", "gpipe", "fsdp_pipe", "tp", "dp_tp", "full"],
    "gpt_markov": ["single", "ddp", "zero1", "zero2", "fsdp", "layerwise", "gpipe", "fsdp_pipe", "tp", "dp_tp", "cp"],
    "gpt_shakespeare": ["single", "ddp", "fsdp", "layerwise", "gpipe", "fsdp_pipe", "tp", "dp_tp"],
    "gpt_war_and_peace": ["full", "lora_r1", "lora_r4", "lora_r16"],
    "gpt_wide": ["single", "ddp", "zero1", "zero2", "fsdp"],
    "llama_markov": ["single", "ddp", "fsdp", "fsdp_pipe", "tp", "dp_tp"],
    "llama_shakespeare": ["single", "ddp", "fsdp", "fsdp_pipe", "tp", "dp_tp", "cp"],
    "moe_markov": ["single", "ddp", "fsdp", "fsdp_pipe", "tp", "dp_tp", "cp", "ep"],
    "relay": ["single", "legs"],
    "resnet18_cifar10": ["single", "ddp", "fsdp", "layerwise", "gpipe", "fsdp_pipe", "tp"],
    "resnet50_layerwise": ["single", "layerwise"],
    "resnet_lora": ["lora", "ddp", "fsdp", "layerwise", "gpipe", "fsdp_pipe", "tp", "full"],
    "resnet_shapes": ["single", "ddp", "zero1", "zero2", "fsdp", "layerwise", "gpipe", "fsdp_pipe", "tp"],
    "toy_layerwise": ["single", "layerwise"],
    "unet_shapes": ["single", "ddp", "fsdp", "layerwise", "gpipe", "fsdp_pipe", "tp"],
}

# The workloads of //experiments:quickstart, each shortened by its quickstart.toml -> strategies.
QUICKSTART = {
    "gpt_markov": EXPERIMENTS["gpt_markov"],
    "moe_markov": ["single", "ep"],
    "resnet_shapes": EXPERIMENTS["resnet_shapes"],
}
