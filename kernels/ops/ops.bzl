"""Rules for ops: the flags that make their loops fast and repeatable.

Never -ffast-math: it would let the compiler reorder sums. -fno-trapping-math
and -fno-math-errno only give up floating-point exceptions and errno, which
nothing here reads.
"""

load("//bazel:weft.bzl", "weft_cc_benchmark", "weft_cc_library", "weft_cc_test")

_TARGET_COPTS = [
    "-march=x86-64-v3",
    "-fno-math-errno",
    "-fno-trapping-math",
]
OPS_COPTS = ["-O3"] + _TARGET_COPTS

# oneDNN asks OpenMP how many threads to use; a worker is launched with one.
_ENV = {"OMP_NUM_THREADS": "1"}

def op_library(name, srcs = [], hdrs = [], deps = [], **kwargs):
    """An op: its interface and its CPU form."""
    weft_cc_library(
        name = name,
        srcs = srcs,
        hdrs = hdrs,
        copts = OPS_COPTS,
        deps = deps + ["//kernels/ops:stream"],
        **kwargs
    )

def op_test(name, srcs, deps = [], **kwargs):
    """A test of one op."""
    weft_cc_test(
        name = name,
        srcs = srcs,
        copts = _TARGET_COPTS,
        env = _ENV,
        deps = deps + ["//kernels/ops/testing"],
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
