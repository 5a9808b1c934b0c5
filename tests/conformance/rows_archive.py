"""B.5: persist and hydrate.

Not asked: the locale-aware order beyond letters of both cases, files over 8 GiB (a PAX size), the
operator's limits on members and size, and how long 20,000 files take.
"""

import gzip

from .model import (ANY, HOST, Call, During, NowMs, Re, Row, Stored, Tar, Want, dir_of, done, errno,
                    file_of, get, hydrate, missing, no, other_of, persist, put, readdir, sh, stat)
from sbxtest.tar import archive, directory, header, member, pax_records, padded, symlink

REJECT = no(500, "internal_error", ANY)


def persist_rows():
    s = "B.5.1"
    yield Row(s, "empty-root", (
        Call("POST", "/sessions/{id}/persist", want=Want(
            body=bytes(1024), headers={"content-type": "application/octet-stream",
                                       "content-length": "1024"})),))
    yield Row(s, "one-file", (
        put("f", b"hello"), Call("POST", "/sessions/{id}/persist", want=Want(
            tar=(Tar("f", mode=0o600, data=b"hello"),), headers={"content-length": "2048"}))))
    yield Row(s, "order-and-directories", (
        sh("mkdir -p b/d; echo 1 > b/d/f; echo 2 > a1; echo 3 > c", ""),
        persist(Tar("a1", data=b"2\n"), Tar("b/", "5", 0o755), Tar("b/d/", "5", 0o755),
                Tar("b/d/f", data=b"1\n"), Tar("c", data=b"3\n"))))
    yield Row(s, "case-does-not-order", (
        put("a", b""), put("B", b""), put("c", b""),
        persist(Tar("a", mode=0o600), Tar("B", mode=0o600), Tar("c", mode=0o600))))
    yield Row(s, "file-modes-are-kept-but-for-setuid", (
        sh("for m in 4755 600 640 777 444; do echo x > f$m; chmod $m f$m; done", ""),
        persist(Tar("f444", mode=0o444, data=b"x\n"), Tar("f4755", mode=0o755, data=b"x\n"),
                Tar("f600", mode=0o600, data=b"x\n"), Tar("f640", mode=0o640, data=b"x\n"),
                Tar("f777", mode=0o777, data=b"x\n"))))
    yield Row(s, "directory-modes-are-always-0755", (
        sh("mkdir -m 700 a; mkdir -m 1777 b; mkdir -m 2775 c", ""),
        persist(Tar("a/", "5", 0o755), Tar("b/", "5", 0o755), Tar("c/", "5", 0o755))))
    yield Row(s, "mtimes-and-owners-are-lost", (
        sh("echo x > f; touch -d @1700000000 f; mkdir d; touch -d @1600000000 d", ""),
        persist(Tar("d/", "5", 0o755), Tar("f", data=b"x\n"))))
    yield Row(s, "symlinks-verbatim", (
        sh("ln -s f a; ln -s /etc/passwd b; ln -s ../../x c; ln -s nosuch/ d", ""),
        persist(*(Tar(name, "2", 0o777, link=link) for name, link in (
            ("a", "f"), ("b", "/etc/passwd"), ("c", "../../x"), ("d", "nosuch/")))),
        stat("a", other_of(1, 0o777))))
    yield Row(s, "hard-links-become-files", (
        sh("echo x > a; ln a b", ""), persist(Tar("a", data=b"x\n"), Tar("b", data=b"x\n"))))
    yield Row(s, "special-files-are-skipped", (
        sh("mkfifo p; echo x > z; python3 -c 'import socket; "
           "socket.socket(socket.AF_UNIX).bind(\"s\")'", ""), persist(Tar("z", data=b"x\n"))))
    yield Row(s, "devices-are-skipped", (
        sh("mknod c c 1 3; echo x > z", ""), persist(Tar("z", data=b"x\n"))),
        profiles=HOST, needs=("root",))
    yield Row(s, "sparse-files-are-written-out", (
        sh("truncate -s 100000 f", ""), persist(Tar("f", data=bytes(100_000)))))
    yield Row(s, "non-ascii-names-are-raw-utf-8", (
        put("é", b"x"), sh("ln -s 日本 l", ""),
        persist(Tar("é", mode=0o600, data=b"x"), Tar("l", "2", 0o777, link="日本"))))
    yield Row(s, "99-bytes-fit", (
        put("n" * 99, b""), persist(Tar("n" * 99, mode=0o600))))
    yield Row(s, "100-bytes-lose-the-last", (
        put("n" * 99 + "x", b"d"), sh("ln -s \"$1\" a", done(), "t" * 99 + "y"),
        persist(Tar("a", "2", 0o777, link="t" * 99),
                Tar("n" * 99, mode=0o600, data=b"d"))))
    yield Row(s, "100-bytes-counting-the-slash-of-a-directory", (
        sh("mkdir \"$1\"", done(), "n" * 99), persist(Tar("n" * 99, "5", 0o755))))
    yield Row(s, "100-bytes-of-a-path", (
        put("d/" + "n" * 98, b""), persist(
            Tar("d/", "5", 0o755), Tar("d/" + "n" * 97, mode=0o600))))
    yield Row(s, "100-byte-names-become-duplicates", (
        put("n" * 99 + "a", b"1"), put("n" * 99 + "b", b"2"),
        persist(Tar("n" * 99, mode=0o600, data=b"1"), Tar("n" * 99, mode=0o600, data=b"2"))))
    yield Row(s, "101-bytes-get-a-pax-record", (
        put("n" * 101, b"x"), sh("ln -s \"$1\" a", done(), "t" * 101),
        persist(Tar("a", "2", 0o777, link=None, pax={"linkpath": "t" * 101}),
                Tar(None, mode=0o600, data=b"x", pax={"path": "n" * 101}))))
    yield Row(s, "pax-records-say-path-and-linkpath", (
        put("é" * 60, b"x"), sh("ln -s \"$1\" a", done(), "日" * 40),
        persist(Tar("a", "2", 0o777, link=None, pax={"linkpath": "日" * 40}),
                Tar(None, mode=0o600, data=b"x", pax={"path": "é" * 60}))))
    refused = errno("ENOENT: ")
    for name, make in (("file", ": > \"$(printf 'a\\377')\""),
                       ("directory", "mkdir \"$(printf 'a\\377')\""),
                       ("link", "ln -s x \"$(printf 'a\\377')\"")):
        yield Row(s, f"non-utf-8-{name}-name", (
            sh(make, ""), put("f", b"x"), persist(want=refused), get("f", b"x")))
    yield Row(s, "non-utf-8-target", (
        sh("ln -s \"$(printf 'a\\377')\" l", ""),
        persist(Tar("l", "2", 0o777, link="a\ufffd"))))
    yield Row(s, "2-gib-file", (
        sh("truncate -s 2147483648 f", ""), persist(want=REJECT)))
    yield Row(s, "files-that-vanish-meanwhile", (
        During((sh("for n in $(seq 15); do mkdir d; (cd d; seq 100 | xargs touch); rm -r d; done",
                   ""),), persist(want=Want()), (Want(), errno("ENOENT: "))),), seconds=1)
    yield Row(s, "takes-no-path", (
        sh("mkdir d; echo x > d/f; echo y > g", ""),
        Call("POST", "/sessions/{id}/persist?path=d", want=Want(tar=(
            Tar("d/", "5", 0o755), Tar("d/f", data=b"x\n"), Tar("g", data=b"y\n"))))))
    yield Row(s, "ignores-its-body", (
        Call("POST", "/sessions/{id}/persist", b"{garbage", want=Want(tar=())),))
    yield Row(s, "empty-files-and-deep-directories", (
        sh("mkdir -p a/b/c; : > a/b/e", ""),
        persist(Tar("a/", "5", 0o755), Tar("a/b/", "5", 0o755), Tar("a/b/c/", "5", 0o755),
                Tar("a/b/e"))))


def accept_rows():
    s = "B.5.2"
    yield Row(s, "files-directories-links", (
        hydrate(archive(directory("d/"), member("d/f", data=b"hello", mode=0o640),
                        symlink("l", "d/f"))),
        get("d/f", b"hello"), stat("d/f", file_of(5, 0o640)), stat("d", dir_of()),
        stat("l", other_of(3, 0o777)), get("l", b"hello"), readdir(".", ["d/", "l"])))
    yield Row(s, "type-nul-is-a-file", (
        hydrate(archive(member("f", "\0", b"x"))), get("f", b"x")))
    yield Row(s, "ustar-prefix", (
        hydrate(archive(member("f", data=b"x", prefix="a/b"))), get("a/b/f", b"x")))
    yield Row(s, "gnu-long-name-and-link", (
        hydrate(archive(
            member("././@LongLink", "L", "n" * 150 + "\0"), member("n" * 100, data=b"x"),
            member("././@LongLink", "K", "t" * 150 + "\0"), symlink("l", "t" * 100))),
        get("n" * 150, b"x"), stat("l", other_of(150, 0o777))))
    yield Row(s, "pax-path-and-linkpath", (
        hydrate(archive(member("x", data=b"1", pax={"path": "é" * 70}),
                        member("y", "2", link="z", mode=0o777, pax={"path": "l",
                                                                   "linkpath": "日" * 50}))),
        get("é" * 70, b"1"), sh("readlink l", "日" * 50 + "\n")))
    yield Row(s, "pax-size", (
        hydrate(archive(header("PaxHeader", "x", len(pax_records({"size": "5"})))
                        + padded(pax_records({"size": "5"})) + header("f", "0", 0)
                        + padded(b"hello"))), get("f", b"hello")))
    yield Row(s, "other-pax-keys-are-ignored", (
        hydrate(archive(member("f", data=b"x", mode=0o644, pax={
            "mtime": "1000000000.5", "mode": "0777", "uid": "1234", "SCHILY.xattr.user.a": "b"}))),
        stat("f", file_of(1, 0o644, mtimeMs=NowMs()))))
    yield Row(s, "sparse-pax-member-is-its-raw-data", (
        hydrate(archive(member("f", data=b"raw", pax={
            "GNU.sparse.major": "1", "GNU.sparse.minor": "0", "GNU.sparse.realsize": "99"}))),
        get("f", b"raw")))
    yield Row(s, "global-headers-are-ignored", (
        hydrate(archive(member("pax_global_header", "g", pax_records({"comment": "x",
                                                                     "path": "wrong"})),
                        member("f", data=b"x"))), readdir(".", ["f"])))
    yield Row(s, "links-come-last", (
        hydrate(archive(symlink("l", "d"), directory("d/"), member("d/f", data=b"x"))),
        get("l/f", b"x")))
    yield Row(s, "makes-parents", (
        hydrate(archive(member("a/b/f", data=b"x"))), get("a/b/f", b"x"), stat("a", dir_of())))
    yield Row(s, "archive-mode-exactly", (
        hydrate(archive(*(member(f"f{mode:04o}", data=b"x", mode=mode)
                          for mode in (0o777, 0o666, 0o4755, 0o2644, 0, 0o600)))),
        *(stat(f"f{mode:04o}", file_of(1, mode & 0o777))
          for mode in (0o777, 0o666, 0o4755, 0o2644, 0, 0o600))))
    yield Row(s, "directory-modes-are-ignored", (
        sh("mkdir -m 711 old", ""),
        hydrate(archive(directory("old/", mode=0o700), directory("new/", mode=0o700))),
        stat("old", dir_of(0o711)), stat("new", dir_of(0o755))))
    yield Row(s, "mtimes-are-now", (
        hydrate(archive(directory("d/", mtime=10**9), member("f", data=b"x", mtime=10**9))),
        stat("f", file_of(1, 0o644, mtimeMs=NowMs())), stat("d", {**dir_of(), "mtimeMs": NowMs()})))
    yield Row(s, "owner-is-the-server", (
        hydrate(archive(member("f", data=b"x", uid=1234, gid=1234, uname="games"))),
        sh("echo y > g; test \"$(stat -c %u:%g f)\" = \"$(stat -c %u:%g g)\"", "")))
    yield Row(s, "dot-member-is-ignored", (
        hydrate(archive(directory("./", mode=0o777), member("./f", data=b"x"))),
        stat(".", dir_of(0o700)), get("f", b"x"), readdir(".", ["f"])))
    yield Row(s, "duplicate-directories-are-fine", (
        hydrate(archive(directory("d/"), directory("d/"), member("d/f", data=b"x"))),
        get("d/f", b"x")))
    yield Row(s, "second-archive-is-ignored", (
        hydrate(archive(member("a", data=b"x")) + archive(member("b", data=b"y"))),
        readdir(".", ["a"])))
    yield Row(s, "no-end-blocks", (
        hydrate(archive(member("a", data=b"x"), end=False)), get("a", b"x")))
    yield Row(s, "cut-file-data-is-a-short-file", (
        hydrate(header("f", "0", 1000) + b"x" * 600), get("f", b"x" * 600)))
    for name, data in (("empty", b""), ("garbage", b"garbage"), ("511-bytes", b"x" * 511),
                       ("short-gzip", gzip.compress(archive(member("f", data=b"x")), mtime=0))):
        yield Row(s, f"under-512-bytes-{name}", (hydrate(data), readdir(".", [])))
    yield Row(s, "zero-blocks-only", (hydrate(bytes(1024)), readdir(".", [])))
    yield Row(s, "a-merge-not-a-restore", (
        put("d/other", b"kept"), put("top", b"kept"), hydrate(archive(member("d/f", data=b"x"))),
        readdir("d", ["f", "other"]), get("top", b"kept")))
    yield Row(s, "file-over-file", (
        sh("echo old > f; chmod 444 f; ln f g", ""),
        hydrate(archive(member("f", data=b"new", mode=0o640))), get("f", b"new"),
        stat("f", file_of(3, 0o640))))
    yield Row(s, "file-over-a-symlink", (
        sh("echo kept > t; ln -s t f", ""), hydrate(archive(member("f", data=b"new"))),
        stat("f", file_of(3, 0o644)), get("t", b"kept\n")))
    yield Row(s, "symlink-over-a-file", (
        put("l", b"old"), hydrate(archive(symlink("l", "x"))), stat("l", other_of(1, 0o777))))
    yield Row(s, "names-are-read-as-latin-1", (
        hydrate(archive(member("é", data=b"x"), directory("日/"),
                        member("././@LongLink", "L", "ü" * 52 + "\0"),
                        member("ü" * 50, data=b"y"), symlink("l", "é"))),
        readdir(".", ["l", "Ã©", "Ã¼" * 52, "æ\u0097¥/"]), sh("readlink l", "Ã©\n")))
    yield Row(s, "pax-names-are-read-as-utf-8", (
        hydrate(archive(member("x", data=b"x", pax={"path": "é"}),
                        member("y", "2", link="z", pax={"path": "l", "linkpath": "日"}))),
        readdir(".", ["l", "é"]), sh("readlink l", "日\n")))
    yield Row(s, "persisted-names-come-back-wrong", (
        put("é", b"x"), sh("ln -s é l", ""), persist(want=Want(), store="tar"),
        hydrate(Stored("tar")), readdir(".", ["l", "Ã©", "é"]), sh("readlink l", "Ã©\n")))
    yield Row(s, "persisted-tree-comes-back", (
        sh("mkdir -m 700 d; echo x > d/f; chmod 750 d/f; ln -s d/f l; touch -d @10 d/f", ""),
        persist(want=Want(), store="tar"), sh("rm -r d l", ""), hydrate(Stored("tar")),
        stat("d", dir_of()), stat("d/f", file_of(2, 0o750, mtimeMs=NowMs())), get("l", b"x\n")))
    yield Row(s, "persisted-absolute-link-is-refused", (
        sh("echo x > f; ln -s /etc/passwd l", ""), persist(want=Want(), store="tar"),
        hydrate(Stored("tar"), REJECT)))
    yield Row(s, "large-file", (
        hydrate(archive(member("f", data=b"x" * 5_000_000))), stat("f", file_of(5_000_000, 0o644))))


def refuse(name: str, message, *members: bytes, before=(), after=()) -> Row:
    """Refused when it is planned: the good member before it is not written."""
    return Row("B.5.2", f"refuses-{name}", (
        *before, put("kept", b"k"),
        hydrate(archive(member("good", data=b"x"), *members),
                no(500, "internal_error", message)),
        missing("good"), get("kept", b"k"), *after))


def refuse_rows():
    unsafe = '^unsafe archive member "'
    yield refuse("hard-links", "hardlink member not allowed", member("h", "1", link="good"))
    for kind in ("3", "4", "6", "7", "S", "V", "D", "9"):
        yield refuse(f"type-{kind}", f"unsupported member type {kind}", member("x", kind))
    for name, path in (("dot-dot", "../x"), ("dot-dot-inside", "a/../b"), ("dot-dot-only", ".."),
                       ("absolute", "/etc/x"), ("backslash", "a\\b"), ("drive", "C:x"),
                       ("drive-lower", "c:/x")):
        yield refuse(f"name-{name}", unsafe, member(path, data=b"y"),
                     after=(readdir(".", ["kept"]),))
    yield refuse("dot-dot-in-a-pax-path", unsafe, member("x", data=b"y", pax={"path": "../y"}))
    for name, target in (("absolute", "/usr/bin/python3"), ("above-the-root", "../x"),
                         ("drive", "C:x")):
        yield refuse(f"target-{name}", ANY, symlink("l", target))
    yield Row("B.5.2", "target-up-but-inside", (
        hydrate(archive(member("f", data=b"x"), symlink("d/l", "../f"))), get("d/l", b"x")))
    yield refuse("target-from-a-directory-above-the-root", ANY, symlink("d/l", "../../x"))
    yield refuse("duplicate-files", ANY, member("a", data=b"1"), member("a", data=b"2"))
    yield refuse("path-under-a-file", ANY, member("a", data=b"1"), member("a/b", data=b"2"))
    yield refuse("path-under-a-link", ANY, directory("d/"), symlink("a", "d"),
                 member("a/b", data=b"2"))
    yield refuse("bad-checksum", "invalid tar header checksum$", member("x", checksum=1))
    packed = gzip.compress(archive(member("f", data=bytes(range(256)) * 16)), 0, mtime=0)
    yield Row("B.5.2", "refuses-gzip", (
        hydrate(packed, no(500, "internal_error", "invalid tar header checksum$")),
        readdir(".", [])))
    yield Row("B.5.2", "refuses-garbage-of-512-bytes", (
        hydrate(b"x" * 512, no(500, "internal_error", "invalid tar header checksum$")),))


def partial_rows():
    s = "B.5.2"
    first = member("aa", data=b"first")
    eisdir = no(500, "internal_error", r"^Path is a directory: rm returned EISDIR \(is a "
                "directory\\) ")
    yield Row(s, "file-over-a-directory", (
        sh("mkdir d", ""), hydrate(archive(first, member("d", data=b"x")), eisdir),
        get("aa", b"first"), readdir("d", [])))
    yield Row(s, "symlink-over-a-directory", (
        sh("mkdir d", ""), hydrate(archive(first, symlink("d", "aa")), eisdir),
        get("aa", b"first"), stat("d", dir_of())))
    yield Row(s, "directory-over-a-file", (
        put("f", b"kept"),
        hydrate(archive(first, directory("f/")), errno("EEXIST: .*, mkdir ")),
        get("aa", b"first"), get("f", b"kept")))
    yield Row(s, "directory-over-a-symlink", (
        sh("mkdir t; ln -s t l", ""),
        hydrate(archive(first, directory("l/")), errno("EEXIST: .*, mkdir ")),
        get("aa", b"first")))
    yield Row(s, "symlink-as-a-parent", (
        sh("mkdir t; ln -s t l", ""), hydrate(archive(first, member("l/f", data=b"x")), REJECT),
        get("aa", b"first"), readdir("t", [])))
    yield Row(s, "symlink-to-outside-as-a-parent", (
        sh("ln -s /tmp l", ""),
        hydrate(archive(first, member("l/sbx-conformance-never", data=b"x")), REJECT),
        get("aa", b"first"), sh("ls /tmp/sbx-conformance-never", done("", Re("No such"), 2))))
    yield Row(s, "empty-target", (
        hydrate(archive(first, symlink("l", "")), REJECT), get("aa", b"first"),
        missing("l")))


ROWS = tuple(row for part in (persist_rows, accept_rows, refuse_rows, partial_rows)
             for row in part())
