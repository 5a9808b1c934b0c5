"""B.3: the filesystem routes.

Not asked: what a disk that fills up during a large upload leaves behind beyond a small tmpfs, the
older resolver of another backend, the server's memory, and times per call.
"""

from .model import (ANY, DENIED, HOST, OK, OVERLAY, Begin, Call, Disk, During, End, HalfUpload, Has,
                    NoAnswer, NowMs, Pause, Per, Query, Race, Re, Row, Together, Want, Zeros,
                    dir_of, done, errno, file_of, get, missing, no, other_of, put, readdir,
                    reattach, run, sh, stat, unknown_route)

INNER = "internal_error"

# Names that must arrive byte by byte.
NAMES = {
    "spaces": " a b ", "plus-percent-amp-hash": "+%&#=?;", "percent-25": "%25%41",
    "newline": "a\nb", "crlf-header": "a\r\nX-Evil: 1", "tab": "a\tb", "control": "\x01\x1f",
    "del": "\x7f", "quotes": "'\"`", "glob": "*?[a-z]{b,c}", "backslash": "a\\b\\",
    "leading-dash": "-rf", "dollar": "$HOME$(id)", "nfc": "é", "nfd": "e\u0301",
    "cjk": "日本語", "emoji": "🎉", "long-255": "n" * 255, "long-utf-8": "é" * 127,
    "dot-file": ".hidden", "tilde": "~", "colon": "C:x", "bom": "\ufeffa", "rtl": "\u202eabc",
}


def path_rows():
    s = "B.3.1"
    for name, text in NAMES.items():
        yield Row(s, f"name-{name}", (
            put(text, b"content"), get(text, b"content"), stat(text, file_of(7)),
            readdir(".", [text]), put("d/" + text, b"deep"), readdir("d", [text]),
            Disk(".", names=(text, "d")), Disk(text.encode(), content=b"content"),
            run(["cat", "--", text], done("content"))))
    yield Row(s, "nfc-and-nfd-are-two", (
        put("é", b"c"), put("e\u0301", b"d"), readdir(".", ["e\u0301", "é"]), get("é", b"c")))
    yield Row(s, "plus-is-a-space", (
        put(Query("path=a+b"), b"x"), get("a b", b"x"), readdir(".", ["a b"])))
    for query, name in (("%zz", "%zz"), ("%", "%"), ("a%4", "a%4"), ("100%25", "100%")):
        yield Row(s, f"malformed-escape-{query.replace('%', '_')}", (
            put(Query("path=" + query), b"x"), readdir(".", [name]), get(name, b"x")))
    yield Row(s, "first-path-wins", (
        put("a", b"a"), put("b", b"b"), get(Query("path=a&path=b"), b"a"),
        get(Query("x=1&path=b&path=a"), b"b")))
    yield Row(s, "root-is-a-dot", (stat(".", dir_of(0o700)), readdir(".", [])))
    for path in ("/", "/etc", "/etc/passwd", "..", "../x", "../../etc/passwd", "a/../../x",
                 "/home", "/home/agentx", "./../."):
        message = Per("^Access denied: \".*\" resolves outside workspace root ",
                      "^path escapes workspace: ")
        refused = Per(*(no(403, "path_denied", text) for text in (message.host, message.overlay)))
        yield Row(s, f"escape-{path.replace('/', '_')}", (
            stat(path, refused), get(path, refused), readdir(path, refused),
            put(path, b"x", refused)))
    yield Row(s, "escape-to-a-sibling-with-the-same-prefix", (
        stat("{root}x", DENIED), put("{root}-x/f", b"x", DENIED)))
    yield Row(s, "absolute-inside", (
        put("{root}/d/f", b"x"), get("d/f", b"x"), stat("{root}", dir_of(0o700)),
        readdir("{root}/d", ["f"]), get("{root}/d/f", b"x")))
    yield Row(s, "absolute-by-the-server's-own-path", (
        put("{backing}/d/f", b"x"), get("d/f", b"x"), stat("{backing}", dir_of(0o700))),
        server="own")
    for name, path in (("up-from-nothing", "nosuch/../f"), ("slash-after-a-file", "f/"),
                       ("double-slash", ".//f"), ("dot", "./f"), ("up-and-down", "d/../d/../f"),
                       ("many-slashes", "d//..///f//")):
        yield Row(s, f"normalised-{name}", (
            sh("mkdir d", ""), put("f", b"x"), get(path, b"x"), stat(path, file_of(1))))
    yield Row(s, "normalised-to-the-root", (
        sh("mkdir d", ""), stat("d/..", dir_of(0o700)), readdir("d/..", ["d/"]),
        readdir("d/.", []), stat("d/", dir_of())))
    for call in (get, stat, readdir, put):
        yield Row(s, f"nul-{call.__name__}", (
            call(Query("path=a%00b"), **{"want": no(500, INNER, "without null bytes")}),
            readdir(".", [])))
    yield Row(s, "invalid-utf-8-makes-another-file", (
        put(Query("path=new%FFx"), b"x"), readdir(".", ["new\ufffdx"]),
        Disk(".", names=(b"new\xef\xbf\xbdx",)), get("new\ufffdx", b"x"),
        get(Query("path=new%FEx"), b"x")))
    yield Row(s, "lone-surrogate-makes-three", (
        put(Query("path=a%ED%A0%80"), b"x"), readdir(".", ["a\ufffd\ufffd\ufffd"])))
    for name in ("..foo", "...", "....", "..foo/bar"):
        yield Row(s, f"dots-at-the-root-{name.replace('/', '_')}", (
            put(name, b"x", Per(OK, DENIED)),
            stat(name, Per(Want(), DENIED)), get(name, Per(Want(body=b"x"), DENIED)),
            readdir(".", Per([name.partition("/")[0] + ("/" if "/" in name else "")], []))))
    yield Row(s, "dots-below-the-root", (
        put("d/..foo", b"x"), get("d/..foo", b"x"), put("d/...", b"y"), get("d/...", b"y")))
    long_name = errno("ENAMETOOLONG: name too long, ")
    yield Row(s, "name-of-256-bytes", (
        stat("n" * 256, long_name), get("n" * 256, long_name), put("n" * 256, b"", long_name),
        put("é" * 128, b"", long_name)))
    yield Row(s, "path-over-4096-bytes", (
        stat("/".join(["n" * 200] * 21), Want(500, code=INNER, message=Re("^ENAMETOOLONG: "),
                                              also=no(403, "path_denied", "^ENAMETOOLONG: "))),))
    yield Row(s, "under-a-file", (
        put("f", b"x"), stat("f/x", errno("ENOTDIR: not a directory, ")),
        get("f/x", errno("ENOTDIR: not a directory, ")),
        readdir("f/x", errno("ENOTDIR: not a directory, "))))
    deep = Per(no(403, "path_denied", "^ENOTDIR: .*, realpath "),
               errno("ENOTDIR: not a directory, "))
    yield Row(s, "deep-under-a-file", (
        put("f", b"x"), stat("f/x/y", deep), get("f/x/y", deep), readdir("f/x/y", deep)))
    loop = Per(no(403, "path_denied", "^ELOOP: .*, realpath "), errno("ELOOP: "))
    yield Row(s, "under-a-link-loop", (
        sh("ln -s loop loop", ""), stat("loop/x", loop), get("loop/x", loop),
        stat("loop", other_of(4, 0o777)), get("loop", errno("ELOOP: ")),
        readdir("loop", errno("ELOOP: "))))


def symlink_rows():
    s = "B.3.1-links"
    yield Row(s, "final-is-followed-by-get-and-readdir", (
        sh("mkdir d; echo x > d/f; ln -s d/f lf; ln -s d ld", ""), get("lf", b"x\n"),
        readdir("ld", ["f"])))
    yield Row(s, "final-to-outside-is-followed", (
        sh("ln -s /etc/passwd lf; ln -s /etc ld", ""),
        get("lf", Re("root:")), readdir("ld", Want(json=Has(
            ({"name": "passwd", "isDirectory": False},))))))
    yield Row(s, "final-is-told-by-stat", (
        sh("mkdir d; ln -s d ld; ln -s /etc/passwd lf; ln -s nosuch dang", ""),
        stat("ld", other_of(1, 0o777)), stat("lf", other_of(11, 0o777)),
        stat("dang", other_of(6, 0o777)), stat("ld/", other_of(1, 0o777))))
    yield Row(s, "final-is-replaced-by-put", (
        sh("echo kept > t; ln -s t l", ""), put("l", b"new"), get("t", b"kept\n"),
        stat("l", file_of(3)), get("l", b"new")))
    yield Row(s, "final-dangling-is-replaced-by-put", (
        sh("ln -s nosuch l", ""), put("l", b"new"), stat("l", file_of(3)), missing("nosuch")))
    yield Row(s, "middle-to-inside", (
        sh("mkdir -p d/e; echo x > d/e/f; ln -s d/e m", ""), get("m/f", b"x\n"),
        stat("m/f", file_of(2, 0o644)), put("m/g", b"g"), get("d/e/g", b"g"),
        readdir("m/../m/", ["f", "g"])))
    outside = Per(DENIED, Want())
    yield Row(s, "middle-to-outside", (
        sh("ln -s /etc m", ""), stat("m/passwd", outside),
        get("m/passwd", Per(DENIED, Want(body=Re("root:")))), readdir("m/default", outside)))
    yield Row(s, "middle-to-outside-put", (
        sh("ln -s {outside} m", ""), put("m/sbx-conformance", b"x", Per(DENIED, OK)),
        get("m/sbx-conformance", Per(DENIED, Want(body=b"x")))), server="own")
    yield Row(s, "absolute-target-in-the-jail", (
        sh("echo x > f; ln -s /home/agent/f l", ""),
        get("l", errno("ENOENT: no such file or directory, open ")), sh("cat l", "x\n")),
        profiles=OVERLAY)
    yield Row(s, "dangling", (
        sh("ln -s nosuch l", ""), get("l", errno("ENOENT: no such file or directory, open ")),
        readdir("l", errno("ENOENT: no such file or directory, scandir "))))
    yield Row(s, "dangling-in-the-middle-put", (
        sh("ln -s nosuch l", ""), put("l/f", b"x", errno("ENOENT: .*, mkdir ")),
        missing("nosuch")))


def get_rows():
    s = "B.3.2"
    yield Row(s, "bytes-as-they-are", (
        put("f", bytes(range(256)) * 10), get("f", bytes(range(256)) * 10)))
    yield Row(s, "empty-file", (put("f", b""), get("f", Want(
        body=b"", headers={"content-length": "0"}))))
    for value in ("bytes=0-1", "bytes=2-", "bytes=-1", "bytes=100-200", "lines=1-2"):
        yield Row(s, f"range-ignored-{value.replace('=', '_')}", (
            put("f", b"12345"), get("f", Want(body=b"12345", headers={
                "accept-ranges": None, "content-range": None}), headers=(("Range", value),))))
    yield Row(s, "missing", (
        get("nosuch", errno("ENOENT: no such file or directory, open '.*/nosuch'$")),
        get("nosuch/deep", errno("ENOENT: no such file or directory, open '.*/nosuch/deep'$"))))
    yield Row(s, "directory", (
        sh("mkdir d", ""), get("d", errno("EISDIR: illegal operation on a directory, read$")),
        get(".", errno("EISDIR: illegal operation on a directory, read$"))))
    yield Row(s, "socket", (
        run(["python3", "-c", "import socket; socket.socket(socket.AF_UNIX).bind('s')"]),
        get("s", errno("ENXIO: no such device or address, open "))))
    yield Row(s, "dev-null", (sh("ln -s /dev/null n", ""), get("n", b"")))
    yield Row(s, "grown-file-is-read-anew", (
        put("f", b"1"), get("f", b"1"), sh("echo 2 >> f", ""), get("f", b"12\n")))
    yield Row(s, "unreadable-mode-does-not-matter", (
        put("f", b"x"), sh("chmod 0 f", ""), get("f", b"x")), needs=("root",))
    yield Row(s, "20-mib", (
        sh("head -c 20971520 /dev/zero | tr '\\0' x > f", ""), get("f", b"x" * 20971520)))
    yield Row(s, "2-gib-is-refused", (
        sh("truncate -s 2147483648 f", ""), stat("f", file_of(1 << 31, 0o644)),
        get("f", errno(r"File size \(2147483648\) is greater than 2 GiB$"))))
    yield Row(s, "2-gib-less-one-works", (
        sh("truncate -s 2147483647 f", ""),
        get("f", Want(headers={"content-length": "2147483647"}))), profiles=HOST,
        slow="2 GiB to read")
    stat_other = Call("GET", "/sessions/{other}/stat?path=f")
    yield Row(s, "fifo-blocks-the-server", (
        Call("POST", "/sessions", want=Want(), keep=(("other", "sessionId"),)),
        Call("PUT", "/sessions/{other}/fs?path=f", b"x", want=OK),
        sh("mkfifo p1 p2 p3 p4", ""),
        NoAnswer(get("p1"), 0.5), NoAnswer(get("p2"), 0.2), Begin("p3", get("p3", b"3")),
        Pause(0.3), stat_other, Call("GET", "/sessions/{other}/fs?path=f", want=Want(body=b"x")),
        Begin("p4", get("p4", b"4")), Pause(0.3),
        NoAnswer(stat_other, 0.5), NoAnswer(readdir("."), 0.2),
        Begin("late", stat_other), reattach(), run(["true"]),
        sh("for i in 1 2 3 4; do printf $i > p$i; done", ""), End("p3"), End("p4"), End("late"),
        stat_other), server="own", seconds=3)
    for method in ("HEAD", "OPTIONS", "POST", "PATCH", "DELETE"):
        want = Want(404) if method == "HEAD" else unknown_route(method, "/sessions/{id}/fs")
        yield Row(s, f"no-method-{method}", (
            put("f", b"kept"), Call(method, "/sessions/{id}/fs?path=f", want=want),
            get("f", b"kept"), Call(method, "/sessions/{id}/fs?path=new", want=want),
            readdir(".", ["f"])))


def put_rows():
    s = "B.3.3"
    yield Row(s, "creates", (
        put("f", b"hello"), stat("f", file_of(5, 0o600, mtimeMs=NowMs())), get("f", b"hello"),
        Disk("f", content=b"hello", mode=0o600)))
    yield Row(s, "no-body-is-an-empty-file", (
        put("f", None), stat("f", file_of(0)), get("f", b"")))
    yield Row(s, "replaces-the-content", (
        put("f", b"long content"), put("f", b"s"), get("f", b"s"), stat("f", file_of(1))))
    yield Row(s, "makes-parents", (
        put("a/b/c/f", b"x"), stat("a", dir_of()), stat("a/b/c", dir_of()),
        get("a/b/c/f", b"x")))
    for mode in (0o755, 0o4755, 0o644, 0o666):
        yield Row(s, f"mode-becomes-0600-from-{mode:04o}", (
            sh(f"echo old > f; chmod {mode:o} f", ""), stat("f", {"mode": mode, "isFile": True}),
            put("f", b"new"), stat("f", file_of(3, 0o600))))
    yield Row(s, "read-only-file-is-replaced", (
        sh("echo old > f; chmod 444 f", ""), put("f", b"new"), get("f", b"new"),
        stat("f", file_of(3))))
    yield Row(s, "hard-link-is-broken", (
        sh("echo old > f; ln f g", ""), put("f", b"new"), get("g", b"old\n"),
        sh("stat -c %h f g", "1\n1\n")))
    yield Row(s, "owner-becomes-the-server", (
        sh("echo old > f; chown 1234:1234 f", ""), put("f", b"new"),
        sh("stat -c %u:%g f", "0:0\n")), needs=("root",))
    yield Row(s, "fifo-is-replaced", (
        sh("mkfifo p", ""), put("p", b"x"), stat("p", file_of(1)), get("p", b"x")))
    yield Row(s, "socket-is-replaced", (
        run(["python3", "-c", "import socket; socket.socket(socket.AF_UNIX).bind('s')"]),
        put("s", b"x"), stat("s", file_of(1))))
    yield Row(s, "half-an-upload-changes-nothing", (
        put("f", b"old"), HalfUpload(put("f", b"n" * 200_000)), get("f", b"old"),
        HalfUpload(put("f", b"n" * 200_000), chunked=True), get("f", b"old"),
        HalfUpload(put("g", b"n" * 200_000)), missing("g")))
    size = 3 << 20
    # Writes of 512 KiB; one that is under way shows in pages.
    whole = {"size": size, "mtimeMs": ANY, "isFile": True, "isDirectory": False, "mode": ANY}
    partial = Want(json={**whole, "size": Re("")},
                   body=Re('"size":(' + "|".join(map(str, range(0, size, 4096))) + "),"),
                   also=no(404, "not_found", "^no such path: f$"))
    yield Row(s, "not-atomic", (
        put("f", b"x" * size),
        During((put("f", b"y" * size),) * 12, stat("f"), (Want(json=whole), partial)),
        get("f", b"y" * size)))
    yield Row(s, "racing-puts", (
        Race(tuple(put("f", bytes([97 + n]) * 1000) for n in range(8)), 30,
             (OK, errno("EEXIST: file already exists, open "))),
        stat("f", file_of(1000)), get("f", Re("^(a+|b+|c+|d+|e+|f+|g+|h+)$"))))
    yield Row(s, "many-files-in-a-new-directory", (
        Together(tuple(put(f"new/dir/f{n}", b"x") for n in range(50))),
        readdir("new/dir", sorted(f"f{n}" for n in range(50)))))
    exists = errno("EEXIST: file already exists, open ")
    yield Row(s, "onto-a-directory", (
        sh("mkdir empty full; echo x > full/f", ""), put("empty", b"x", exists),
        put("full", b"x", exists), put("full/", b"x", exists), put(".", b"x", exists),
        readdir(".", ["empty/", "full/"]), readdir("full", ["f"])))
    yield Row(s, "parent-is-a-file", (
        put("f", b"kept"), put("f/x", b"y", errno("EEXIST: file already exists, mkdir ")),
        get("f", b"kept")))
    yield Row(s, "slash-at-the-end", (
        put("name/", b"x"), readdir(".", ["name"]), stat("name", file_of(1))))
    yield Row(s, "disk-full", (
        sh("mkdir m; mount -t tmpfs -o size=64k none m; echo old > m/f", ""),
        put("m/f", b"x" * 300_000, errno("ENOSPC: no space left on device, ")),
        sh("test $(stat -c %s m/f) -lt 300000; head -c 4 m/f", Re("^x*$"))),
        profiles=HOST, needs=("root",), after=(sh("umount m"),))
    yield Row(s, "read-only-filesystem", (
        sh("mkdir m; mount -t tmpfs none m; echo old > m/f; mount -o remount,ro m", ""),
        put("m/f", b"new", errno("EEXIST: file already exists, open ")),
        put("m/new", b"new", errno("EROFS: read-only file system, open ")),
        put("m/d/new", b"new", errno("ENOENT: no such file or directory, mkdir ")),
        get("m/f", b"old\n")),
        profiles=HOST, needs=("root",), after=(sh("umount m"),))
    yield Row(s, "2.2-gb-is-written-but-not-read", (
        put("f", Zeros(2_200_000_000)), stat("f", file_of(2_200_000_000)),
        get("f", errno(r"File size \(2200000000\) is greater than 2 GiB$"))), profiles=HOST,
        slow="2.2 GB to write")
    yield Row(s, "4.4-gb-is-refused-after-the-upload", (
        put("f", b"kept"), put("f", Zeros(4_400_000_000), no(500, INNER, ANY)),
        get("f", b"kept")), profiles=HOST, slow="4.4 GB to write")


def stat_rows():
    s = "B.3.4"
    yield Row(s, "file", (put("f", b"12345"), stat("f", Want(
        json={"size": 5, "mtimeMs": NowMs(), "isFile": True, "isDirectory": False,
              "mode": 0o600}, body=Re(r'^\{"size":5,"mtimeMs":[0-9.]+,"isFile":true,'
                                      r'"isDirectory":false,"mode":384\}$')))))
    yield Row(s, "directory", (sh("mkdir d", ""), stat("d", {**dir_of(), "mtimeMs": NowMs()})))
    yield Row(s, "root", (stat(".", dir_of(448)),))
    yield Row(s, "symlink", (
        sh("ln -s target l; ln -s \"$1\" long; ln -s é u", done(), "t" * 500),
        stat("l", other_of(6, 511)), stat("long", other_of(500, 511)), stat("u", other_of(2, 511))))
    yield Row(s, "fifo", (sh("mkfifo p", ""), stat("p", other_of(0, 420))))
    yield Row(s, "socket", (
        run(["python3", "-c", "import socket; socket.socket(socket.AF_UNIX).bind('s')"]),
        stat("s", other_of(0, 493))))
    yield Row(s, "device", (sh("mknod c c 1 3", ""), stat("c", other_of(0, 420))),
              profiles=HOST, needs=("root",))
    for mode in (0o6755, 0o1777, 0o000, 0o7777, 0o644):
        yield Row(s, f"mode-{mode:04o}", (
            sh(f"mkdir d; echo x > f; chmod {mode:o} f d", ""), stat("f", file_of(2, mode)),
            stat("d", dir_of(mode)), sh("chmod 700 d", "")))
    for name, date, text in (
            ("nanoseconds-are-lost", "1700000000.123456789", "1700000000123.4568"),
            ("integer-has-no-point", "1700000000", "1700000000000"),
            ("milliseconds", "1700000000.5", "1700000000500"),
            ("negative", "-5.5", "-5500"), ("tiny", "0.0000001", "0.0001"), ("zero", "0", "0"),
            ("microseconds", "1234567890.000001", "1234567890000.001"),
            ("after-2038", "4102444800.25", "4102444800250")):
        yield Row(s, f"mtime-{name}", (
            sh(f"echo x > f; touch -d @{date} f", ""),
            stat("f", Want(body=Re(f'"mtimeMs":{text.replace(".", "[.]")},')))))
    yield Row(s, "missing", (missing("nosuch"), missing("a/b/c")))
    yield Row(s, "missing-names-the-path-as-asked", (
        sh("mkdir d", ""), missing("d//nosuch"), missing("./nosuch/"), missing("é \n")))
    yield Row(s, "200-in-parallel", (
        put("f", b"x"), Together((stat("f", file_of(1)),) * 64)))


def readdir_rows():
    s = "B.3.5"
    yield Row(s, "empty", (sh("mkdir d", ""), readdir("d", Want(body=Re(r"^\[\]$")))))
    yield Row(s, "exactly-two-keys", (
        sh("mkdir d; echo x > f", ""),
        readdir(".", Want(body=Re(r'^\[\{"name":"d","isDirectory":true\},'
                                  r'\{"name":"f","isDirectory":false\}\]$')))))
    yield Row(s, "sorted-by-bytes", (
        *(put(n, b"") for n in ("b", "B", "a", "_", "10", "9", "é", "z", "日", "a.b", "a-b")),
        readdir(".", ["10", "9", "B", "_", "a", "a-b", "a.b", "b", "z", "é", "日"])))
    yield Row(s, "types", (
        sh("mkdir d; echo x > f; ln -s d ld; ln -s f lf; ln -s nosuch x; mkfifo p", ""),
        readdir(".", ["d/", "f", "ld", "lf", "p", "x"])))
    yield Row(s, "dot-files-but-not-dots", (
        sh("mkdir .d; echo x > .f", ""), readdir(".", [".d/", ".f"])))
    yield Row(s, "missing", (
        readdir("nosuch", errno("ENOENT: no such file or directory, scandir '.*/nosuch'$")),))
    yield Row(s, "on-a-file", (
        put("f", b"x"), readdir("f", errno("ENOTDIR: not a directory, scandir '.*/f'$"))))
    yield Row(s, "follows-a-final-link", (
        sh("mkdir d; echo x > d/f; ln -s d l", ""), readdir("l", ["f"])))
    yield Row(s, "non-utf-8-names", (
        sh("cd \"$(pwd)\"; : > \"$(printf 'a\\377b')\"; mkdir \"$(printf 'd\\376\\375')\"; : > ok",
           ""),
        readdir(".", ["a\ufffdb", "d\ufffd\ufffd/", "ok"]), missing("a\ufffdb"),
        get("a\ufffdb", errno("ENOENT: ")), get(Query("path=a%FFb"), errno("ENOENT: ")),
        put("a\ufffdb", b"other"), Disk(b"a\xffb", content=b""),
        Disk("a\ufffdb", content=b"other"),
        readdir(".", ["a\ufffdb", "a\ufffdb", "d\ufffd\ufffd/", "ok"])))
    yield Row(s, "non-utf-8-names-collide", (
        sh(": > \"$(printf 'a\\377')\"; : > \"$(printf 'a\\376')\"", ""),
        readdir(".", ["a\ufffd", "a\ufffd"])))
    yield Row(s, "cut-utf-8-sequences", (
        sh(": > \"$(printf 'a\\342\\202')\"; : > \"$(printf 'b\\360\\237\\216x')\"; "
           ": > \"$(printf 'c\\355\\240\\200')\"", ""),
        readdir(".", ["a\ufffd", "b\ufffdx", "c\ufffd\ufffd\ufffd"])))
    names = [f"f{n:05d}" for n in range(20_000)]
    yield Row(s, "20000-entries", (
        sh("mkdir d; cd d; seq -f f%05g 0 19999 | xargs touch", ""), readdir("d", names)),
        profiles=HOST, seconds=1)


ROWS = tuple(row for part in (
    path_rows, symlink_rows, get_rows, put_rows, stat_rows, readdir_rows) for row in part())
