"""Faults that are put into the CUDA backend on purpose, each of which a test must find."""

load("//build_defs:cc.bzl", "ls_cc_binary")
load("//build_defs:cuda.bzl", "CUDA_EMULATED_ONLY", "EMULATED_COPTS")

def _with_fault_impl(ctx):
    output = ctx.actions.declare_file(ctx.label.name + ".cc")
    ctx.actions.run(
        executable = "/usr/bin/python3",
        arguments = [
            ctx.file._with_fault.path,
            ctx.file.src.path,
            output.path,
            ctx.attr.was,
            ctx.attr.becomes,
        ],
        inputs = [ctx.file._with_fault, ctx.file.src],
        outputs = [output],
        mnemonic = "PutFault",
    )
    return [DefaultInfo(files = depset([output]))]

_with_fault = rule(
    implementation = _with_fault_impl,
    doc = "A copy of a C++ source in which one text is replaced.",
    attrs = {
        "src": attr.label(allow_single_file = [".cc"], mandatory = True),
        "was": attr.string(mandatory = True),
        "becomes": attr.string(mandatory = True),
        "_with_fault": attr.label(default = ":with_fault.py", allow_single_file = True),
    },
)

def fault_test(name, source, was, becomes, library, suite, tests, message = "\\[  FAILED  \\]", env = {}):
    """A test that passes if `tests` fail once `was` is replaced by `becomes` in `source`.

    The program is linked with the faulty copy before `library`, whose own object of the source is
    then not needed: both define the same symbols.

    Args:
      name: of the test.
      source: a .cc file; for a .cu file, the target that translates it ("..._emulated").
      was: text that the source has exactly once.
      becomes: what stands there instead.
      library: the library that the source belongs to.
      suite: the library of test cases (ls_gpu_test's ":..._cases").
      tests: GoogleTest's filter.
      message: an extended regular expression that a line of the output must match.
      env: the tests' environment.
    """
    _with_fault(
        name = name + "_source",
        src = source,
        was = was,
        becomes = becomes,
        target_compatible_with = CUDA_EMULATED_ONLY,
    )
    ls_cc_binary(
        name = name + "_program",
        testonly = True,
        srcs = [name + "_source"],
        copts = EMULATED_COPTS if source.endswith("_emulated") else [],
        target_compatible_with = CUDA_EMULATED_ONLY,
        deps = [library, suite, "//third_party/gtest:gtest_main"],
    )
    native.sh_test(
        name = name,
        size = "medium",
        srcs = ["expect_found.sh"],
        args = ["$(rootpath %s_program)" % name, "'%s'" % tests, "'%s'" % message],
        data = [name + "_program"],
        env = env,
        tags = ["gpu"],
        target_compatible_with = CUDA_EMULATED_ONLY,
    )
