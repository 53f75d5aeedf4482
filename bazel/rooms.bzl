"""Which room may include which: the layering of the tree, as data.

The rules of weft.bzl check each target they make against these tables while its
BUILD file is loaded, so no package escapes and a violation fails the build.
"""

# A room is a folder with all below it, up to a room of its own further down.
# Each may include itself, `base`, `proto` and the rooms named here; a test may
# include what those rooms include, too. ANY is for what stands outside.
ANY = "*"

_KERNELS = ["kernels/device", "kernels/comm", "kernels/ops"]

_WORKER = _KERNELS + [
    "checkpoint",
    "checkpoint/format",
    "data",
    "data/format",
    "fsdp/runtime",
    "fsdp/unit",
    "model",
    "monitoring",
    "records",
    "schedule",
    "worker/layers",
]

ROOMS = {
    "base": [],
    "proto": [],
    "model": [],
    "fsdp/unit": ["model"],
    "schedule": ["model", "fsdp/unit"],
    "kernels/device": [],
    "kernels/comm": ["kernels/device"],
    "kernels/ops": ["kernels/device"],
    "fsdp/runtime": ["fsdp/unit"] + _KERNELS,
    "data/format": ["model"],
    "checkpoint/format": ["model"],
    "data": ["data/format", "fsdp/unit"],
    "records": [],
    "monitoring": [],
    "checkpoint": ["checkpoint/format", "fsdp/unit"],
    "worker/layers": ["model"] + _KERNELS,
    # worker/exec, worker/service, worker/telemetry and the binary.
    "worker": _WORKER,
    "coordinator": [
        "checkpoint/format",
        "data/format",
        "fsdp/unit",
        "model",
        "monitoring",
        "records",
        "schedule",
    ],
    "client": ["checkpoint/format", "data/format", "schedule"],
    "bazel": [ANY],
    "bench": [ANY],
    "deploy": [ANY],
    "docs": [ANY],
    "examples": [ANY],
    "scripts": [ANY],
    "tests": [ANY],
    "third_party": [ANY],
}

# Rooms that every room but themselves may use.
_VOCABULARY = ["base", "proto", "bazel"]

# `base` stands on abseil and glog alone, `proto` on protobuf and gRPC.
_NO_VOCABULARY = ["base", "proto"]

# The system libraries that not every room may use. A name stands for the
# targets of //third_party that begin with it.
LIBRARIES = {
    "civetweb": ["monitoring"],
    "cu": _KERNELS,
    "dnnl": ["kernels/ops"],
    "grpc": ["client", "coordinator", "worker"],
    "nccl": ["kernels/comm"],
    "nvtx": ["kernels/device"],
    "prometheus_cpp": ["monitoring"],
    "sqlite3": ["coordinator"],
    "ucx": ["kernels/comm"],
}

def room_of(package):
    """The room of a package: the longest that holds it; None if there is none."""
    parts = package.split("/")
    for n in range(len(parts), 0, -1):
        candidate = "/".join(parts[:n])
        if candidate in ROOMS:
            return candidate
    return None

def rooms_reached(room):
    """The rooms that a room includes, and that those include, and so on."""
    reach = list(ROOMS[room])

    # Starlark has no `while`; no chain is longer than the number of rooms.
    for _ in ROOMS:
        for included in list(reach):
            for further in ROOMS[included]:
                if further not in reach:
                    reach.append(further)
    return reach

def _labels(deps):
    """The labels in `deps`, whether it is a list or holds select()s."""
    if type(deps) == "list":
        return deps

    # A select() cannot be walked, but prints its labels between quotes.
    # Conditions are among them, which is why //bazel is open to all.
    return [part for i, part in enumerate(str(deps).split("\"")) if i % 2 == 1]

def _library_violation(room, label):
    library = label.split(":")[-1] if ":" in label else label.split("/")[-1]
    for prefix, rooms in LIBRARIES.items():
        if library.startswith(prefix) and room not in rooms:
            return "%s is only for %s" % (label, ", ".join(rooms))
    return None

def layering_violations(package, deps, testonly = False):
    """What is wrong with a target of `package` that depends on `deps`.

    Args:
      package: of the target, without slashes in front.
      deps: its labels, a list or an expression with select().
      testonly: whether the target is a test or for tests.

    Returns:
      A list of sentences; empty when all is well.
    """
    room = room_of(package)
    if package != "" and room == None:
        return ["//%s is in no room; see ROOMS in //bazel:rooms.bzl" % package]
    if package == "" or ANY in ROOMS[room]:
        return []

    allowed = [room] + (rooms_reached(room) if testonly else ROOMS[room])
    if room not in _NO_VOCABULARY:
        allowed = allowed + _VOCABULARY

    violations = []
    for label in _labels(deps):
        if not label.startswith("//"):
            continue  # Of the same package.
        target_package = label[2:].split(":")[0]
        target_room = room_of(target_package)
        if target_room == "third_party":
            violation = _library_violation(room, label)
            if violation:
                violations.append(violation)
        elif target_room not in allowed:
            violations.append("%s is not among what %s may include: %s" % (
                label,
                room,
                ", ".join(allowed),
            ))
    return violations

def check_layering(name, deps, testonly = False):
    """Fails the build when target `name` of this package breaks the layering."""
    violations = layering_violations(native.package_name(), deps, testonly)
    if violations:
        fail("//%s:%s breaks the layering: %s" % (
            native.package_name(),
            name,
            "; ".join(violations),
        ))
