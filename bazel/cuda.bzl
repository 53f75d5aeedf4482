"""CUDA code: the same warnings and layering as weft.bzl, compiled by nvcc.

Where there is no toolkit these rules make nothing, so nothing may depend on
what they make but through `if CUDA_FOUND` of @local_cuda//:defs.bzl.

All carry the tag `cuda`, which configurations of sanitizers leave out.
"""

load("@local_cuda//:defs.bzl", "CUDA_FOUND", "NVCC")
load(":rooms.bzl", "check_layering")
load(":weft.bzl", "weft_cc_binary", "weft_cc_library", "weft_cc_test")

# Hopper's own instructions (wgmma, setmaxnreg) need the "a".
_NVCC_FLAGS = [
    "-std=c++17",
    "-O3",
    "-gencode=arch=compute_90a,code=sm_90a",
    "-lineinfo",
    "--compress-mode=size",
    "--expt-relaxed-constexpr",
    "-Werror=all-warnings",
    "-Xcompiler=-fPIC,-Wall,-Wextra,-Werror,-Wno-unused-parameter,-Wno-sign-compare",
]

def _cuda_objects_impl(ctx):
    headers = depset(transitive = [
        dep[CcInfo].compilation_context.headers
        for dep in ctx.attr.deps
    ])
    objects = []
    for src in ctx.files.srcs:
        out = ctx.actions.declare_file(src.basename[:-len(".cu")] + ".pic.o")
        args = ctx.actions.args()
        args.add_all(_NVCC_FLAGS)
        args.add("-I.")
        args.add("-c", src)
        args.add("-o", out)
        ctx.actions.run(
            executable = NVCC,
            arguments = [args],
            inputs = depset([src] + ctx.files.hdrs, transitive = [headers]),
            outputs = [out],
            env = {"PATH": "/usr/local/bin:/usr/bin:/bin", "TMPDIR": "/tmp"},
            mnemonic = "CudaCompile",
            progress_message = "Compiling %s" % src.short_path,
        )
        objects.append(out)
    return [DefaultInfo(files = depset(objects))]

_cuda_objects = rule(
    implementation = _cuda_objects_impl,
    attrs = {
        "deps": attr.label_list(providers = [CcInfo]),
        "hdrs": attr.label_list(allow_files = [".h", ".cuh"]),
        "srcs": attr.label_list(allow_files = [".cu"]),
    },
)

def cuda_library(name, srcs = [], hdrs = [], deps = [], tags = [], testonly = False, **kwargs):
    """A library of .cu files and .cc files that use CUDA's libraries."""
    check_layering(name, deps, testonly)
    if not CUDA_FOUND:
        return
    cu_srcs = [src for src in srcs if src.endswith(".cu")]
    if cu_srcs:
        _cuda_objects(
            name = name + "_objects",
            srcs = cu_srcs,
            hdrs = hdrs,
            tags = tags + ["cuda"],
            testonly = testonly,
            deps = deps,
        )
    weft_cc_library(
        name = name,
        srcs = [src for src in srcs if not src.endswith(".cu")] +
               ([":" + name + "_objects"] if cu_srcs else []),
        hdrs = hdrs,
        tags = tags + ["cuda"],
        testonly = testonly,
        deps = deps,
        **kwargs
    )

def cuda_binary(name, tags = [], **kwargs):
    """A binary that needs the toolkit to link."""
    if CUDA_FOUND:
        weft_cc_binary(name = name, tags = tags + ["cuda"], **kwargs)

def cuda_test(name, tags = [], main = "//third_party:gtest_main", **kwargs):
    """A test that needs a GPU: built with everything, run on a GPU host.

    Bazel runs it nowhere: its tag `gpu` is filtered out.
    """
    if CUDA_FOUND:
        weft_cc_test(
            name = name,
            main = main,
            tags = tags + ["cuda", "gpu"],
            **kwargs
        )
