"""Finds the CUDA toolkit: $CUDA_HOME, or /usr/local/cuda.

Makes @local_cuda with CUDA_FOUND and NVCC in defs.bzl and, when there is a
toolkit, a target for each of its libraries. Without one the build is CPU-only,
and says so.
"""

# Headers of host code; nvcc finds its own.
_HEADERS = [
    "*.h",
    "*.hpp",
    "crt/**",
    "nccl_device/**",
    "nv/**",
    "nvtx3/**",
]

# What each target links. The driver's library comes with the driver: here its
# stub says which symbols there are.
_LIBRARIES = {
    "cublas": ["cublasLt"],
    "cuda_driver": ["cuda"],
    "cuda_runtime": ["cudart"],
    "cudnn": ["cudnn"],
    "nccl": ["nccl"],
    "nvtx": [],
}

_TARGET = """
cc_library(
    name = "{name}",
    hdrs = glob({headers}),
    includes = ["include"],
    linkopts = {linkopts},
    visibility = ["//visibility:public"],
)
"""

def _write(ctx, nvcc, build):
    ctx.file("BUILD", build)
    ctx.file("defs.bzl", "CUDA_FOUND = %s\nNVCC = \"%s\"\n" % (nvcc != "", nvcc))

def _local_cuda_impl(ctx):
    home = ctx.os.environ.get("CUDA_HOME", "/usr/local/cuda")
    nvcc = ctx.path(home + "/bin/nvcc")
    if not nvcc.exists:
        # buildifier: disable=print
        print("no CUDA toolkit at %s: the build is CPU-only" % home)
        _write(ctx, "", "")
        return
    ctx.symlink(home + "/include", "include")
    build = ""
    for name, libraries in _LIBRARIES.items():
        linkopts = ["-L%s/lib64" % home, "-L%s/lib64/stubs" % home, "-Wl,--as-needed"]
        build += _TARGET.format(
            name = name,
            headers = ["include/" + pattern for pattern in _HEADERS],
            linkopts = linkopts + ["-l" + library for library in libraries],
        )
    _write(ctx, str(nvcc), build)

local_cuda = repository_rule(
    implementation = _local_cuda_impl,
    environ = ["CUDA_HOME"],
    local = True,
)
