"""B.4: exec.

Not asked: time-outs of 1 to 5 ms and below on overlay (they race the jail's start, which may hang
for ever), ulimits, what a command costs, networks beyond the jail's, and that one of four
parallel commands could lose writes on overlay.
"""

from .model import (ANY, DENIED, GONE, HOST, NEVER, OVERLAY, Abandon, Call, Damaged, Dies, Disk,
                    Pause, Per, Re, Row, Together, Until, done, errno, file_of, get, missing, no,
                    put, readdir, run, sh, stat)

EMPTY_ARGV = no(400, "bad_request", "^argv must be a non-empty array$")
BAD_JSON = no(400, "bad_request", "^invalid JSON body$")
WRONG = no(500, "internal_error", ANY)


def spawn_error(message: str, bwrap: str, **fields) -> Per:
    """What a program that could not be started leaves: by Node on the host, by bwrap."""
    return Per(done("", Re(f"^Error: {message}\n?$"), None, **fields),
               done("", Re(f"^bwrap: {bwrap}\n?$"), 1, **fields))


def request_rows():
    s = "B.4"
    yield Row(s, "reply-has-four-fields", (
        sh("echo out; echo err >&2; exit 3", done("out\n", "err\n", 3)),))
    yield Row(s, "standard-input-is-dev-null", (
        run(["cat"], done("", seconds=(0, 15)), stdin="x", input="y"),
        sh("readlink /proc/self/fd/0", "/dev/null\n")))
    yield Row(s, "outputs-are-sockets", (
        sh("readlink /proc/$$/fd/1; readlink /proc/$$/fd/2",
           Re(r"^socket:\[\d+\]\nsocket:\[\d+\]\n$")),
        sh("test -t 1 || echo no; test -t 2 || echo no", "no\nno\n")))
    yield Row(s, "umask-is-022", (sh("umask", "0022\n"), sh(": > f; mkdir d", ""),
                                  stat("f", file_of(0, 0o644))))
    yield Row(s, "unknown-fields-are-ignored", (
        run(["echo", "x"], done("x\n"), mode=5, atomic=True, signal="KILL"),))
    yield Row(s, "no-session", (
        Call("POST", f"/sessions/{NEVER}/exec", {"argv": ["true"]}, want=GONE),), session=False)
    yield Row(s, "no-exec-server", (
        run(["true"], no(501, "not_supported", ANY)), put("f", b"x"), get("f", b"x")),
        server="noexec")
    yield Row(s, "outputs-are-apart", (
        sh("for i in 1 2 3; do echo o$i; echo e$i >&2; done", done("o1\no2\no3\n",
                                                                  "e1\ne2\ne3\n")),))


def outcome_rows():
    s = "B.4.1"
    for code, seen in ((0, 0), (1, 1), (7, 7), (127, 127), (255, 255), (300, 44)):
        yield Row(s, f"exit-{code}", (
            sh(f"exit {code}", done(code=seen)),))
    for name, number in (("TERM", 15), ("KILL", 9), ("SEGV", 11), ("ABRT", 6), ("PIPE", 13)):
        yield Row(s, f"killed-by-{name}", (
            sh(f"ulimit -c 0; kill -{name} $$", Per(
                done(code=None, signal=f"SIG{name}"), done("", Re(""), 128 + number))),))
    yield Row(s, "time-out", (
        run(["sleep", "30"], done(code=None, signal="SIGKILL", timed_out=True,
                                  seconds=(0.3, 15)), timeoutMs=300),))
    yield Row(s, "program-missing", (
        run(["sbx-no-such-program", "x"], spawn_error(
            "spawn sbx-no-such-program ENOENT",
            "execvp sbx-no-such-program: No such file or directory")),))
    yield Row(s, "program-missing-by-path", (
        run(["/nosuch/program"], spawn_error(
            "spawn /nosuch/program ENOENT", "execvp /nosuch/program: No such file or directory")),))
    yield Row(s, "program-is-a-directory", (
        run(["/etc"], spawn_error("spawn /etc EACCES", "execvp /etc: Permission denied")),))
    yield Row(s, "program-is-not-executable", (
        sh("echo x > f", ""),
        run(["./f"], spawn_error("spawn ./f EACCES", "execvp ./f: Permission denied"))))
    yield Row(s, "text-without-hash-bang-is-run-by-sh", (
        sh("printf 'sbx-no-such-program\\n' > t; printf 'echo ran\\n' > u; chmod +x t u", ""),
        run(["./t"], done("", Re("sbx-no-such-program"), 127)), run(["./u"], done("ran\n"))))
    yield Row(s, "argv0-empty", (run([""], Per(WRONG, done("", Re("^bwrap: "), 1))),))
    yield Row(s, "cwd-missing", (
        run(["pwd"], spawn_error("spawn pwd ENOENT", "Can't chdir to .*: No such file or "
                                 "directory"), cwd="nosuch"),))
    yield Row(s, "cwd-is-a-file", (
        put("f", b"x"), run(["pwd"], Per(errno("spawn ENOTDIR$"), done("", Re("^bwrap: "), 1)),
                            cwd="f")))


def cwd_rows():
    s = "B.4.2"
    top = Per("{root}\n", "/home/agent\n")
    yield Row(s, "absent-or-empty-is-the-root", (
        sh("pwd", top), sh("pwd", top, cwd=""), sh("pwd -P", top)))
    below = Per("{root}/d/e\n", "/home/agent/d/e\n")
    yield Row(s, "relative", (
        sh("mkdir -p d/e", ""), sh("pwd", below, cwd="d/e"), sh("pwd", below, cwd="d/../d/./e/"),
        sh("pwd", top, cwd=".")))
    yield Row(s, "absolute-inside", (
        sh("mkdir -p d/e", ""), sh("pwd", below, cwd="{root}/d/e"), sh("pwd", top, cwd="{root}")))
    for cwd in ("/", "/tmp", "..", "../x", "/etc", "d/../../x"):
        yield Row(s, f"outside-is-denied-{cwd.replace('/', '_')}", (
            run(["true"], DENIED, cwd=cwd),))
    yield Row(s, "the-command-can-leave", (
        sh("cd / && pwd && cat /etc/passwd", Re("^/\nroot:")),))
    yield Row(s, "final-link-to-outside-is-followed", (
        sh("ln -s /tmp lout", ""), sh("pwd -P", "/tmp\n", cwd="lout")))
    yield Row(s, "middle-link-to-outside", (
        sh("ln -s /usr m", ""), run(["pwd", "-P"], Per(DENIED, done(Re("^/usr/share\n$"))),
                                    cwd="m/share")))
    yield Row(s, "PWD-through-a-link", (
        sh("mkdir d; ln -s d l", ""),
        sh("echo \"$PWD\"", Per("{root}/d\n", "/home/agent/l\n"), cwd="l")))
    yield Row(s, "wrong-type", (run(["true"], WRONG, cwd=5),))


def env_rows():
    s = "B.4.3"
    path = "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    base = Per(f"HOME=/root\n{path}\n", f"HOME=/root\n{path}\nPWD=/home/agent\n")
    sort = ["python3", "-c", "import os\nfor k, v in sorted(os.environ.items()):\n"
            " if k != 'LC_CTYPE': print(k + '=' + v)"]
    yield Row(s, "base", (run(sort, done(base)), run(sort, done(base), env={})))
    yield Row(s, "caller's-keys-come-on-top", (
        sh("echo $HOME $A $LANG", "/x b C.UTF-8\n",
           env={"HOME": "/x", "A": "b", "LANG": "C.UTF-8"}),))
    yield Row(s, "PATH-governs-the-lookup", (
        sh("mkdir bin; printf '#!/bin/sh\\necho mine $PATH\\n' > bin/sbx-tool; "
           "chmod +x bin/sbx-tool", ""),
        run(["sbx-tool"], done("mine {root}/bin:/usr/bin:/bin\n"),
            env={"PATH": "{root}/bin:/usr/bin:/bin"})))
    yield Row(s, "PATH-hides-programs", (
        run(["true"], done("", Re("^Error: spawn true ENOENT"), None),
            env={"PATH": "/nonexistent"}),), profiles=HOST)
    yield Row(s, "values-are-made-texts", (
        sh("echo $A $B $C $D", "null 5 true 1.5\n", env={"A": None, "B": 5, "C": True, "D": 1.5}),))
    yield Row(s, "awkward-values", (
        sh("printf '%s|' \"$A\" \"$B\" \"$C\"", "a\nb|=x=|é|",
           env={"A": "a\nb", "B": "=x=", "C": "é"}),))
    yield Row(s, "nul-in-a-value", (run(["true"], WRONG, env={"A": "a\0b"}),))
    yield Row(s, "one-string-of-131071-bytes", (
        sh("echo ${#A}", "131069\n", env={"A": "a" * 131069}),
        sh("echo ${#A}", errno("spawn E2BIG$"), env={"A": "a" * 131070})))


def argv_rows():
    s = "B.4.4"
    yield Row(s, "non-texts-are-made-texts", (
        run(["printf", "%s|", 5, None, True, {"a": 1}, 1.5],
            done("5|null|true|[object Object]|1.5|")),))
    yield Row(s, "argv0-is-a-number", (run([5], WRONG),), profiles=HOST)
    yield Row(s, "nul", (run(["echo", "a\0b"], WRONG),))
    yield Row(s, "arguments-arrive-as-they-are", (
        run(["printf", "%s|", "", " ", "a\nb", "'\"$`\\", "-x", "é", "🎉"],
            done("| |a\nb|'\"$`\\|-x|é|🎉|")),))
    hexed = '"sh","-c","printf %s \\"$1\\" | od -An -tx1","sh",'
    yield Row(s, "invalid-utf-8-becomes-fffd", (
        run(None, done(Re("^ 61 ef bf bd 62\n$")),
            body=b'{"argv":[' + hexed.encode() + b'"a\xffb"]}'),))
    yield Row(s, "lone-surrogate-becomes-fffd", (
        run(None, done(Re("^ 61 ef bf bd 62\n$")),
            body='{"argv":[' + hexed + '"a\\ud800b"]}'),))
    yield Row(s, "surrogate-pairs-are-one-character", (
        run(None, done(Re("^ f0 9f 8e 89\n$")),
            body='{"argv":[' + hexed + '"\\ud83c\\udf89"]}'),))
    yield Row(s, "bytes-spelled-in-the-shell", (
        sh("printf 'x' > \"$(printf 'a\\377')\"; printf '\\377' | od -An -tx1", " ff\n"),
        readdir(".", ["a\ufffd"]), Disk(b"a\xff", content=b"x")))
    yield Row(s, "byte-order-mark", (run(None, BAD_JSON, body=b'\xef\xbb\xbf{"argv":["true"]}'),))
    for name, body in (("empty-object", "{}"), ("empty-body", ""), ("array", "[]"),
                       ("no-arguments", '{"argv":[]}'), ("text", '{"argv":"true"}'),
                       ("null-argv", '{"argv":null}'), ("number", '{"argv":5}'),
                       ("object", '{"argv":{"0":"true","length":1}}')):
        yield Row(s, f"no-argv-{name}", (run(None, EMPTY_ARGV, body=body),))
    yield Row(s, "null-body", (run(None, WRONG, body="null"),))
    big = errno("spawn E2BIG$")
    yield Row(s, "one-argument-of-131071-bytes", (
        sh("echo ${#1}", "131071\n", "a" * 131071), sh("echo ${#1}", big, "a" * 131072)))
    yield Row(s, "two-mebibytes-in-all", (
        run(["true"] + ["a" * 104499] * 20), run(["true"] + ["a" * 100000] * 30, big)))
    yield Row(s, "200000-small-arguments", (
        run(["true"] + ["argument"] * 200_000, Per(
            big, no(500, "internal_error", "^Maximum call stack size exceeded$"))),))
    yield Row(s, "limit-of-one-joined-command", (
        run(["true", "a" * 1000]), run(["true"] + ["a" * 100] * 60, big)), server="joined")


def timeout_rows():
    s = "B.4.5"
    yield Row(s, "zero-is-none", (sh("sleep 0.4; echo x", "x\n", timeoutMs=0),))
    yield Row(s, "not-reached", (sh("echo x", "x\n", timeoutMs=20_000),))
    killed = {"code": None, "signal": "SIGKILL", "timed_out": True}
    yield Row(s, "kills-the-direct-child-only", (
        sh(Per("sleep 1.5; echo late", "sleep 8; echo late"),
           Per(done("", **killed, seconds=(1.4, 9)), done("", **killed, seconds=(0.3, 6))),
           timeoutMs=300),), seconds=1)
    yield Row(s, "grandchildren-work-on", (
        sh("(sleep 1; echo x > did) & exec sleep 30",
           Per(done("", **killed, seconds=(0.9, 9)), done("", **killed, seconds=(0.3, 9))),
           timeoutMs=300),
        Pause(Per(0, 1.2)),
        sh("cat did", Per(done("x\n"), done("", Re("No such file"), 1)))), seconds=2)
    yield Row(s, "output-so-far-is-returned", (
        sh("echo so; echo far >&2; exec sleep 30", done("so\n", "far\n", **killed),
           timeoutMs=400),))
    for name, text in (("3e9", "3e9"), ("2147483648", "2147483648"), ("1e400", "1e400"),
                       ("negative", "-5")):
        yield Row(s, f"fires-at-once-{name}", (
            run(None, done("", **killed, seconds=(0, 8)),
                body='{"argv":["sleep","10"],"timeoutMs":' + text + "}"),), profiles=HOST)
    yield Row(s, "2147483647-does-not-fire", (sh("sleep 0.3; echo x", "x\n",
                                                 timeoutMs=2147483647),))
    yield Row(s, "text-works", (
        run(["sleep", "30"], done("", **killed, seconds=(0.3, 15)), timeoutMs="300"),))


def text_rows():
    s = "B.4.6"
    yield Row(s, "invalid-bytes-become-fffd", (
        sh("printf 'a\\377b\\376\\375'; printf '\\300\\257' >&2",
           done("a\ufffdb\ufffd\ufffd", "\ufffd\ufffd")),))
    yield Row(s, "control-bytes-survive", (
        sh("printf '\\357\\273\\277a\\000b\\001\\r\\n\\033\\177\\342\\200\\250'",
           "\ufeffa\0b\x01\r\n\x1b\x7f\u2028"),))
    yield Row(s, "characters-of-all-widths", (
        sh("printf 'a\\303\\251\\342\\202\\254\\360\\237\\216\\211'", "aé€🎉"),))
    yield Row(s, "split-between-reads-is-damaged", (
        sh("printf '\\303'; sleep 0.3; printf '\\251'", "\ufffd\ufffd"),
        sh("printf '\\342\\202' >&2; sleep 0.3; printf '\\254' >&2", done("", "\ufffd\ufffd"))),
        seconds=0.7)
    yield Row(s, "byte-by-byte-is-damaged", (
        run(["python3", "-c", "import os, time\nfor b in 'é€'.encode() * 3:\n"
             " os.write(1, bytes([b])); time.sleep(0.05)"], done(Damaged(10))),), seconds=1)
    yield Row(s, "1-mb-of-mixed-widths-is-damaged", (
        run(["python3", "-c", "import sys; sys.stdout.buffer.write('aé€🎉'.encode() * 100000)"],
            done(Damaged(1))),))
    yield Row(s, "3-mb-of-base64-are-exact", (
        sh("head -c 3000000 /dev/zero | base64 -w0", "A" * 4_000_000),))
    yield Row(s, "json-text-over-the-limit", (
        sh("head -c 100000000 /dev/zero", errno("Invalid string length$")), stat(".")),
        profiles=HOST, slow="600 MB of JSON to make")
    yield Row(s, "200-mb-of-ascii", (
        sh("head -c 200000000 /dev/zero | tr '\\0' a", Re("^a{1000}")),), profiles=HOST,
        slow="200 MB to decode")
    yield Row(s, "raw-stream-over-the-limit-ends-the-server", (
        put("f", b"x"), Dies(sh("head -c 540000000 /dev/zero | tr '\\0' a"))), profiles=HOST,
        server="own", slow="540 MB to read")
    yield Row(s, "output-limit-cuts-silently", (
        sh("head -c 300000 /dev/zero | tr '\\0' a; head -c 5 /dev/zero | tr '\\0' b >&2",
           done("a" * 262144, "bbbbb")),), server="cut")


def children_rows():
    s = "B.4.7"
    yield Row(s, "background-child-with-stdout", (
        sh(Per("sleep 1 & echo x", "sleep 8 & echo x"),
           Per(done("x\n", seconds=(0.9, 9)), done("x\n", seconds=(0, 6)))),), seconds=0.5)
    for name in ("setsid", "nohup"):
        yield Row(s, f"detached-by-{name}", (
            sh(f"{name} sh -c 'sleep 2; echo x > late' </dev/null >/dev/null 2>&1 &",
               done("", seconds=(0, 1.8))),
            missing("late"), Pause(Per(0, 2.3)),
            Until(sh("cat late", Per(done("x\n"), done("", Re(""), 1))))), seconds=2)
    note = "/tmp/sbx-conformance-{id}"
    yield Row(s, "tmp-between-execs", (
        sh(f"echo x > {note}", ""),
        sh(f"cat {note}; rm -f {note}", Per(done("x\n"), done("", Re("No such file"))))))
    for place in ("/home/agent", "/usr", "/etc", "/var", "/opt", "/srv", "/root", "/var/tmp",
                  "/lib"):
        yield Row(s, f"persists-{place.replace('/', '_')}", (
            sh(f"echo x > {place}/sbx-conformance", ""),
            sh(f"cat {place}/sbx-conformance", "x\n")), profiles=OVERLAY,
            needs=("root",) if place == "/lib" else ())  # part of /usr, and its owner's alone
    for place in ("/tmp", "/run", "/home", "/mnt", "/dev/shm"):
        yield Row(s, f"does-not-persist-{place.replace('/', '_')}", (
            sh(f"echo x > {place}/sbx-conformance", ""),
            sh(f"cat {place}/sbx-conformance", done("", Re("No such file"), 1))), profiles=OVERLAY)
    yield Row(s, "root-is-read-only", (
        sh("echo x > /sbx-conformance", done("", Re("Read-only file system"), 2)),),
        profiles=OVERLAY)
    yield Row(s, "pids-of-its-own", (sh("echo $$", Per(Re("^[0-9]{2,}\n$"), "2\n")),))
    yield Row(s, "loopback-only", (
        sh("ls /sys/class/net 2>/dev/null || awk 'NR > 2 { print $1 }' /proc/net/dev",
           Re("^lo:?\n$")),), profiles=OVERLAY)
    yield Row(s, "mknod-is-refused-chown-works", (
        sh("mknod c c 1 3", done("", Re("Operation not permitted"), 1)),
        sh("echo x > f; chown 1234:1234 f; stat -c %u f", "1234\n")), profiles=OVERLAY,
        needs=("root",))
    yield Row(s, "disconnect-does-not-stop-it", (
        Abandon(sh("sleep 0.8; echo ended > f"), 0.3), missing("f"),
        Until(get("f", b"ended\n"), 5)), seconds=1)
    yield Row(s, "a-repeated-exec-runs-twice", (
        sh("echo x >> f", ""), sh("echo x >> f", ""), get("f", b"x\nx\n")))
    yield Row(s, "four-in-parallel", (
        Together(tuple(sh(f"echo {n} > f{n}; sleep 1; echo {n}",
                          done(f"{n}\n", seconds=(1, 3.5)))
                       for n in range(4))),
        sh("cat f0 f1 f2 f3", "0\n1\n2\n3\n")), seconds=0.6)


ROWS = tuple(row for part in (
    request_rows, outcome_rows, cwd_rows, env_rows, argv_rows, timeout_rows, text_rows,
    children_rows) for row in part())
