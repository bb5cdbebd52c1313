"""The C++ rules of this repository: the native ones, with warnings as errors.

All attributes of the native rules are passed through.
"""

_WARNINGS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wcast-qual",
    "-Wextra-semi",
    "-Wimplicit-fallthrough",
    "-Wnon-virtual-dtor",
    "-Woverloaded-virtual",
    "-Wpointer-arith",
    "-Wshadow=local",
    "-Wvla",
    # gcc 12 reports plain std::string concatenation at -O2 and above (gcc bug 105651).
    "-Wno-restrict",
]

# Everything links statically among itself: each source is compiled once, for binaries and tests
# alike, and both run the same object code.
def ls_cc_library(name, copts = [], linkstatic = True, visibility = ["//visibility:public"], **kwargs):
    native.cc_library(
        name = name,
        copts = _WARNINGS + copts,
        linkstatic = linkstatic,
        visibility = visibility,
        **kwargs
    )

def ls_cc_binary(name, copts = [], visibility = ["//visibility:public"], **kwargs):
    native.cc_binary(
        name = name,
        copts = _WARNINGS + copts,
        visibility = visibility,
        **kwargs
    )

# A test's own code runs once and is compiled often: a third of the time at -O3 is saved, and what it
# tests is compiled as for programs.
_TEST_COPTS = ["-O1"]

def ls_cc_test(name, copts = [], linkstatic = True, **kwargs):
    native.cc_test(
        name = name,
        copts = _WARNINGS + _TEST_COPTS + copts,
        linkstatic = linkstatic,
        **kwargs
    )

def _link_only_impl(ctx):
    return [
        CcInfo(linking_context = ctx.attr.dep[CcInfo].linking_context),
        DefaultInfo(default_runfiles = ctx.attr.dep[DefaultInfo].default_runfiles),
    ]

ls_link_only = rule(
    implementation = _link_only_impl,
    doc = """A library of which programs are linked with the objects, and no source sees a header or a define.

    What depends on it is compiled the same, and so only once, whatever configuration decides `dep` is.""",
    attrs = {"dep": attr.label(mandatory = True, providers = [CcInfo])},
)
