"""Tests of the layering: of its rules, and of what targets really reach."""

load("//bazel:rooms.bzl", "LIBRARIES", "ROOMS", "layering_violations", "rooms_reached")

def _mistakes(rows):
    """Where the rules let through, or refuse, other than `rows` says.

    For every room and every room it might include, a target of the one on a
    target of the other is put before the rules.
    """
    mistakes = []
    if sorted(rows) != sorted([r for r in ROOMS if ROOMS[r] != ["*"]]):
        mistakes.append("the rows are not the rooms")
        return mistakes
    for room, row in rows.items():
        for other in ROOMS:
            wanted = other == room or other in row
            label = "//%s/some/package:target" % other
            got = not layering_violations(room + "/package", [label])
            if other == "third_party":
                wanted = True
            if wanted != got:
                mistakes.append("%s on %s: allowed is %s, should be %s" % (
                    room,
                    other,
                    got,
                    wanted,
                ))
    return mistakes

def rules_test(name, rows, refused, accepted):
    """Tests the rules of //bazel:rooms.bzl.

    Args:
      name: of the test.
      rows: what each room may include, as the design has it.
      refused: (package, deps, testonly) to be refused.
      accepted: (package, deps, testonly) to be accepted.
    """
    mistakes = _mistakes(rows)
    for package, deps, testonly in refused:
        if not layering_violations(package, deps, testonly):
            mistakes.append("//%s on %s is not refused" % (package, deps))
    for package, deps, testonly in accepted:
        for violation in layering_violations(package, deps, testonly):
            mistakes.append("//%s: %s" % (package, violation))
    _listing_test(name, mistakes)

def _listing_test(name, lines):
    """A test that fails, printing `lines`, unless there are none."""
    native.genrule(
        name = name + "_mistakes",
        testonly = True,
        outs = [name + ".mistakes"],
        cmd = "cat >$@ <<'END'\n%sEND" % "".join([
            line.replace("$", "$$") + "\n"
            for line in lines
        ]),
    )
    native.sh_test(
        name = name,
        size = "small",
        srcs = ["expect_empty.sh"],
        args = ["$(location :%s.mistakes)" % name],
        data = [":%s.mistakes" % name],
    )

def reach_test(name, room, targets, within = None):
    """Tests that `targets` of `room` reach, by any way, only allowed targets.

    Unlike the rules, which see the direct dependencies of our own targets, this
    asks the build graph.

    Args:
      name: of the test.
      room: whose row is tested.
      targets: of the room.
      within: targets that reach them all; for rooms that are not visible here.
    """
    native.genquery(
        name = name + "_deps",
        testonly = True,
        expression = "deps(set(%s))" % " ".join(targets),
        opts = [
            "--noimplicit_deps",
            "--notool_deps",
        ],
        scope = within or targets,
    )
    rooms = rooms_reached(room) + [room, "base", "proto"]
    libraries = [
        library
        for library, users in LIBRARIES.items()
        if not [r for r in rooms if r in users]
    ]

    # The generated services of //proto come with gRPC for whoever asks for a
    # message only; it is linked by those that use it.
    libraries = [library for library in libraries if library != "grpc"]
    native.sh_test(
        name = name,
        size = "small",
        srcs = ["expect_reach.sh"],
        args = [
            "$(location :%s_deps)" % name,
            "'%s'" % " ".join(rooms),
            "'%s'" % " ".join(libraries),
        ],
        data = [":%s_deps" % name],
    )

def links_test(name, binary, libraries):
    """Tests that `binary` is linked with no library of a name in `libraries`.

    A name stands for all that begin with it: "cu" for libcudart.so.12.
    """
    native.sh_test(
        name = name,
        size = "small",
        srcs = ["expect_links.sh"],
        args = [
            "$(location %s)" % binary,
            "'%s'" % " ".join(libraries),
        ],
        data = [binary],
    )
