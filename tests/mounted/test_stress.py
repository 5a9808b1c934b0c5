"""Eight programs at work in one tree at once; then mount, sandbox and model agree."""

import errno
import os
import pickle
import random
import stat
import sys
import time
import traceback

import pytest


WORKERS = 8
# Directories in which all workers have names, each its own.
SHARED = ["s0", "s1", "s2"]
SIZES = [0, 1, 100, 4096, 20_000, 200_000]


class Worker:
    """What one worker has in the tree: path -> (kind, mode or None, content or target or None).

    A link of a file is a second path with the same list object as its content.
    """

    def __init__(self, top, number, seed):
        self.top = str(top)
        self.random = random.Random(seed * 1000 + number)
        self.number = number
        self.serial = 0
        self.dirs = {f"own{number}": 0o755}
        self.files = {}  # path -> {"data": bytearray, "mode": int}, shared by its links
        self.links = {}  # path -> target
        self.count = 0
        self.log = []

    def run(self, seconds):
        os.mkdir(self.at(f"own{self.number}"), 0o755)
        ways = [(self.save, 20), (self.append, 8), (self.patch, 8), (self.truncate, 5),
                (self.hold, 5), (self.rename, 10), (self.replace, 8), (self.unlink, 8),
                (self.mkdir, 4), (self.rename_dir, 3), (self.rmdir, 3), (self.symlink, 3),
                (self.hardlink, 3), (self.chmod, 5), (self.utime, 3), (self.read, 20),
                (self.look, 10), (self.list, 8), (self.missing, 4), (self.exclusive, 4)]
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            way = self.random.choices([w for w, _ in ways], [n for _, n in ways])[0]
            self.log.append(way.__name__)
            way()
            self.count += 1

    def at(self, path):
        return f"{self.top}/{path}"

    def fresh(self):
        """A name that nobody has."""
        self.serial += 1
        parent = self.random.choice(SHARED + list(self.dirs))
        return f"{parent}/w{self.number}-{self.serial}"

    def bytes(self):
        return self.random.randbytes(self.random.choice(SIZES))

    def some_file(self):
        return self.random.choice(list(self.files)) if self.files else None

    def fail(self, text):
        raise AssertionError(f"worker {self.number}: {text}: {' '.join(self.log[-15:])}")

    # Changes

    def save(self):
        path = self.some_file() if self.random.random() < 0.5 else None
        data = self.bytes()
        if path is None:
            path = self.fresh()
            self.files[path] = {"data": bytearray(), "mode": 0o644}
        with open(self.at(path), "wb") as file:
            file.write(data)
        self.files[path]["data"][:] = data

    def exclusive(self):
        path = self.some_file()
        if path:
            try:
                os.open(self.at(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY)
                self.fail(f"{path} was made again")
            except FileExistsError:
                pass
        path = self.fresh()
        fd = os.open(self.at(path), os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        data = self.bytes()
        os.write(fd, data)
        os.close(fd)
        self.files[path] = {"data": bytearray(data), "mode": 0o600}

    def append(self):
        path = self.some_file()
        if path:
            data = self.bytes()[:5000]
            with open(self.at(path), "ab") as file:
                file.write(data)
            self.files[path]["data"] += data

    def patch(self):
        path = self.some_file()
        if path:
            have = self.files[path]["data"]
            offset = self.random.randrange(len(have) + 1)
            data = self.bytes()[:5000]
            with open(self.at(path), "r+b") as file:
                file.seek(offset)
                file.write(data)
            have[offset:offset + len(data)] = data

    def truncate(self):
        path = self.some_file()
        if path:
            have = self.files[path]["data"]
            size = self.random.randrange(len(have) + 100)
            os.truncate(self.at(path), size)
            del have[size:]
            have.extend(bytes(size - len(have)))

    def hold(self):
        """Open while it is changed, renamed and removed."""
        path = self.some_file()
        if not path:
            return
        record = self.files[path]
        with open(self.at(path), "r+b", buffering=0) as file:
            data = self.bytes()[:1000]
            file.write(data)
            record["data"][:len(data)] = data
            to = self.fresh()
            os.rename(self.at(path), self.at(to))
            self.files[to] = self.files.pop(path)
            wanted = bytes(record["data"])
            if os.pread(file.fileno(), len(wanted) + 1, 0) != wanted:
                self.fail(f"{to}, open and renamed, reads otherwise")
            if self.random.random() < 0.3:
                os.unlink(self.at(to))
                del self.files[to]
                if os.pread(file.fileno(), len(wanted) + 1, 0) != wanted:
                    self.fail(f"{to}, open and removed, reads otherwise")

    def rename(self):
        path = self.some_file()
        if path:
            to = self.fresh()
            os.rename(self.at(path), self.at(to))
            self.files[to] = self.files.pop(path)

    def replace(self):
        """By a temporary file, as editors do."""
        path = self.some_file()
        if path:
            temporary, data = self.fresh(), self.bytes()
            with open(self.at(temporary), "wb") as file:
                file.write(data)
            os.replace(self.at(temporary), self.at(path))
            self.files[path] = {"data": bytearray(data), "mode": 0o644}

    def unlink(self):
        path = self.some_file()
        if path and self.random.random() < 0.7:
            os.unlink(self.at(path))
            del self.files[path]
        elif self.links:
            path = self.random.choice(list(self.links))
            os.unlink(self.at(path))
            del self.links[path]

    def mkdir(self):
        path = self.fresh()
        os.mkdir(self.at(path), 0o755)
        self.dirs[path] = 0o755

    def movable(self):
        own = [path for path in self.dirs if not path.startswith("own") or "/" in path]
        return self.random.choice(own) if own else None

    def rename_dir(self):
        path = self.movable()
        to = self.fresh()
        if path is None or to.startswith(path + "/"):
            return
        os.rename(self.at(path), self.at(to))
        for table in (self.dirs, self.files, self.links):
            for name in list(table):
                if name == path or name.startswith(path + "/"):
                    table[to + name[len(path):]] = table.pop(name)

    def rmdir(self):
        path = self.movable()
        if path is None:
            return
        inside = any(name.startswith(path + "/")
                     for table in (self.dirs, self.files, self.links) for name in table)
        try:
            os.rmdir(self.at(path))
        except OSError as error:
            if not inside or error.errno != errno.ENOTEMPTY:
                self.fail(f"rmdir {path}: {error}")
            return
        if inside:
            self.fail(f"rmdir {path} with something in it")
        del self.dirs[path]

    def symlink(self):
        path = self.fresh()
        target = f"w{self.number}-{self.random.randrange(100)}"
        os.symlink(target, self.at(path))
        self.links[path] = target

    def hardlink(self):
        path = self.some_file()
        if path:
            to = self.fresh()
            os.link(self.at(path), self.at(to))
            self.files[to] = self.files[path]

    def chmod(self):
        path = self.some_file()
        if path:
            mode = self.random.choice([0o600, 0o644, 0o755])
            os.chmod(self.at(path), mode)
            self.files[path]["mode"] = mode

    def utime(self):
        path = self.some_file()
        if path:
            # BusyBox sets whole seconds.
            time_s = 1_600_000_000 + self.random.randrange(10**6)
            os.utime(self.at(path), (time_s, time_s))
            found = os.stat(self.at(path)).st_mtime
            if found != time_s:
                self.fail(f"{path}: {found} was set to {time_s}")

    # Looks

    def read(self):
        path = self.some_file()
        if path:
            with open(self.at(path), "rb") as file:
                data = file.read()
            if data != self.files[path]["data"]:
                self.fail(f"{path} reads {len(data)} bytes, not those "
                          f"{len(self.files[path]['data'])} that were written")

    def look(self):
        path = self.some_file()
        if path:
            record = self.files[path]
            found = os.lstat(self.at(path))
            have = (found.st_size, stat.S_IMODE(found.st_mode))
            if have != (len(record["data"]), record["mode"]):
                self.fail(f"{path} shows {have}")
        if self.links:
            path = self.random.choice(list(self.links))
            if os.readlink(self.at(path)) != self.links[path]:
                self.fail(f"{path} leads elsewhere")

    def list(self):
        path = self.random.choice(SHARED + list(self.dirs))
        mine = {name.rpartition("/")[2] for table in (self.dirs, self.files, self.links)
                for name in table if name.rpartition("/")[0] == path}
        found = {name for name in os.listdir(self.at(path))
                 if name.startswith(f"w{self.number}-")}
        if found != mine:
            self.fail(f"{path}: {sorted(found - mine)} too many, {sorted(mine - found)} missing")

    def missing(self):
        try:
            os.lstat(self.at(self.fresh()))
            self.fail("a name that was never made")
        except FileNotFoundError:
            pass

    def tree(self):
        """path -> what is there, as tree_of() has it."""
        links = {}
        for record in self.files.values():
            links[id(record)] = links.get(id(record), 0) + 1
        return {
            **{path: ("dir", mode) for path, mode in self.dirs.items()},
            **{path: ("link", target) for path, target in self.links.items()},
            **{path: ("file", record["mode"], links[id(record)], bytes(record["data"]))
               for path, record in self.files.items()},
        }


def tree_of(top):
    found = {}
    for directory, dirs, files in os.walk(top):
        if directory == str(top) and ".sbxfs" in dirs:
            dirs.remove(".sbxfs")
        for name in dirs + files:
            path = os.path.join(directory, name)
            status = os.lstat(path)
            mode = stat.S_IMODE(status.st_mode)
            if stat.S_ISDIR(status.st_mode):
                value = ("dir", mode)
            elif stat.S_ISLNK(status.st_mode):
                value = ("link", os.readlink(path))
            else:
                with open(path, "rb") as file:
                    value = ("file", mode, status.st_nlink, file.read())
            found[os.path.relpath(path, top)] = value
    return found


def differences(one, other):
    def short(value):
        return value and tuple(f"{len(part)} bytes" if isinstance(part, bytes) else part
                               for part in value)
    return [f"{path}: {short(one.get(path))} {short(other.get(path))}"
            for path in sorted({*one, *other}) if one.get(path) != other.get(path)][:20]


def run_worker(worker, seconds, output):
    status = 1
    try:
        worker.run(seconds)
        with open(output, "wb") as file:
            pickle.dump((worker.tree(), worker.count), file)
        status = 0
    except Exception:
        traceback.print_exc(file=sys.stderr)
        sys.stderr.flush()
    finally:
        os._exit(status)


def stress(place, seconds, seed):
    for name in SHARED:
        (place.fs / name).mkdir(0o755)
    children = {}
    for number in range(WORKERS):
        output = place.work / f"worker{number}"
        pid = os.fork()
        if pid == 0:
            run_worker(Worker(place.fs, number, seed), seconds, output)
        children[pid] = output
    assert [os.waitpid(pid, 0)[1] for pid in children] == [0] * WORKERS, place.errors()
    model = {name: ("dir", 0o755) for name in SHARED}
    counts = []
    for output in children.values():
        tree, count = pickle.loads(output.read_bytes())
        model.update(tree)
        counts.append(count)
    print("operations:", sum(counts), "names:", len(model))
    assert min(counts) > 0
    assert differences(model, tree_of(place.fs)) == []
    with open(place.mount / place.name / "control", "w") as control:
        control.write("sync\n")
    assert differences(model, tree_of(place.root)) == []
    place.fresh()
    assert differences(model, tree_of(place.fs)) == []
    assert place.errors() == ""
    return sum(counts)


@pytest.mark.parametrize("kind", ["gnu-host", "busybox-host"])
def test_for_a_moment(start_place, kind):
    stress(start_place(kind), 5, seed=1)


@pytest.mark.slow
@pytest.mark.parametrize("options", [[], ["ttl=0"]], ids=["ttl1", "ttl0"])
def test_for_two_minutes(start_place, options):
    stress(start_place("gnu-host", options), 120, seed=2)
