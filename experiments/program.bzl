"""A program with arguments of its own, as a rule: `program` to run, `program_test` to test.

`bazel run` and the file in bazel-bin do the same, and nothing is linked anew: what is built is a
script of a few lines that hands over to a binary.

In `arguments`, "{path}/$(rootpath LABEL)" stands for the path of a file of `data`, and
"{source}/$(rootpath LABEL)", with which an argument ends, for the file itself behind it, in the
source tree or as it was built, which is what messages about it should name. The user's own
arguments come behind.
"""

_SCRIPT = """#!/usr/bin/env bash
# Made by //experiments:program.bzl for {label}.
set -euo pipefail
if [[ -d "$0.runfiles" ]]; then
  RUNFILES_DIR="$(realpath "$0.runfiles")"
fi
# Set by `bazel test`, and by another such script that calls this one.
export RUNFILES_DIR="${{RUNFILES_DIR:?start this with bazel run or from bazel-bin}}"
path="${{RUNFILES_DIR}}/{workspace}"
exec {command} "$@"
"""

def _shell_word(text):
    for character in ["\"", "\\", "`", "$"]:
        if character in text:
            fail("no quoting for '%s' in '%s'" % (character, text))
    if "{source}/" in text:
        before, file = text.split("{source}/")
        return "\"%s$(readlink -f \"${path}/%s\")\"" % (before, file)
    return "\"%s\"" % text.replace("{path}", "${path}")

def _program_impl(ctx):
    words = ["{path}/" + ctx.executable.binary.short_path]
    words += [ctx.expand_location(argument, ctx.attr.data) for argument in ctx.attr.arguments]
    script = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(script, _SCRIPT.format(
        label = ctx.label,
        workspace = ctx.workspace_name,
        command = " \\\n  ".join([_shell_word(word) for word in words]),
    ), is_executable = True)
    runfiles = ctx.runfiles(files = ctx.files.data)
    for target in [ctx.attr.binary] + ctx.attr.data:
        runfiles = runfiles.merge(target[DefaultInfo].default_runfiles)
    return [DefaultInfo(executable = script, runfiles = runfiles)]

_ATTRIBUTES = {
    "binary": attr.label(executable = True, cfg = "target", mandatory = True),
    "arguments": attr.string_list(),
    "data": attr.label_list(allow_files = True),
}

program = rule(_program_impl, attrs = _ATTRIBUTES, executable = True)

program_test = rule(_program_impl, attrs = _ATTRIBUTES, test = True)
