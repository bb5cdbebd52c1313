"""An experiment: one workload under every strategy. See lockstep_experiment."""

load(":base.bzl", "trained_weights")
load(":program.bzl", "program", "program_files", "program_test")
load(":strategies.bzl", "EXPERIMENTS", "QUICKSTART", "STRATEGIES")

def _configs(strategy):
    """The files that describe a run: the workload, and where the strategy departs from its preset."""
    return ["workload.toml"] + native.glob([strategy + ".toml"], allow_empty = True)

def _run(name, workload, strategy, configs, arguments = [], data = []):
    """A program that trains with a strategy: `configs`, `arguments`, then what the user adds."""
    all_arguments = []
    for config in configs:
        all_arguments += ["--config", "{source}/$(rootpath %s)" % config]
    if STRATEGIES[strategy].program != strategy:
        # The program would name the run after itself.
        all_arguments += ["--out", "runs/%s/%s" % (workload, strategy)]
    program(
        name = name,
        binary = "//strategies/%s:main" % STRATEGIES[strategy].program,
        arguments = all_arguments + arguments,
        data = configs + data,
        visibility = ["//visibility:public"],
    )

def _base(workload, real_data):
    """The model that a workload starts from, and what the runs of the workload are told about it.

    Built-in data needs nothing but the program that trains: the weights are made with the runs.
    Real data is the user's; there the program makes them, and leaves them where runs look for them.
    """
    configs = [":workload.toml", ":base.toml"]
    _run("base", workload, "base", configs)
    if real_data:
        return struct(arguments = ["--set", "model.init=runs/%s/base" % workload], data = [])
    trained_weights(
        name = "base_weights",
        configs = configs,
        trainer = "//strategies/single:main",
    )
    return struct(
        arguments = ["--set", "model.init={source}/$(rootpath :base_weights)"],
        data = [":base_weights"],
    )

def _compare(name, runs, base = None):
    """A program that makes runs and shows them side by side.

    Args:
      name: of the program.
      runs: a dict from label to "WORKLOAD:NAME", the workload that the run has by its configuration
        and the run's directory.
      base: the directory of the one among them that the others start from.
    """
    program(
        name = name,
        binary = "//tools/compare:run_and_compare",
        # What the user adds comes behind the `--`: it is for each of the runs.
        arguments = (["--base", base] if base else []) +
                    ["%s={path}/$(rootpath %s)" % (run, label) for label, run in runs.items()] +
                    ["--"],
        data = runs.keys(),
    )

def _curve_test(
        strategy,
        programs,
        steps,
        golden_steps,
        golden_tolerance,
        tags,
        size,
        device = "cpu",
        emulated_steps = None,
        **kwargs):
    """`programs`: those of all strategies with a curve, by strategy; of the first is the reference."""
    arguments = [
        "--candidate={path}/$(rootpath %s)" % programs[strategy],
        "--device=%s" % device,
        "--golden",
        "{source}/$(rootpath :expected_loss.csv)",
        "--golden_steps=%d" % golden_steps,
        "--golden_tolerance=%s" % golden_tolerance,
    ]
    reference = programs.keys()[0]
    if device != "cpu":
        arguments.append("--repeat")
    if strategy != reference:
        arguments.append("--reference={path}/$(rootpath %s)" % programs[reference])
    program_test(
        name = strategy + ("" if device == "cpu" else "_" + device) + "_curve_test",
        size = size,
        binary = "//tools/curve",
        arguments = arguments + select({
            "//build_defs:cuda_emulated": [  # of a flag that is given twice the last counts
                "--candidate_steps=%d" % (emulated_steps or steps),
                "--golden_steps=%d" % min(golden_steps, emulated_steps or steps),
            ],
            "//conditions:default": ["--candidate_steps=%d" % steps],
        }),
        data = [programs[name] for name in programs if name in [strategy, reference]] + [":expected_loss.csv"],
        tags = tags,
        **kwargs
    )

def lockstep_experiment(
        curve_steps,
        golden_steps,
        golden_tolerance,
        has_base = False,
        curves_from_seed = False,
        cuda_tolerance = None,
        emulated_steps = None,
        real_data = False,
        size = "small",
        tags = []):
    """All targets of the experiment in whose BUILD file this is called.

    The folder holds workload.toml (all that makes the loss curve, [cut] included, which the meshes of
    all strategies fit), expected_loss.csv (the curve of the reference), and a <strategy>.toml where a
    strategy departs from the mesh and options of its preset. For each strategy that strategies.bzl
    names for this workload:

      :<strategy>             trains; arguments behind `--` are passed on
      :<strategy>_curve_test  runs the first steps, one thread a rank, and holds them to the
                              reference run in the same way, to the bit (exact lane), and to
                              expected_loss.csv
                              (golden lane); when it fails, it leaves probes of both sides and
                              prints the first tensor that differs
      :<strategy>_cuda_curve_test
                              the same on a GPU that all ranks share, and a second run has the bits of
                              the first; tagged "gpu"

    and for all of them:

      :compare                runs them one after another and shows them side by side, as tables and
                              a page; and the reference once more for each other cut of the batch
                              among them
      :certify                runs the first steps under all strategies with a curve, on several
                              meshes, numbers of threads and backends, and holds every loss and tensor
                              to the reference, to the bit
      :update_expected        makes expected_loss.csv anew

    The reference is the first strategy that has a curve: `single`, or `lora` where adapters are
    trained.

    Args:
      curve_steps: how many steps the curve tests walk, and hold to `single`. The schedule must not
        depend on it: workload.toml states schedule.total_steps.
      golden_steps: how many of these steps are held to expected_loss.csv, at most.
      golden_tolerance: how far from expected_loss.csv their losses may be, relatively. 0 where every
        processor with AVX2 and FMA gives the same bits: fp32 without convolutions (docs/numerics.md).
        Elsewhere each BUILD file says how far another processor moves the losses, and how far a
        mistake does.
      has_base: whether the workload goes on from a model that is trained first, which base.toml,
        laid over workload.toml, describes. `:base` trains it as a run to look at. Where that takes
        real data, :compare does so first, and a user before any other run.
      curves_from_seed: whether the curve tests start from the seed all the same: where training the
        base takes a user's data, or ends elsewhere on another machine. Each BUILD file says why.
      cuda_tolerance: the same on a GPU, whose libraries add in orders of their own and whose exp is
        another; stated wherever golden_tolerance is 0. By default 3 times golden_tolerance. Other
        orders of all sums, tried out on a CPU, move losses without batch statistics by 1e-7 at most.
        Batch statistics amplify the difference: each BUILD file says what was seen, of which
        cuda_tolerance is about 10 times.
      emulated_steps: how many steps the curve tests on a GPU walk where a CPU emulates the GPU
        (--config=cuda_emulated). None: a step takes too long there; these tests carry the tag
        "slow_emulated", which that configuration leaves out.
      real_data: whether the workload needs the folder that LOCKSTEP_DATA names. The curve tests then
        carry the tag "real_data", which only --config=real_data (.bazelrc) runs.
      size: of the curve tests.
      tags: of the curve tests; "large" for models whose memory sanitizers would multiply (.bazelrc).
    """
    if golden_tolerance == 0 and not cuda_tolerance:
        fail("a GPU does not have a CPU's bits: state cuda_tolerance")
    workload = native.package_name().split("/")[-1]
    strategies = EXPERIMENTS[workload]
    tags = tags + (["real_data"] if real_data else [])
    native.filegroup(
        name = "configurations",
        srcs = native.glob(["*.toml"]) + ["expected_loss.csv"],
        visibility = ["//experiments:__pkg__"],
    )
    base = _base(workload, real_data) if has_base else struct(arguments = [], data = [])
    programs = {}  # of strategies with a curve
    for strategy in strategies:
        configs = _configs(strategy)
        _run(strategy, workload, strategy, configs, base.arguments, base.data)
        if strategy in QUICKSTART.get(workload, []):
            shortened = workload + "_quickstart"  # as its quickstart.toml calls it
            _run("quickstart_" + strategy, shortened, strategy, configs + ["quickstart.toml"])
        if not STRATEGIES[strategy].has_curve:
            continue
        programs[strategy] = ":" + strategy
        if curves_from_seed:
            programs[strategy] += "_from_seed"
            _run(strategy + "_from_seed", workload, strategy, configs)
    for strategy in programs:
        _curve_test(
            strategy,
            programs,
            curve_steps,
            golden_steps,
            golden_tolerance,
            tags,
            size,
        )
        _curve_test(
            strategy,
            programs,
            curve_steps,
            golden_steps,
            cuda_tolerance or golden_tolerance * 3,
            tags + ["gpu"] + ([] if emulated_steps else ["slow_emulated"]),
            "medium",
            device = "cuda",
            emulated_steps = emulated_steps,
            # For the list of all of them.
            visibility = ["//experiments:__pkg__"],
        )
    base_run = {":base": "base"} if has_base and real_data else {}
    runs = dict(base_run.items() + [(":" + strategy, strategy) for strategy in strategies])
    _compare(
        "compare",
        {label: "%s:%s/%s" % (workload, workload, run) for label, run in runs.items()},
        base = "%s/base" % workload if base_run else None,
    )
    program(
        name = "certify",
        binary = "//tools/certify",
        arguments = ["--mpirun={path}/$(rootpath //build_defs:mpi_test.sh)"] +
                    ["%s={path}/$(rootpath %s)" % strategy for strategy in programs.items()] +
                    ["--"],
        data = programs.values() + ["//build_defs:mpi_test.sh"],
    )
    reference = programs.values()[0]
    program(
        name = "update_expected",
        binary = "//tools/curve:update_expected",
        arguments = [native.package_name() + "/expected_loss.csv", "{path}/$(rootpath %s)" % reference],
        data = [reference],
    )

def lockstep_experiment_aliases():
    """//experiments:<workload>_<strategy> for all experiments."""
    for workload, strategies in EXPERIMENTS.items():
        for strategy in strategies:
            native.alias(
                name = "%s_%s" % (workload, strategy),
                actual = "//experiments/%s:%s" % (workload, strategy),
            )

def lockstep_configurations(name):
    """The files of all experiments: what is trained, and the expected curves."""
    native.filegroup(
        name = name,
        srcs = ["//experiments/%s:configurations" % workload for workload in EXPERIMENTS],
    )

def lockstep_gpu_curve_tests(name):
    """The curve tests on a GPU of all experiments, as program_files."""
    program_files(
        name = name,
        testonly = True,
        programs = [
            "//experiments/%s:%s_cuda_curve_test" % (workload, strategy)
            for workload, strategies in EXPERIMENTS.items()
            for strategy in strategies
            if STRATEGIES[strategy].has_curve
        ],
    )

def lockstep_quickstart(name):
    """Every strategy on a small GPT or mixture and a small ResNet, shortened, side by side."""
    _compare(name, {
        "//experiments/%s:quickstart_%s" % (workload, strategy): "%s_quickstart:%s/%s_%s" %
                                                                 (workload, name, workload, strategy)
        for workload, strategies in QUICKSTART.items()
        for strategy in strategies
    })
