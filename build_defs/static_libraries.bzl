"""The archives among the system's libraries, in a folder of their own.

The linker takes a shared library wherever both kinds lie side by side. With this folder on its search
path it finds an archive first, and only what has none stays shared (--config=portable).
"""

_BUILD = """cc_library(
    name = "archives",
    linkopts = ["-L{folder}"],
    visibility = ["//visibility:public"],
)
"""

def _static_libraries_impl(ctx):
    found = [
        file
        for file in ctx.path(ctx.attr.path).readdir()
        if file.basename.endswith(".a") and
           any([file.basename.startswith("lib" + prefix) for prefix in ctx.attr.prefixes])
    ]
    for file in found:
        ctx.symlink(file, "lib/" + file.basename)
    ctx.file("BUILD", _BUILD.format(folder = ctx.path("lib")))

static_libraries = repository_rule(
    implementation = _static_libraries_impl,
    doc = "@name//:archives: what depends on it is linked with the archives of `path` whose names begin so.",
    attrs = {
        "path": attr.string(mandatory = True),
        "prefixes": attr.string_list(mandatory = True, doc = "Behind \"lib\"."),
    },
    local = True,
)
