"""Code for NVIDIA's GPUs, built under --config=cuda, and under --config=cuda_emulated for emulated ones.

    ls_cuda_library(
        name = "reductions",
        srcs = ["reductions.cu"],   # compiled by nvcc
        hdrs = ["reductions.h"],    # plain C++: what other targets include
        deps = [":elements"],
    )

A .cu file holds kernels and what starts them, on plain pointers; C++ around them (tensors, statuses) is
compiled by the C++ compiler, as everywhere else, in targets with target_compatible_with = CUDA_ONLY.
Under --config=cuda_emulated a .cu file is translated to C++ (//core/cuda/emulation), which takes nvcc's place.
Without either configuration all of these are skipped.
"""

load("//build_defs:cc.bzl", "ls_cc_library", "ls_cc_test")

# The value of target_compatible_with for whatever needs CUDA.
CUDA_ONLY = select({
    "//build_defs:cuda": [],
    "//build_defs:cuda_emulated": [],
    "//conditions:default": ["//build_defs:skip"],
})

# The value of target_compatible_with for what only emulated GPUs need.
CUDA_EMULATED_ONLY = select({
    "//build_defs:cuda_emulated": [],
    "//conditions:default": ["//build_defs:skip"],
})

# The same for what nvcc compiles, and what needs NVIDIA's libraries.
NVCC_ONLY = select({
    "//build_defs:cuda": [],
    "//conditions:default": ["//build_defs:skip"],
})

# The same for what needs the headers of cuDNN's frontend too.
FRONTEND_ONLY = select({
    "//third_party/cudnn_frontend:fetched": [],
    "//conditions:default": ["//build_defs:skip"],
})

# What sources that include the frontend's headers, where these are there, are told of them.
FRONTEND_DEFINES = select({
    "//third_party/cudnn_frontend:fetched": [
        "LOCKSTEP_CUDNN_FRONTEND",
        # Plans are not written to files: without JSON a source compiles in half the time.
        "CUDNN_FRONTEND_SKIP_JSON_LIB",
    ],
    "//conditions:default": [],
})

def if_cuda(values, otherwise = []):
    """`values` with CUDA, emulated or not, else `otherwise`."""
    return select({
        "//build_defs:cuda": values,
        "//build_defs:cuda_emulated": values,
        "//conditions:default": otherwise,
    })

# A100; H100 and H200, and for whatever comes later, PTX. Each "arch" is one pass of the compiler over all
# kernels.
_ARCHITECTURES = [
    "-gencode=arch=compute_80,code=sm_80",
    "-gencode=arch=compute_90,code=[sm_90,compute_90]",
]

_FLAGS = [
    "-std=c++20",
    "-O3",
    # As on the CPU: a*b+c is fused only where the code says fmaf.
    "-fmad=false",
    "-Xcompiler=-ffp-contract=off",
    # Profilers and compute-sanitizer name lines of the source.
    "-lineinfo",
    # A fifth of the default's size; unpacked when a program starts.
    "--compress-mode=size",
    "-Werror=all-warnings",
    "-Xcompiler=-fPIC,-Wall,-Wextra,-Werror",
]

def _cuda_object_impl(ctx):
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    output = ctx.actions.declare_file(ctx.label.name + ".pic.o")
    arguments = ctx.actions.args()
    arguments.add_all(_FLAGS + _ARCHITECTURES)
    arguments.add("-I.")
    arguments.add_all(context.quote_includes, format_each = "-I%s")
    arguments.add_all(context.includes, format_each = "-I%s")
    arguments.add_all(context.system_includes, before_each = "-isystem")
    arguments.add_all(context.defines, format_each = "-D%s")
    arguments.add("-c", ctx.file.src)
    arguments.add("-o", output)
    ctx.actions.run(
        executable = ctx.file.nvcc,
        arguments = [arguments],
        inputs = depset([ctx.file.src] + ctx.files.hdrs, transitive = [context.headers]),
        outputs = [output],
        mnemonic = "CudaCompile",
        progress_message = "Compiling %s with nvcc" % ctx.file.src.short_path,
        use_default_shell_env = True,
    )
    return [DefaultInfo(files = depset([output]))]

_cuda_object = rule(
    implementation = _cuda_object_impl,
    doc = "One .cu file as an object file.",
    attrs = {
        "src": attr.label(allow_single_file = [".cu"], mandatory = True),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "nvcc": attr.label(allow_single_file = True),
    },
)

def _translated_impl(ctx):
    context = cc_common.merge_cc_infos(
        cc_infos = [dep[CcInfo] for dep in ctx.attr.deps],
    ).compilation_context
    output = ctx.actions.declare_file(ctx.label.name + ".cc")
    ctx.actions.run(
        executable = "/usr/bin/python3",
        arguments = [ctx.file._translate.path, ".", ctx.file.src.path, output.path],
        inputs = depset(
            [ctx.file._translate, ctx.file.src] + ctx.files.hdrs,
            transitive = [context.headers],
        ),
        outputs = [output],
        mnemonic = "CudaTranslate",
        progress_message = "Translating %s for emulated GPUs" % ctx.file.src.short_path,
    )
    return [DefaultInfo(files = depset([output]))]

_translated = rule(
    implementation = _translated_impl,
    doc = "One .cu file as C++ for emulated GPUs.",
    attrs = {
        "src": attr.label(allow_single_file = [".cu"], mandatory = True),
        "hdrs": attr.label_list(allow_files = True),
        "deps": attr.label_list(providers = [CcInfo]),
        "_translate": attr.label(
            default = "//core/cuda/emulation:translate.py",
            allow_single_file = True,
        ),
    },
)

# The compiler calls the emulation before each access to memory (core/cuda/emulation/access_hooks.cc).
# nvcc knows other pragmas, and lets one type's memory be read as another's, as kernels do.
EMULATED_COPTS = [
    "-Wno-unknown-pragmas",
    "-Wno-sizeof-array-div",
    "-fno-strict-aliasing",
    # The emulation checks each access itself, in more ways than AddressSanitizer, and the compiler
    # takes one of the two. It names the kernel that has an unaligned access too, which
    # UndefinedBehaviorSanitizer would not.
    "-fno-sanitize=address,alignment",
    "-fsanitize=thread",
    "--param=tsan-instrument-func-entry-exit=0",
]

def ls_cuda_library(name, srcs, hdrs = [], deps = [], **kwargs):
    """A C++ library whose sources nvcc compiles.

    Args:
      name: of the library, which C++ targets depend on.
      srcs: .cu files, and headers that only they include.
      hdrs: what C++ includes too.
      deps: C++ libraries whose headers the sources include.
      **kwargs: as for ls_cc_library.
    """
    headers = [src for src in srcs if not src.endswith(".cu")]
    objects = []
    translated = []
    for src in srcs:
        if src.endswith(".cu"):
            objects.append("%s_%s" % (name, src[:-len(".cu")]))
            _cuda_object(
                name = objects[-1],
                src = src,
                nvcc = select({
                    "//build_defs:cuda": "@system_cuda//:bin/nvcc",
                    "//conditions:default": None,
                }),
                hdrs = hdrs + headers,
                deps = deps,
                target_compatible_with = NVCC_ONLY,
                visibility = ["//visibility:private"],
            )
            translated.append(objects[-1] + "_emulated")
            _translated(
                name = translated[-1],
                src = src,
                hdrs = hdrs + headers,
                deps = deps,
                target_compatible_with = CUDA_EMULATED_ONLY,
                visibility = ["//core/cuda/emulation/faults:__pkg__"],
            )
    ls_cc_library(
        name = name,
        srcs = headers + select({
            "//build_defs:cuda_emulated": translated,
            "//conditions:default": objects,
        }),
        hdrs = hdrs,
        copts = select({
            "//build_defs:cuda_emulated": EMULATED_COPTS,
            "//conditions:default": [],
        }),
        deps = deps + ["//third_party/cuda:cudart"],
        target_compatible_with = CUDA_ONLY,
        **kwargs
    )

def ls_gpu_test(name, srcs, deps, **kwargs):
    """A test that needs a GPU; it fails where there is none.

    Its cases, :<name>_cases, are a library too, for programs that take tests to a GPU (//tools/portable).

    Args:
      name: of the test.
      srcs: of GoogleTest's tests.
      deps: without GoogleTest.
      **kwargs: as for ls_cc_test; its size is "small" where none is given.
    """
    _gpu_test(name, srcs, deps, [], CUDA_ONLY, **kwargs)

def ls_emulated_test(name, srcs, deps, **kwargs):
    """A test of what emulated GPUs alone can show, such as a GPU that stands still.

    Args:
      name: of the test. Its cases, :<name>_cases, are a library too (//core/cuda/emulation/faults).
      srcs: of GoogleTest's tests.
      deps: without GoogleTest.
      **kwargs: as for ls_cc_test; its size is "small" where none is given.
    """
    _gpu_test(name, srcs, deps, ["emulated"], CUDA_EMULATED_ONLY, **kwargs)

def _gpu_test(name, srcs, deps, tags, target_compatible_with, size = "small", **kwargs):
    ls_cc_library(
        name = name + "_cases",
        testonly = True,
        srcs = srcs,
        alwayslink = True,
        tags = tags,
        target_compatible_with = target_compatible_with,
        deps = deps + ["//third_party/gtest:gmock"],
    )
    ls_cc_test(
        name = name,
        size = size,
        tags = tags + ["gpu"],
        target_compatible_with = target_compatible_with,
        deps = [
            ":%s_cases" % name,
            "//third_party/gtest:gtest_main",
        ],
        **kwargs
    )
