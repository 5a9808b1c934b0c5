"""Speaks to program_driver: one workspace, one set of tools."""

import os
import subprocess
from collections import namedtuple

Attr = namedtuple("Attr", "mode size blocks mtime ctime ino dev nlink has_ns")
Place = namedtuple("Place", "state error has_attr attr link entries")
Entry = namedtuple("Entry", "attr link")
Result = namedtuple("Result", "error in_place set_aside text proven")
Path = namedtuple("Path", "present attr link")
Item = namedtuple("Item", "error stable has_attr attr data")

FAILED, KNOWN, UNCHANGED, LISTED = range(4)
AND, NOREPLACE, EXCL, IN_PLACE = 1, 2, 4, 8

_PLAIN = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789./_-:,=")


class DriverError(Exception):
    """The request could not be made, or its answer not be read."""

    def __init__(self, errno):
        super().__init__(os.strerror(errno))
        self.errno = errno


def quote(word):
    data = os.fsencode(word) if isinstance(word, str) else word
    if isinstance(data, int):
        data = str(data).encode()
    return "".join(chr(b) if b in _PLAIN else f"%{b:02x}" for b in data) or "%"


def unquote(word):
    if word == "%":
        return b""
    parts = word.split("%")
    return parts[0].encode() + b"".join(bytes([int(p[:2], 16)]) + p[2:].encode()
                                        for p in parts[1:])


def _attr(words):
    mode, *rest = words
    numbers = [int(word) for word in rest]
    return Attr(int(mode, 8), *numbers[:-1], bool(numbers[-1]))


class Apply:
    """One request of the apply program; operations are methods."""

    def __init__(self, sandbox, opid):
        self.sandbox = sandbox
        sandbox.ask("begin", opid or "-")

    def __getattr__(self, verb):
        def add(path, *words, flags=0):
            return self._index(verb, path, flags, *words)
        return add

    def _index(self, *words):
        index = int(self.sandbox.ask(*words)[0][1])
        if index < 0:
            raise DriverError(-index)
        return index

    def rename(self, path, to, held="none", flags=0):
        return self._index("rename", path, flags, to, held)

    def unlink(self, path, held="none", flags=0):
        return self._index("unlink", path, flags, held)

    def save(self, path, data=None, stage=None, mode="keep", atime="omit", mtime="omit",
             held="none", flags=0):
        source = ("data", data) if stage is None else ("stage", *stage)
        return self._index("save", path, flags, mode, atime, mtime, held, *source)

    def patch(self, path, *pieces, flags=0):
        words = []
        for kind, offset, content in pieces:
            if isinstance(content, tuple):
                stage, at, length = content
                words += [kind, offset, "-", stage, f"{at}:{length}"]
            else:
                words += [kind, offset, content, "-", "-"]
        return self._index("patch", path, flags, *words)

    def send(self):
        return self.sandbox.send()


class Reply:
    def __init__(self, lines):
        self.repeated, self.not_kept = (word == "1" for word in lines[0][1:])
        self.results, self.paths = [], {}
        for kind, *words in lines[1:]:
            if kind == "result":
                self.results.append(Result(int(words[0]), words[1] == "1", words[2] == "1",
                                           unquote(words[3]).decode(), words[4] == "1"))
            else:
                self.paths[unquote(words[0])] = Path(words[1] == "1", _attr(words[2:11]),
                                                     unquote(words[11]))

    @property
    def errors(self):
        return [result.error for result in self.results]


class Sandbox:
    def __init__(self, driver, tool_path, root):
        self.root = root
        self.process = subprocess.Popen([driver, tool_path, root], stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def use(self, tools, without=""):
        """Programs are for the tools that the word says, but for those letters."""
        letters, ids = tools.split(",")
        self.tools = "".join(c for c in letters if c not in without) + "," + ids
        self.ask("tools", self.tools)

    def close(self):
        self.process.stdin.close()
        self.process.stdout.close()
        assert self.process.wait() == 0

    def has(self, letter):
        return letter in self.tools.split(",")[0]

    def ask(self, *words):
        line = " ".join(quote(str(w) if isinstance(w, int) else w) for w in words)
        self.process.stdin.write(line.encode() + b"\n")
        self.process.stdin.flush()
        lines = []
        while True:
            line = self.process.stdout.readline().decode().rstrip("\n")
            assert line, "the driver died"
            if line == ".":
                break
            lines.append(line.split(" "))
        if lines and lines[0][0] == "error":
            raise DriverError(int(lines[0][1]))
        return lines

    def probe(self, make=True, cut=None):
        words = ["probe", int(make)] + ([cut] if cut is not None else [])
        lines = self._take_survey(self.ask(*words))
        return {line[0]: line[1:] for line in lines}

    def survey(self, mode, *paths, limit=0, since=0, dirs_only=False):
        """Goes with the next probe or with what is sent next; then `surveyed` is its answer."""
        self.ask("survey", mode, limit, since, int(dirs_only), *paths)

    def _take_survey(self, lines):
        """Takes away what is of a survey; surveyed is None where there is none."""
        at = next((i for i, line in enumerate(lines) if line[0] == "scan"), len(lines))
        self.surveyed = self._places(lines[at:]) if at < len(lines) else None
        return lines[:at]

    def limits(self, arg=131072, command=1900 * 1024, reply=0):
        self.ask("limits", arg, command, reply)

    def scan(self, mode, *paths, limit=0, since=0, dirs_only=False):
        return self._places(self.ask("scan", mode, limit, since, int(dirs_only), *paths))

    def _places(self, lines):
        self.clock, self.complete = int(lines[0][1]), lines[0][4] == "1"
        self.reply_bytes = int(lines[0][6])
        places, place = {}, None
        for kind, *words in lines[1:]:
            name = unquote(words[0])
            if kind == "place":
                place = Place(int(words[1]), int(words[2]), words[3] == "1", _attr(words[4:13]),
                              unquote(words[13]), {})
                assert name not in places
                places[name] = place
            else:
                assert name not in place.entries
                place.entries[name] = Entry(_attr(words[1:10]), unquote(words[10]))
        return places

    def pack(self, *items, limit=0, compress=False, follow=False):
        words = []
        for path, offset, length in items:
            words += [path, offset, length]
        lines = self.ask("pack", limit, int(compress), int(follow), *words)
        return [Item(int(w[1]), w[2] == "1", w[3] == "1", _attr(w[4:13]), unquote(w[13]))
                for w in lines]

    def apply(self, opid=None):
        return Apply(self, opid)

    def send(self):
        return Reply(self._take_survey(self.ask("send")))

    def do(self, verb, *words, **fields):
        """One operation: its errno and the reply."""
        request = self.apply()
        getattr(request, verb)(*words, **fields)
        reply = request.send()
        return reply.results[0].error, reply


def lstat(path):
    """What the decoders must say of a file, without the blocks."""
    st = os.lstat(path)
    return (st.st_mode, st.st_size, st.st_mtime_ns, st.st_ctime_ns, st.st_ino, st.st_dev,
            st.st_nlink)


def seen(attr):
    return (attr.mode, attr.size, attr.mtime, attr.ctime, attr.ino, attr.dev, attr.nlink)
