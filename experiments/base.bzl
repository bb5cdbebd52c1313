"""The weights of a model that is trained when it is built, for others to adapt."""

# Runs the trainer in a folder beside its output, which keeps nothing else of it.
_COMMAND = """
set -euo pipefail
weights="$1" trainer="$2"
shift 2
rm -rf "${weights}.run"
if ! "${trainer}" "$@" --out "${weights}.run" >"${weights}.log" 2>&1; then
  cat "${weights}.log" >&2
  exit 1
fi
mv "${weights}.run"/checkpoints/*.safetensors "${weights}"
rm -rf "${weights}.run" "${weights}.log"
"""

# One thread makes the same bits on all machines of a kind. Nobody looks at this run but through its
# weights: experiments have the program `base` for that.
_SETTINGS = [
    "run.threads=1",
    "checkpoint.every=0",
    "checkpoint.keep=1",
    "checkpoint.files=whole",
    "validation.every=0",
    "validation.batches=1",
    "trace.steps=0",
]

def _trained_weights_impl(ctx):
    weights = ctx.actions.declare_file(ctx.label.name + ".safetensors")
    arguments = ctx.actions.args()
    arguments.add(weights)
    arguments.add(ctx.executable.trainer)
    arguments.add_all(ctx.files.configs, before_each = "--config")
    arguments.add_all(_SETTINGS, before_each = "--set")
    ctx.actions.run_shell(
        outputs = [weights],
        inputs = ctx.files.configs,
        tools = [ctx.attr.trainer[DefaultInfo].files_to_run],
        command = _COMMAND,
        arguments = [arguments],
        # What the tests are told (.bazelrc), which are not the only ones to run under ThreadSanitizer.
        env = {"TSAN_OPTIONS": "ignore_noninstrumented_modules=1"},
        mnemonic = "TrainBase",
        progress_message = "Training %s" % ctx.label,
    )
    return [DefaultInfo(files = depset([weights]))]

trained_weights = rule(
    _trained_weights_impl,
    attrs = {
        "configs": attr.label_list(allow_files = [".toml"], mandatory = True),
        # In the configuration of what is built for the user: on this machine, with its instructions.
        "trainer": attr.label(executable = True, cfg = "target", mandatory = True),
    },
)
