"""B.2: sessions, their sleep and their revival.

Not asked, for lack of a request or option that shows it: the defaults of 30 minutes, 60 s and 7
days, and the seeds of a manifest.
"""

from .model import (ANY, BOTH, CREATED, GONE, HOST, NEVER, NOT_ALIVE, OVERLAY, UUID4, Abandon,
                    Begin, Call, Disk, End, Forget, Idle, NowMs, Pause, Per, Re, Row, Sweep,
                    Together, Until, Want, create, delete, dir_of, done, file_of, get, hydrate, no,
                    put, readdir, reattach, run, sh, stat, unknown_route)

S = "B.2"

# The host's root would be another one after a thaw.
STAYED = Want(json={"alive": True, "root": Per(Re("^{root}$"), "/home/agent")})
NO_ID = no(404, "not_found", "^missing session id$")


def create_rows():
    for name, body in (
            ("no-body", None), ("empty-object", "{}"), ("number", "5"), ("array", "[]"),
            ("string", '"x"'), ("run-id", '{"runId":"r-1"}'), ("manifest", '{"manifest":{}}'),
            ("unknown-fields", '{"a":1,"b":[]}'), ("empty-root-dir", '{"rootDir":""}')):
        yield Row(S, f"create-{name}", (create(body), stat(".", dir_of(0o700))), session=False)
    yield Row(S, "create-null", (
        create("null", no(500, "internal_error", ANY)),), session=False)
    for name, body in (("cut", "{"), ("word", "nope")):
        yield Row(S, f"create-bad-json-{name}", (
            create(body, no(400, "bad_request", "^invalid JSON body$")),), session=False)
    yield Row(S, "create-root-dir-denied", (
        create({"rootDir": "/tmp/sbx-no-such-prefix"}, no(403, "root_denied", ANY)),
        create({"rootDir": "relative/../x"}, no(403, "root_denied", ANY))), session=False,
        profiles=HOST)  # the backend of overlay ignores it
    yield Row(S, "create-root-dir-of-a-wrong-type", (
        create({"rootDir": 5}, no(500, "internal_error", ANY)),), session=False)
    yield Row(S, "create-is-empty-and-private", (
        stat(".", dir_of(0o700)), readdir(".", []), Disk(".", mode=0o700, names=())))
    yield Row(S, "create-twice-makes-two", (
        put("f", b"first"),
        Call("POST", "/sessions", want=CREATED, keep=(("second", "sessionId"),)),
        Call("GET", "/sessions/{second}/fs?path=f", want=no(500, "internal_error", "^ENOENT: ")),
        delete("{second}"), get("f", b"first")))
    for method in ("GET", "PUT", "DELETE", "OPTIONS", "PATCH"):
        yield Row(S, f"no-listing-{method}", (Call(method, "/sessions", want=NO_ID),),
                  session=False)
    yield Row(S, "no-listing-HEAD", (Call("HEAD", "/sessions", want=Want(404)),), session=False)
    for method in ("GET", "POST"):
        yield Row(S, f"no-route-{method}-session", (
            Call(method, "/sessions/{id}", want=unknown_route(method, "/sessions/{id}")),))


def delete_rows():
    yield Row(S, "delete-live", (
        put("f", b"x"), delete(), stat("f", GONE), get("f", GONE), reattach(NOT_ALIVE)))
    yield Row(S, "delete-twice", (delete(), delete(), delete()))
    yield Row(S, "delete-never-existed", (delete(NEVER), delete("nonsense")), session=False)
    yield Row(S, "delete-under-an-exec", (
        Begin("e", sh("echo start > began; sleep 3; echo x > f", done(
            "", Re("irectory nonexistent"), 2))),
        Until(stat("began")), delete(want=Want(json={"ok": True}, seconds=(0, 2.5))),
        stat(".", GONE), End("e"), stat(".", GONE)), profiles=HOST, seconds=3)
    second = ("POST", "/sessions/{second}/exec")
    note = "/tmp/sbx-conformance-{id}"
    yield Row(S, "delete-spares-detached-children", (
        Call("POST", "/sessions", want=CREATED, keep=(("second", "sessionId"),)),
        sh(f"setsid sh -c 'sleep 0.7; echo alive > {note}' </dev/null >/dev/null 2>&1 &", ""),
        delete(),
        Until(Call(*second, {"argv": ["cat", note]}, want=done("alive\n"))),
        Call(*second, {"argv": ["rm", note]}), delete("{second}")), profiles=HOST, seconds=1)


def reattach_rows():
    yield Row(S, "reattach-live", (
        put("f", b"x"), reattach(STAYED), get("f", b"x")))
    yield Row(S, "reattach-deleted", (delete(), reattach(NOT_ALIVE)))
    for name, session in (("never-existed", NEVER), ("nonsense", "nonsense"),
                          ("upper-case", NEVER.upper())):
        yield Row(S, f"reattach-{name}", (
            Call("POST", f"/sessions/{session}/reattach", want=NOT_ALIVE),), session=False)
    yield Row(S, "reattach-ignores-its-body", (
        Call("POST", "/sessions/{id}/reattach", b"{garbage",
             want=Want(json={"alive": True, "root": ANY})),))


def sleep(name, steps, server="sleepy", profiles=BOTH, **fields) -> Row:
    return Row(S, f"idle-{name}", steps, profiles=profiles, server=server, **fields)


def awake(name, call) -> Row:
    """Asked again and again, the session is never put away, longer than its time."""
    return sleep(name, (Pause(0.8), call) * 5, server="idle", seconds=4)


def idle_rows():
    yield sleep("every-route-is-gone", (
        put("f", b"x"), Idle(), stat("f", GONE), get("f", GONE), put("g", b"", GONE),
        readdir(".", GONE), run(["true"], GONE),
        Call("POST", "/sessions/{id}/persist", want=GONE),
        hydrate(bytes(1024), GONE), Call("GET", "/sessions/{id}/x", want=GONE), stat("f", GONE),
        reattach(), get("f", b"x")))
    yield sleep("reattach-tells-the-root", (
        put("d/f", b"x"), Idle(),
        reattach(Want(json={"alive": True, "root": Per(Re("^/."), "/home/agent")}),
                 keep=(("new", "root"),)),
        stat("{new}/d/f", file_of(1)),
        stat("{root}/d/f", Per(no(403, "path_denied", ANY), Want()))))
    yield sleep("deleted-while-archived", (Idle(), delete(), reattach(NOT_ALIVE)))
    yield sleep("again-and-again", (
        put("f", b"1"), Idle(), reattach(), put("f", b"2"), Idle(), reattach(), get("f", b"2")))
    yield awake("requests-keep-it-awake", stat(".", Want()))
    yield awake("an-unknown-route-keeps-it-awake", Call(
        "GET", "/sessions/{id}/x", want=no(404, "not_found", "^unknown route ")))
    yield awake("reattach-keeps-it-awake", reattach(STAYED))
    yield sleep("a-running-exec-pins-it", (
        Begin("e", sh("echo > began; while ! [ -e end ]; do sleep 0.1; done; echo x > f", "")),
        Until(stat("began")), Sweep(), put("end"), End("e"), get("f", b"x\n")))
    yield sleep("put-away-by-itself", (
        sh("sleep 1; echo x > f", ""), Idle(by_itself=True), reattach(), get("f", b"x\n")),
        server="idle", seconds=4)


def thaw_rows():
    yield sleep("thaw-of-modes", (
        sh("mkdir d; chmod 2770 d; echo a > d/a; chmod 640 d/a; echo x > x; chmod 755 x; "
           "echo s > s; chmod 4711 s; echo n > n; chmod 400 n; mkdir -m 1777 t", ""),
        Idle(), reattach(),
        stat("d", dir_of(Per(0o755, 0o2770))), stat("t", dir_of(Per(0o755, 0o1777))),
        stat("d/a", file_of(2, 0o640)), stat("x", file_of(2, 0o755)),
        stat("s", file_of(2, Per(0o711, 0o4711))), stat("n", file_of(2, 0o400)),
        get("d/a", b"a\n")))
    yield sleep("thaw-of-mtimes", (
        sh("mkdir d; echo x > d/f; touch -d @1700000000 d/f d", ""), Idle(), reattach(),
        stat("d/f", file_of(2, 0o644, mtimeMs=Per(NowMs(), 1700000000000))),
        stat("d", {**dir_of(), "mtimeMs": Per(NowMs(), 1700000000000)})))
    yield sleep("thaw-of-links", (
        sh("mkdir d; echo x > d/f; ln -s d/f rel; ln -s ../d/f d/up; ln -s nosuch dangling; "
           "ln d/f hard", ""),
        Idle(), reattach(), sh("readlink rel; readlink d/up; readlink dangling; echo y > hard; "
                               "cat d/f", Per("d/f\n../d/f\nnosuch\nx\n",
                                              "d/f\n../d/f\nnosuch\ny\n"))))
    yield sleep("thaw-of-a-fifo", (
        sh("mkfifo p; echo x > f", ""), Idle(), reattach(), get("f", b"x\n"),
        readdir(".", Per(["f"], ["f", "p"]))))
    yield sleep("thaw-of-non-ascii-names", (
        put("é", b"x"), put("日本", b"y"), Idle(), reattach(),
        readdir(".", Per(["Ã©", "æ\u0097¥æ\u009c¬"], ["é", "日本"]))))
    yield sleep("thaw-of-a-100-byte-name", (
        put("n" * 100, b"x"), put("m" * 99, b"y"), put("l" * 101, b"z"), Idle(), reattach(),
        readdir(".", Per(["l" * 101, "m" * 99, "n" * 99], ["l" * 101, "m" * 99, "n" * 100]))))
    yield sleep("thaw-of-empty-directories", (
        sh("mkdir -p a/b/c", ""), Idle(), reattach(), readdir("a/b", ["c/"]), readdir("a/b/c", [])))
    for name, script in (
            ("an-absolute-symlink", "ln -s /usr/bin/python3 python"),
            ("a-symlink-above-the-root", "ln -s ../../x up"),
            ("a-backslash-name", "echo x > 'a\\b'"),
            ("a-drive-name", "echo x > C:x"),
            ("colliding-100-byte-names",
             "n=$(printf '%099d' 0); echo a > ${n}a; echo b > ${n}b")):
        yield sleep(f"thaw-fails-for-good-with-{name}", (
            sh(script + "; echo kept > kept", ""), Idle(),
            reattach(Per(NOT_ALIVE, Want(json={"alive": True, "root": ANY}))),
            reattach(Per(NOT_ALIVE, Want(json={"alive": True, "root": ANY}))),
            get("kept", Per(GONE, Want(body=b"kept\n")))))
    awake = (Sweep(), get("f", b"x"))
    yield sleep("a-non-utf-8-name-stays-live", (
        put("f", b"x"), sh("echo y > \"$(printf 'a\\377')\"", ""), *awake), profiles=HOST)
    yield sleep("a-file-of-2-gib-stays-live", (
        put("f", b"x"), sh("truncate -s 2147483648 big", ""), *awake), profiles=HOST)
    yield sleep("overlay-tmp-is-gone", (
        sh("echo x > /tmp/x; echo y > y", ""), Idle(), reattach(),
        sh("ls -A /tmp; cat y", "y\n")), profiles=OVERLAY)
    yield sleep("parallel-reattach", (
        put("f", b"x"), Idle(), Together((reattach(),) * 8), get("f", b"x")))


def restart_rows():
    alive = Want(json={"alive": True, "root": Per(Re("^/."), "/home/agent")})

    def own(name, steps, server="own", **fields):
        return Row(S, f"restart-{name}", steps, server=server, seconds=0.5, **fields)

    yield own("after-sigterm", (
        put("d/f", b"x"), sh("chmod 640 d/f", ""), Forget(), stat("d/f", GONE), reattach(alive),
        stat("d/f", file_of(1, 0o640)), get("d/f", b"x"), put("g", b"y")))
    yield own("sigterm-waits-for-a-running-exec", (
        Abandon(sh("sleep 1; echo x > f")), Forget(), reattach(alive), get("f", b"x\n")))
    yield own("after-sigkill", (
        put("f", b"x"), Forget(kill=True), stat("f", GONE), reattach(Per(NOT_ALIVE, alive)),
        get("f", Per(GONE, Want(body=b"x")))))
    yield own("archived-before-sigkill", (
        put("f", b"x"), Idle(), Forget(kill=True), reattach(alive), get("f", b"x")),
        server="own")


def root_dir_rows():
    """A directory of the caller's choice, where the server allows some."""
    told = Want(json={"sessionId": Re(UUID4), "root": Re("^{allowed}/")})

    def row(name, steps, server="dirs", **fields):
        return Row(S, f"root-dir-{name}", steps, profiles=HOST, server=server, session=False,
                   **fields)

    yield row("is-made-0755", (
        create({"rootDir": "{allowed}/made/here"}, told), stat(".", dir_of(0o755)),
        put("f", b"x")))
    yield row("is-shared", (
        create({"rootDir": "{allowed}/shared"}, told), put("f", b"x"),
        Call("POST", "/sessions", {"rootDir": "{allowed}/shared"}, want=told,
             keep=(("second", "sessionId"),)),
        Call("GET", "/sessions/{second}/fs?path=f", want=Want(body=b"x")),
        delete("{second}"), get("f", b"x")))
    yield row("is-kept-by-delete", (
        create({"rootDir": "{allowed}/kept"}, told), put("f", b"x"), delete(),
        create({"rootDir": "{allowed}/kept"}, told), get("f", b"x")))
    for name, path in (("outside", "/tmp/elsewhere"), ("dot-dot", "{allowed}/../x"),
                       ("sibling", "{allowed}x/y"), ("relative", "allowed/x")):
        yield row(f"denied-{name}", (
            create({"rootDir": path}, no(403, "root_denied", ANY)),))
    yield row("idle-is-destroyed", (
        create({"rootDir": "{allowed}/idle"}, told), put("f", b"x"), Idle(), reattach(NOT_ALIVE),
        create({"rootDir": "{allowed}/idle"}, told), get("f", b"x")), server="dirs-sleepy")


def expiry_rows():
    yield Row(S, "archives-are-forgotten", (
        put("f", b"x"), Idle(), Pause(1), Sweep(), reattach(NOT_ALIVE)), server="expiry",
        seconds=1)


ROWS = tuple(row for part in (
    create_rows, delete_rows, reattach_rows, root_dir_rows, idle_rows, thaw_rows, expiry_rows,
    restart_rows)
    for row in part())
