"""A program with arguments of its own, as a rule: `program` to run, `program_test` to test.

`program_files` has what such programs consist of, for a folder that runs them without Bazel.

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
# All that is needed lies as in the source tree: in the folder beside this, or in the one that this is
# a part of, which is that of a test, of another such script, or a packed one.
if [[ -d "$0.runfiles" ]]; then
  path="$(realpath "$0.runfiles")/{workspace}"
else
  path="$(realpath --no-symlinks "$0")"
  path="${{path%/{script}}}"
fi
if [[ ! -x "${{path}}/{binary}" ]]; then
  echo "$0: {binary} is not there; start this with bazel run or from bazel-bin" >&2
  exit 1
fi
exec {command} "$@"
"""

ProgramInfo = provider("What a program consists of, and all programs that it calls.", fields = {
    "files": "depset of scripts and data",
    "binaries": "depset of the binaries' paths below the workspace",
    "line": "the path of its own script below the workspace, and its tags",
})

def _shell_word(text):
    for character in ["\"", "\\", "`", "$"]:
        if character in text:
            fail("no quoting for '%s' in '%s'" % (character, text))
    if "{source}/" in text:
        before, file = text.split("{source}/")
        return "\"%s$(readlink -f \"${path}/%s\")\"" % (before, file)
    return "\"%s\"" % text.replace("{path}", "${path}")

def _program_impl(ctx):
    binary = ctx.executable.binary.short_path
    words = ["{path}/" + binary]
    words += [ctx.expand_location(argument, ctx.attr.data) for argument in ctx.attr.arguments]
    script = ctx.actions.declare_file(ctx.label.name)
    ctx.actions.write(script, _SCRIPT.format(
        label = ctx.label,
        workspace = ctx.workspace_name,
        script = script.short_path,
        binary = binary,
        command = " \\\n  ".join([_shell_word(word) for word in words]),
    ), is_executable = True)
    runfiles = ctx.runfiles(files = ctx.files.data)
    for target in [ctx.attr.binary] + ctx.attr.data:
        runfiles = runfiles.merge(target[DefaultInfo].default_runfiles)
    programs = [target[ProgramInfo] for target in ctx.attr.data if ProgramInfo in target]
    return [
        DefaultInfo(executable = script, runfiles = runfiles),
        ProgramInfo(
            files = depset([script] + ctx.files.data, transitive = [program.files for program in programs]),
            binaries = depset([binary], transitive = [program.binaries for program in programs]),
            line = " ".join([script.short_path] + ctx.attr.tags),
        ),
    ]

_ATTRIBUTES = {
    "binary": attr.label(executable = True, cfg = "target", mandatory = True),
    "arguments": attr.string_list(),
    "data": attr.label_list(allow_files = True),
}

program = rule(_program_impl, attrs = _ATTRIBUTES, executable = True)

program_test = rule(_program_impl, attrs = _ATTRIBUTES, test = True)

def _program_files_impl(ctx):
    programs = [target[ProgramInfo] for target in ctx.attr.programs]
    scripts = ctx.actions.declare_file(ctx.label.name + ".scripts")
    ctx.actions.write(scripts, "".join([program.line + "\n" for program in programs]))
    binaries = ctx.actions.declare_file(ctx.label.name + ".binaries")
    paths = depset(transitive = [program.binaries for program in programs]).to_list()
    ctx.actions.write(binaries, "".join([path + "\n" for path in sorted(paths)]))
    files = depset([scripts, binaries], transitive = [program.files for program in programs])
    return [DefaultInfo(files = files, runfiles = ctx.runfiles(transitive_files = files))]

program_files = rule(
    _program_files_impl,
    doc = "Programs without their binaries: scripts and data; <name>.scripts, a line each of " +
          "`programs` with its tags; and <name>.binaries, what the scripts want to find.",
    attrs = {"programs": attr.label_list(providers = [ProgramInfo], mandatory = True)},
)
