"""The rules every BUILD file of this tree uses.

They add the warnings of our own code and check the layering of rooms.bzl.
Generated code is compiled without warnings.
"""

load(":rooms.bzl", "check_layering")

WEFT_COPTS = [
    "-Wall",
    "-Wextra",
    "-Werror",
    "-Wno-unused-parameter",
    "-Wno-sign-compare",
]

# Bodies of tests run once: optimizing them takes longer than it saves. What
# they test keeps the flags of the configuration.
TEST_COPTS = WEFT_COPTS + ["-O0"]

def weft_cc_library(name, copts = [], deps = [], testonly = False, **kwargs):
    """A cc_library of our own code."""
    check_layering(name, deps, testonly)
    native.cc_library(
        name = name,
        testonly = testonly,
        copts = (TEST_COPTS if testonly else WEFT_COPTS) + copts,
        deps = deps,
        **kwargs
    )

def weft_cc_binary(name, copts = [], deps = [], testonly = False, **kwargs):
    """A cc_binary of our own code."""
    check_layering(name, deps, testonly)
    native.cc_binary(
        name = name,
        testonly = testonly,
        copts = WEFT_COPTS + copts,
        deps = deps,
        **kwargs
    )

def weft_cc_test(
        name,
        size = "small",
        copts = [],
        deps = [],
        main = "//third_party:gtest_main",
        **kwargs):
    """A gtest test; the main() comes with it.

    Tags: gpu, multi_gpu, notsan, noasan, cluster, slow, manual.
    """
    check_layering(name, deps, testonly = True)
    native.cc_test(
        name = name,
        size = size,
        copts = TEST_COPTS + copts,
        deps = deps + [main],
        **kwargs
    )

def weft_cc_benchmark(name, copts = [], deps = [], tags = [], **kwargs):
    """A google-benchmark binary, built with everything, run by hand."""
    check_layering(name, deps, testonly = True)
    native.cc_binary(
        name = name,
        testonly = True,
        copts = WEFT_COPTS + copts,
        tags = tags + ["benchmark"],
        deps = deps + ["//third_party:benchmark"],
        **kwargs
    )

def weft_proto_library(name, srcs, deps = [], grpc = False, visibility = None):
    """C++ and a descriptor set for the messages, and services, of `srcs`.

    The package that calls this is the root of imports: `weft/v1/job.proto` in
    package `//proto` is imported as "weft/v1/job.proto" and included as
    "weft/v1/job.pb.h".

    Makes `name` (a cc_library) and `<name>.desc` (a FileDescriptorSet with
    imports and comments).

    Args:
      name: of the cc_library.
      srcs: .proto files, relative to the package.
      deps: other weft_proto_library targets of the same package, as ":x".
      grpc: whether to generate services too.
      visibility: of all targets made.
    """
    for dep in deps:
        if not dep.startswith(":"):
            fail("weft_proto_library deps must be of the same package: " + dep)

    root = native.package_name()
    protoc = "protoc --proto_path=%s" % root
    inputs = " ".join(["$(location %s)" % src for src in srcs])
    stems = [src[:-len(".proto")] for src in srcs]
    hdrs = [stem + ".pb.h" for stem in stems]
    ccs = [stem + ".pb.cc" for stem in stems]
    outs = "--cpp_out=$(RULEDIR)"
    if grpc:
        hdrs = hdrs + [stem + ".grpc.pb.h" for stem in stems]
        ccs = ccs + [stem + ".grpc.pb.cc" for stem in stems]
        outs += " --grpc_out=$(RULEDIR)"
        outs += " --plugin=protoc-gen-grpc=/usr/bin/grpc_cpp_plugin"

    native.filegroup(
        name = name + "_protos",
        srcs = srcs + [dep + "_protos" for dep in deps],
        visibility = visibility,
    )
    native.genrule(
        name = name + "_gen",
        srcs = srcs + [":" + name + "_protos"],
        outs = hdrs + ccs,
        cmd = " ".join([protoc, outs, inputs]),
    )
    native.genrule(
        name = name + "_desc",
        srcs = srcs + [":" + name + "_protos"],
        outs = [name + ".desc"],
        cmd = " ".join([
            protoc,
            "--include_imports --include_source_info",
            "--descriptor_set_out=$@",
            inputs,
        ]),
        visibility = visibility,
    )
    native.cc_library(
        name = name,
        srcs = ccs,
        hdrs = hdrs,
        copts = ["-w"],
        # -isystem: warnings of generated headers are nobody's to fix.
        includes = ["."],
        visibility = visibility,
        deps = deps + [
            "//third_party:protobuf",
        ] + (["//third_party:grpc"] if grpc else []),
    )
