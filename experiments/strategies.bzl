"""Which strategies there are, and which workloads they run: the one place to add one.

A new strategy, or variant of one, is a line in STRATEGIES, its name in the lists of EXPERIMENTS, and a <strategy>.toml
in the folder of each of these workloads.
"""

def _strategy(tolerance = 0, program = None, has_curve = True):
    return struct(tolerance = tolerance, program = program, has_curve = has_curve)

# The program of a strategy is //strategies/<name>:main, or //strategies/<program>:main of a variant:
# another mesh or other options of a strategy, with a name and a <name>.toml of its own. `tolerance`
# says how far its losses may be from single's in a curve test, relatively; 0: losses and final
# parameters are the same to the bit (contract 3 of the design). Tensor parallelism adds up in another
# order inside its split products. Without `has_curve` it is there to part from the curve, and has no
# such test.
STRATEGIES = {
    "single": _strategy(),
    "ddp": _strategy(),
    "zero1": _strategy(),
    "zero2": _strategy(),
    "fsdp": _strategy(),
    "layerwise": _strategy(),
    "gpipe": _strategy(),
    "fsdp_pipe": _strategy(),
    "tp": _strategy(tolerance = 1e-5),
    "dp_tp": _strategy(tolerance = 1e-5, program = "tp"),
    "single_unscaled": _strategy(program = "single", has_curve = False),
    # Where a workload trains adapters, all strategies do; `lora` on one rank is what they are held to,
    # and `full`, which trains the whole model instead, what adapters are compared with.
    "lora": _strategy(),
    "lora_r1": _strategy(program = "lora", has_curve = False),
    "lora_r4": _strategy(program = "lora"),
    "lora_r16": _strategy(program = "lora", has_curve = False),
    "full": _strategy(program = "single", has_curve = False),
    # The model that such a workload starts from.
    "base": _strategy(program = "single", has_curve = False),
}

# Workload (its folder) -> its strategies, in the order of the comparison. The first with a curve is
# the reference.
EXPERIMENTS = {
    "gpt_fp16": ["single", "ddp", "fsdp", "single_unscaled"],
    "gpt_lora": ["lora", "ddp", "fsdp", "layerwise", "gpipe", "fsdp_pipe", "tp", "dp_tp", "full"],
    "gpt_markov": ["single", "ddp", "zero1", "zero2", "fsdp", "layerwise", "gpipe", "fsdp_pipe", "tp", "dp_tp"],
    "gpt_shakespeare": ["single", "ddp", "fsdp", "layerwise", "gpipe", "fsdp_pipe", "tp", "dp_tp"],
    "gpt_war_and_peace": ["full", "lora_r1", "lora_r4", "lora_r16"],
    "gpt_wide": ["single", "ddp", "zero1", "zero2", "fsdp"],
    "resnet18_cifar10": ["single", "ddp", "fsdp", "layerwise", "gpipe", "fsdp_pipe", "tp"],
    "resnet50_layerwise": ["single", "layerwise"],
    "resnet_lora": ["lora", "ddp", "fsdp", "layerwise", "gpipe", "fsdp_pipe", "tp", "full"],
    "resnet_shapes": ["single", "ddp", "zero1", "zero2", "fsdp", "layerwise", "gpipe", "fsdp_pipe", "tp"],
    "toy_layerwise": ["single", "layerwise"],
    "unet_shapes": ["single", "ddp", "fsdp", "layerwise", "gpipe", "fsdp_pipe", "tp"],
}

# The workloads of //experiments:quickstart, each shortened by its quickstart.toml.
QUICKSTART = ["gpt_markov", "resnet_shapes"]
