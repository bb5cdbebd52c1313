"""An experiment: one workload under every strategy. See lockstep_experiment."""

load("//build_defs:cuda.bzl", "CUDA_ONLY")
load(":program.bzl", "program", "program_test")
load(":strategies.bzl", "EXPERIMENTS", "QUICKSTART", "STRATEGIES")

def _run(name, workload, strategy, configs):
    """A program that trains with a strategy: `configs`, then what the user adds."""
    arguments = []
    for config in configs:
        arguments += ["--config", "{source}/$(rootpath %s)" % config]
    if STRATEGIES[strategy].program:
        # The program would name the run after itself.
        arguments += ["--out", "runs/%s/%s" % (workload, strategy)]
    program(
        name = name,
        binary = "//strategies/%s:main" % (STRATEGIES[strategy].program or strategy),
        arguments = arguments,
        data = configs,
        visibility = ["//visibility:public"],
    )

def _compare(name, runs):
    """A program that makes runs and shows them side by side.

    Args:
      name: of the program.
      runs: a dict from label to "WORKLOAD:NAME", the workload that the run has by its configuration
        and the run's directory.
    """
    program(
        name = name,
        binary = "//tools/compare:run_and_compare",
        # The same threads for every rank of every strategy: only then are sums made in the same
        # order, and the differences 0.
        arguments = ["%s={path}/$(rootpath %s)" % (run, label) for label, run in runs.items()] +
                    ["--", "--set", "run.threads=1"],
        data = runs.keys(),
    )

def _curve_test(
        strategy,
        others,
        steps,
        tolerant_steps,
        golden_steps,
        golden_tolerance,
        tags,
        size,
        device = "cpu",
        **kwargs):
    tolerance = STRATEGIES[strategy].tolerance
    reference_steps = tolerant_steps if tolerance > 0 else steps
    steps = max(reference_steps, golden_steps)
    arguments = [
        "--candidate={path}/$(rootpath :%s)" % strategy,
        "--steps=%d" % steps,
        "--device=%s" % device,
        "--golden",
        "{source}/$(rootpath :expected_loss.csv)",
        "--golden_steps=%d" % golden_steps,
        "--golden_tolerance=%s" % golden_tolerance,
        "--all=" + ",".join(["%s={path}/$(rootpath :%s)" % (other, other) for other in others]),
    ]

    # On a GPU single is held to another run of its own: it repeats its bits.
    if strategy != "single" or device != "cpu":
        arguments += [
            "--reference={path}/$(rootpath :single)",
            "--reference_steps=%d" % reference_steps,
            "--reference_tolerance=%s" % tolerance,
        ]
    program_test(
        name = strategy + ("" if device == "cpu" else "_" + device) + "_curve_test",
        size = size,
        binary = "//tools/curve",
        arguments = arguments,
        data = [":" + other for other in others] + [":expected_loss.csv"],
        tags = tags,
        **kwargs
    )

def lockstep_experiment(
        curve_steps,
        golden_steps,
        golden_tolerance,
        tolerant_steps = None,
        cuda_tolerance = None,
        real_data = False,
        size = "small",
        tags = []):
    """All targets of the experiment in whose BUILD file this is called.

    The folder holds workload.toml (all that makes the loss curve, the number of shards excepted),
    a <strategy>.toml each (mesh and options) and expected_loss.csv (the curve of `single`, with its
    shards). For each strategy that strategies.bzl names for this workload:

      :<strategy>             trains; arguments behind `--` are passed on
      :<strategy>_curve_test  runs the first steps, one thread a rank, and holds them to `single` run
                              in the same way (exact lane) and to expected_loss.csv (golden lane);
                              when it fails, it runs all strategies to tell which of them moved
      :<strategy>_cuda_curve_test
                              the same on a GPU that all ranks share, `single` held to a second run of
                              itself; tagged "gpu"

    and for all of them:

      :compare                runs them one after another and shows them side by side, as tables and a page; and `single`
                              once more for each other cut of the batch among them, as a reference
      :update_expected        makes expected_loss.csv anew

    Args:
      curve_steps: how many steps the curve tests walk, and hold to `single`. The schedule must not
        depend on it: workload.toml states schedule.total_steps.
      tolerant_steps: the same for strategies that have a tolerance, if these must be fewer; each
        BUILD file says why.
      golden_steps: how many of these are held to expected_loss.csv.
      golden_tolerance: how far from expected_loss.csv their losses may be, relatively. Not 0, since
        another machine's vector width, or another number of threads, adds in another order. Each
        BUILD file says why its values tell that from a change of the mathematics.
      cuda_tolerance: the same on a GPU, whose libraries add in orders of their own and whose exp is
        another; as long as it has not been measured, 30 times golden_tolerance.
      real_data: whether the workload needs the folder that LOCKSTEP_DATA names. The curve tests then
        carry the tag "real_data", which only --config=real_data (.bazelrc) runs.
      size: of the curve tests.
      tags: of the curve tests; "large" for models whose memory sanitizers would multiply (.bazelrc).
    """
    workload = native.package_name().split("/")[-1]
    strategies = EXPERIMENTS[workload]
    tags = tags + (["real_data"] if real_data else [])
    configs = ["workload.toml"] + [strategy + ".toml" for strategy in strategies]
    if workload in QUICKSTART:
        configs.append("quickstart.toml")
    native.exports_files(configs + ["expected_loss.csv"], visibility = ["//experiments:__pkg__"])
    with_curve = [strategy for strategy in strategies if STRATEGIES[strategy].has_curve]
    for strategy in strategies:
        _run(strategy, workload, strategy, [":workload.toml", ":%s.toml" % strategy])
        if strategy not in with_curve:
            continue
        _curve_test(
            strategy,
            with_curve,
            curve_steps,
            tolerant_steps or curve_steps,
            golden_steps,
            golden_tolerance,
            tags,
            size,
        )
        _curve_test(
            strategy,
            with_curve,
            curve_steps,
            tolerant_steps or curve_steps,
            golden_steps,
            cuda_tolerance or golden_tolerance * 30,
            tags + ["gpu"],
            "medium",
            device = "cuda",
            target_compatible_with = CUDA_ONLY,
        )
    _compare(
        "compare",
        {":" + strategy: "%s:%s/%s" % (workload, workload, strategy) for strategy in strategies},
    )
    program(
        name = "update_expected",
        binary = "//tools/curve:update_expected",
        arguments = [native.package_name() + "/expected_loss.csv", "{path}/$(rootpath :single)"],
        data = [":single"],
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
        srcs = [
            "//experiments/%s:%s" % (workload, file)
            for workload, strategies in EXPERIMENTS.items()
            for file in ["workload.toml", "expected_loss.csv"] + [s + ".toml" for s in strategies]
        ],
    )

def lockstep_quickstart(name):
    """Every strategy on a small GPT and a small ResNet, shortened, side by side."""
    runs = {}
    for workload in QUICKSTART:
        for strategy in EXPERIMENTS[workload]:
            run = "%s_%s_%s" % (name, workload, strategy)
            shortened = "%s_%s" % (workload, name)  # as its quickstart.toml calls it
            folder = "//experiments/%s:" % workload
            _run(run, shortened, strategy, [
                folder + "workload.toml",
                folder + strategy + ".toml",
                folder + "quickstart.toml",
            ])
            runs[":" + run] = "%s:%s/%s_%s" % (shortened, name, workload, strategy)
    _compare(name, runs)
