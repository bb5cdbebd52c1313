"""The registry of strategies, and what each one's folder is built of.

A new preset is its page, strategies/<name>/<name>.h, its BUILD file with lockstep_preset(), and a
line in PRESETS. Workloads take it up by its name (//experiments:strategies.bzl).
"""

load("//build_defs:cc.bzl", "ls_cc_binary", "ls_cc_library")

# Strategy -> the function of its page that defines it, in the order in which documents show them.
PRESETS = {
    "single": "SingleStrategy",
    "naive_ddp": "NaiveDdpStrategy",
    "ddp": "DdpStrategy",
    "zero1": "Zero1Strategy",
    "zero2": "Zero2Strategy",
    "fsdp": "FsdpStrategy",
    "layerwise": "LayerwiseStrategy",
    "gpipe": "GPipeStrategy",
    "fsdp_pipe": "FsdpPipeStrategy",
    "tp": "TpStrategy",
    "cp": "CpStrategy",
    "ep": "EpStrategy",
    "lora": "LoraStrategy",
    "mesh": "MeshStrategy",
}

def strategy_main(name = "main", strategy = None, deps = []):
    """A program that trains with a strategy; default: the one that the folder is named after.

    `deps` are linked in beside what the program needs."""
    strategy = strategy or native.package_name().split("/")[-1]
    ls_cc_binary(
        name = name,
        srcs = ["//strategies:main.cc"],
        local_defines = [
            "STRATEGY_PAGE=\\\"strategies/{0}/{0}.h\\\"".format(strategy),
            "STRATEGY=" + PRESETS[strategy],
        ],
        deps = deps + [
            "//strategies/" + strategy,
            "//core/run:main",
            "//foresight:prediction",
            "//models",
            "//strategies:presets",
        ],
    )

def lockstep_preset(deps = []):
    """A preset of the engine: the library of its page, and its program."""
    name = native.package_name().split("/")[-1]
    ls_cc_library(
        name = name,
        hdrs = [name + ".h"],
        deps = ["//strategies/engine"] + deps,
    )
    strategy_main()

def presets_library(name):
    """AllStrategies() of presets.h."""
    native.genrule(
        name = name + "_source",
        outs = [name + ".cc"],
        cmd = "cat >$@ <<'END'\n" + "\n".join(
            ["// Made of PRESETS in presets.bzl.", "#include \"strategies/presets.h\""] +
            ["#include \"strategies/{0}/{0}.h\"".format(preset) for preset in PRESETS] +
            ["namespace lockstep {", "std::vector<StrategyDefinition> AllStrategies() {", "  return {"] +
            ["    %s()," % function for function in PRESETS.values()] +
            ["  };", "}", "}  // namespace lockstep", "END"],
        ),
    )
    ls_cc_library(
        name = name,
        srcs = [
            name + ".cc",
            "leg_strategies.cc",
        ],
        hdrs = [name + ".h"],
        deps = ["//core/run/strategy", "//strategies/engine"] + ["//strategies/" + preset for preset in PRESETS],
    )
