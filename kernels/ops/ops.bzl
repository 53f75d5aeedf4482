"""Rules for ops: the flags that make their loops fast and repeatable.

Never -ffast-math: it would let the compiler reorder sums. -fno-trapping-math
and -fno-math-errno only give up floating-point exceptions and errno, which
nothing here reads.
"""

load("//bazel:cuda.bzl", "cuda_library", "cuda_test")
load("//bazel:weft.bzl", "weft_cc_benchmark", "weft_cc_library", "weft_cc_test")

_TARGET_COPTS = [
    "-march=x86-64-v3",
    "-fno-math-errno",
    "-fno-trapping-math",
]
OPS_COPTS = ["-O3"] + _TARGET_COPTS

# oneDNN asks OpenMP how many threads to use; a worker is launched with one.
_ENV = {"OMP_NUM_THREADS": "1"}

def op_library(name, srcs = [], hdrs = [], deps = [], cuda_srcs = [], cuda_deps = [], **kwargs):
    """An op: its interface, its CPU form and, as <name>_cuda, its CUDA form."""
    weft_cc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        copts = OPS_COPTS,
        deps = deps + [
            "//kernels/ops:cuda_form",
            "//kernels/ops:stream",
        ],
        **kwargs
    )
    if cuda_srcs:
        # Linked whole: it registers itself.
        cuda_library(
            name = name + "_cuda",
            srcs = cuda_srcs,
            alwayslink = True,
            deps = cuda_deps + [
                ":" + name,
                "//kernels/device/cuda:launch",
                "//kernels/ops:cuda_form",
                "//kernels/ops:stream",
                "//kernels/ops/math:cuda",
                "//third_party:cuda_runtime",
            ],
            **kwargs
        )

def op_test(name, srcs, deps = [], gpu = True, **kwargs):
    """A test of one op; as <name>_gpu on a GPU."""
    weft_cc_test(
        name = name,
        srcs = srcs,
        copts = _TARGET_COPTS,
        env = _ENV,
        deps = deps + ["//kernels/ops/testing"],
        **kwargs
    )
    if not gpu:
        return
    cuda_test(
        name = name + "_gpu",
        srcs = srcs,
        copts = _TARGET_COPTS,
        main = "//kernels/ops/testing:cuda_main",
        deps = deps + [
            "//kernels/ops:cuda",
            "//kernels/ops/testing",
        ],
        **kwargs
    )

def op_benchmark(name, srcs, deps = [], **kwargs):
    """A benchmark of one op; run it with OMP_NUM_THREADS=1."""
    weft_cc_benchmark(
        name = name,
        srcs = srcs,
        copts = OPS_COPTS,
        deps = deps + ["//kernels/ops/testing"],
        **kwargs
    )
