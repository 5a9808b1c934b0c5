#!/usr/bin/python3
"""Runs the test suites on a finished build, adds up their results, looks for what they left behind.

Called by scripts/test, which says what the options and the environment mean. The runner is the
reaper of everything below it (PR_SET_CHILD_SUBREAPER), so a daemon that a test forgot becomes its
child and is found.
"""

import argparse
import collections
import ctypes
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
import xml.etree.ElementTree as ElementTree
from concurrent.futures import ThreadPoolExecutor

TOP = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
PR_SET_CHILD_SUBREAPER = 36
ADDR_NO_RANDOMIZE = 0x40000
SUITE_SECONDS = 1500
TEST_SECONDS = 300
WORKERS = 6
C_WORKERS = 2
# So many failed tests are run once more, alone: machines are shared, and a bound may be missed for
# the neighbours' sake. More than that is no accident.
AGAIN_MAX = 25
# In the text of a failure: a sanitizer's report, or valgrind's.
REPORT = re.compile(r"(Address|Thread|Leak|UndefinedBehavior)Sanitizer|: runtime error: |==\d+== ")

# name: (directory below tests/ and meson suite, marks, extra environment, does it mount)
SUITES = {
    "unit": ("unit", "", {}, False),
    "programs": ("programs", "", {}, False),
    "conformance": ("conformance", "", {}, False),
    "provider": ("provider", "", {}, False),
    "workspace": ("workspace", "", {}, False),
    "mounted": ("mounted", "", {}, True),
    "mounted-uid": ("mounted", "core", {"SBX_MOUNT_OPTIONS": "uid=12345"}, True),
    "faults": ("faults", "", {}, True),
}


# Of the programs that are waited for: the exit status, once somebody has reaped it.
STATUS = {}
REAPING = threading.Lock()


class Tally:
    """Counts of one suite, or of all."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0

    def __str__(self):
        return f"{self.passed} passed, {self.failed} failed, {self.skipped} skipped"

    def total(self):
        return self.passed + self.failed + self.skipped

    def add(self, other):
        self.passed += other.passed
        self.failed += other.failed
        self.skipped += other.skipped

    def fail(self, line):
        print(f"FAILED {line}", flush=True)
        self.failed += 1

    def add_junit(self, path):
        """Adds the cases of a JUnit file (pytest's or cmocka's); False when it is not whole."""
        try:
            root = ElementTree.parse(path).getroot()
        except (OSError, ElementTree.ParseError):
            return False
        for case in root.iter("testcase"):
            if case.find("failure") is not None or case.find("error") is not None:
                self.failed += 1
            elif case.find("skipped") is not None:
                self.skipped += 1
            else:
                self.passed += 1
        return True


def failures(junit):
    """What pytest's tests failed with: {FILE::[CLASS::]NAME: texts}.

    There may be two of one test, which failed and then could not be cleared away.
    """
    found = collections.defaultdict(list)
    for case in ElementTree.parse(junit).getroot().iter("testcase"):
        parts = case.get("classname").split(".")
        for length in range(len(parts), 0, -1):
            file = os.path.join("tests", *parts[:length]) + ".py"
            if os.path.exists(os.path.join(TOP, file)):
                break
        for wrong in case.findall("failure") + case.findall("error"):
            name = "::".join([file, *parts[length:], case.get("name")])
            found[name].append(f"{wrong.get('message')}\n{wrong.text}")
    return found


def descendants():
    """Living processes below this one: {pid: command line}."""
    parents = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        try:
            with open(f"/proc/{name}/stat", encoding="latin-1") as file:
                fields = file.read().rpartition(")")[2].split()
        except OSError:
            continue
        if fields[0] != "Z":
            parents[int(name)] = int(fields[1])
    found = {}
    for pid in parents:
        up = pid
        while up in parents and up != os.getpid():
            up = parents[up]
        if up == os.getpid() and pid != up:
            try:
                with open(f"/proc/{pid}/cmdline", encoding="latin-1") as file:
                    found[pid] = file.read().replace("\0", " ").strip()
            except OSError:
                pass
    return found


def kill_descendants():
    """Ends whatever runs below this process."""
    for _ in range(100):
        living = descendants()
        if not living:
            return
        for pid in living:
            try:
                os.kill(pid, signal.SIGKILL)
            except OSError:
                pass
        reap(None, 0.1)


def reap(wanted, seconds):
    """Reaps children for up to that long; the exit status of `wanted`, None when it runs on."""
    end = time.monotonic() + seconds
    while True:
        with REAPING:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                pid = None
            if pid in STATUS:
                STATUS[pid] = os.waitstatus_to_exitcode(status)
            if pid is None or STATUS.get(wanted) is not None:
                return STATUS.get(wanted)
        if pid == 0 and time.monotonic() >= end:
            return None
        if pid == 0:
            time.sleep(0.02)


def run(argv, env, seconds, cwd=TOP, output=None):
    """Runs a program to its end; its exit status, or None when it had to be killed."""
    with REAPING:
        process = subprocess.Popen(argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL,
                                   stdout=output, stderr=subprocess.STDOUT if output else None)
        STATUS[process.pid] = None
    status = reap(process.pid, seconds)
    del STATUS[process.pid]
    process.returncode = -1 if status is None else status
    if status is None:
        kill_descendants()
    return status


def sbxfs_mounts():
    """Mount points of sbxfs on this machine."""
    with open("/proc/self/mounts", encoding="latin-1") as file:
        rows = [line.split() for line in file]
    return {row[1].encode("latin-1").decode("unicode_escape") for row in rows
            if row[2] == "fuse.sbxfs"}


def fuse_error():
    """Why /dev/fuse can't be used, or None."""
    try:
        os.close(os.open("/dev/fuse", os.O_RDWR | os.O_CLOEXEC))
    except OSError as error:
        return f"/dev/fuse: {error.strerror}"
    return None


def our_names():
    """Names that sbxfs, sbxd or a job leave in shared directories when they are careless."""
    found = set()
    for place in ("/tmp", "/var/tmp", "/dev/shm"):
        try:
            names = os.listdir(place)
        except OSError:
            continue
        for name in names:
            # Another run's directories are its own affair; this run's are in its TMPDIR.
            if name.startswith(("sbx", "sandbox-jobs")) and \
               not name.partition(".")[0].endswith(("-test", "-demo", "-bench")):
                found.add(os.path.join(place, name))
    return found


class Runner:
    def __init__(self, options):
        self.options = options
        self.slack = float(os.environ.get("SBX_SLACK") or
                           {"": 1, "thread": 6}.get(os.environ.get("SBX_SANITIZE", ""), 3) *
                           (10 if os.environ.get("SBX_VALGRIND") else 1))
        self.dir = tempfile.mkdtemp(prefix="sbx-test.")
        os.chmod(self.dir, 0o711)
        for name, mode in (("tmp", 0o1777), ("home", 0o700), ("reports", 0o1777)):
            os.mkdir(os.path.join(self.dir, name))
            os.chmod(os.path.join(self.dir, name), mode)
        self.results = os.path.join(options.build, "test-results")
        shutil.rmtree(self.results, ignore_errors=True)
        os.makedirs(self.results)
        self.names = our_names()
        self.seen_reports = set()

    def env(self, extra):
        """The environment of a suite: a home and a temporary directory of its own."""
        env = {key: value for key, value in os.environ.items()
               if not key.startswith("XDG_") and key not in ("SBX_TOKEN", "SBX_ENDPOINT")}
        reports = os.path.join(self.dir, "reports")
        env.update(HOME=os.path.join(self.dir, "home"), TMPDIR=os.path.join(self.dir, "tmp"),
                   LC_ALL="C.UTF-8", SBX_BUILD=self.options.build, SBX_SLACK=f"{self.slack:g}",
                   PYTHONPATH=os.path.join(TOP, "tests/lib"), PYTHONDONTWRITEBYTECODE="1",
                   ASAN_OPTIONS=f"log_path={reports}/asan:detect_leaks=1:exitcode=99",
                   UBSAN_OPTIONS=f"log_path={reports}/ubsan:print_stacktrace=1",
                   TSAN_OPTIONS=f"log_path={reports}/tsan:exitcode=99:second_deadlock_stack=1")
        env.update(extra)
        return env

    def run_meson(self, suite, directory, tally, env):
        """Runs the C tests of a suite; cmocka's own report gives the cases of each."""
        listing = subprocess.run(["meson", "introspect", "--tests", self.options.build],
                                 stdout=subprocess.PIPE, check=True)
        reap(None, 0)
        tests = [test for test in json.loads(listing.stdout)
                 if any(label.split(":")[-1] == directory for label in test["suite"])
                 and (not self.options.k or self.options.k in test["name"])]

        def one(test):
            name = f"{suite}-{test['name'].replace('/', '-').replace(' ', '-')}"
            reports = os.path.join(self.results, name)
            os.mkdir(reports)
            with open(reports + ".log", "wb") as output:
                return reports, run(test["cmd"], dict(env, **test["env"],
                                                      CMOCKA_MESSAGE_OUTPUT="XML",
                                                      CMOCKA_XML_FILE=f"{reports}/%g.xml"),
                                    (test["timeout"] or 30) * self.slack, test["workdir"] or TOP,
                                    output)

        with ThreadPoolExecutor(C_WORKERS) as pool:
            for test, (reports, status) in zip(tests, pool.map(one, tests)):
                tally.add(self.meson_cases(test, reports, status))

    @staticmethod
    def meson_cases(test, reports, status):
        """What a C test that has ended counts; says what failed."""
        cases = Tally()
        whole = all([cases.add_junit(os.path.join(reports, file))
                     for file in os.listdir(reports)])
        if status == 0 and whole and cases.total() == 0:
            cases.passed = 1
        elif status != 0 or not whole:
            with open(reports + ".log", encoding="utf-8", errors="replace") as file:
                sys.stdout.write(file.read())
            for file in os.listdir(reports):
                subprocess.run(["grep", "-A3", "-e", "<failure", "-e", "<error",
                                os.path.join(reports, file)], check=False)
            if cases.failed == 0:
                cases.failed = 1
            print(f"FAILED {test['name']}: " + ("timed out" if status is None else
                                                f"exit status {status}"), flush=True)
        print(f"{test['name']}: {cases}", flush=True)
        return cases

    def run_pytest(self, suite, directory, marks, tally, env):
        """Runs the Python tests of a suite, those marked `serial` one after another."""
        parts = [("", "not serial", WORKERS)]
        if subprocess.run(["grep", "-rqw", "mark.serial", f"tests/{directory}"], cwd=TOP,
                          check=False).returncode == 0:
            parts.append(("-serial", "serial", 0))
        for part, mark, workers in parts:
            mark = " and ".join(f"({each})" for each in (mark, marks, self.options.m) if each)
            junit = os.path.join(self.results, f"{suite}{part}.xml")
            argv = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider",
                    "--basetemp", os.path.join(self.dir, f"pytest-{suite}{part}"), "-m", mark,
                    "--timeout", f"{TEST_SECONDS * max(1, self.slack):g}"]
            choice = [f"tests/{directory}", "--junitxml", junit]
            if workers:
                choice += ["-n", str(workers)]
            if self.options.k:
                choice += ["-k", self.options.k]
            status = run(argv + choice, env, SUITE_SECONDS * max(1, self.slack / 2))
            if status == 5:
                continue
            cases = Tally()
            whole = cases.add_junit(junit)
            if status is None:
                cases.fail(f"{suite}: did not end in time")
            elif status not in (0, 1) or not whole or (cases.failed == 0) != (status == 0):
                cases.fail(f"{suite}: pytest ended with {status}")
            elif 0 < cases.failed <= AGAIN_MAX:
                self.run_again(f"{suite}{part}", argv, failures(junit), cases, env)
            tally.add(cases)

    def run_again(self, name, argv, failed, cases, env):
        """Runs what failed once more, one after another; what passes now is said to be flaky.

        Not what showed a report of a sanitizer or of valgrind: that was seen, whatever comes now.
        """
        tests = [each for each, texts in failed.items() if not any(map(REPORT.search, texts))]
        if not tests:
            return
        print(f"-- {name}: {cases.failed} failed; {len(tests)} of them once more, alone",
              flush=True)
        junit = os.path.join(self.results, f"{name}-again.xml")
        where = os.path.join(self.dir, f"pytest-{name}-again")
        status = run(argv + ["--basetemp", where, "--junitxml", junit, *tests],
                     dict(env, SBX_SLACK=f"{2 * self.slack:g}"), SUITE_SECONDS)
        again = Tally()
        if status not in (0, 1) or not again.add_junit(junit) or again.total() < len(tests):
            return
        flaky = set(tests) - set(failures(junit))
        print(f"FLAKY {name}: {len(flaky)} of {len(tests)} passed when run alone", flush=True)
        cases.passed += len(flaky)
        cases.failed -= sum(len(failed[each]) for each in flaky)

    def leftovers(self, suite, tally):
        """What a suite left running or mounted is a failure, and is cleared away."""
        end = time.monotonic() + 5 * self.slack
        while (descendants() or our_names() - self.names) and time.monotonic() < end:
            reap(None, 0.1)
        for pid, command in descendants().items():
            tally.fail(f"{suite}: left process {pid} behind: {command[:200]}")
        kill_descendants()
        for mount in sorted(sbxfs_mounts()):
            if mount.startswith(self.dir + "/"):
                tally.fail(f"{suite}: left a mount behind: {mount}")
                subprocess.run(["fusermount3", "-u", "-z", mount], check=False)
        for name in sorted(our_names() - self.names):
            tally.fail(f"{suite}: left a file behind: {name}")
            self.names.add(name)
        reports = os.path.join(self.dir, "reports")
        for name in sorted(set(os.listdir(reports)) - self.seen_reports):
            self.seen_reports.add(name)
            path = os.path.join(reports, name)
            if os.path.getsize(path) == 0:
                continue
            with open(path, encoding="utf-8", errors="replace") as file:
                sys.stdout.write(file.read(20000))
            shutil.copy(path, self.results)
            tally.fail(f"{suite}: a report in {os.path.relpath(self.results, TOP)}/{name}")

    def run_suite(self, suite):
        directory, marks, extra, mounts = SUITES[suite]
        tally = Tally()
        start = time.monotonic()
        print(f"== {suite}", flush=True)
        if mounts and fuse_error():
            tally.fail(f"{suite}: no mount can be made: {fuse_error()}")
            return tally
        env = self.env(extra)
        self.run_meson(suite, directory, tally, env)
        folder = os.path.join(TOP, "tests", directory)
        if os.path.isdir(folder) and any(name.startswith("test_") and name.endswith(".py")
                                         for name in os.listdir(folder)):
            self.run_pytest(suite, directory, marks, tally, env)
        self.leftovers(suite, tally)
        if tally.total() == 0 and not self.options.k and not self.options.m:
            tally.fail(f"{suite}: ran no test")
        print(f"== {suite}: {tally} in {time.monotonic() - start:.0f} s", flush=True)
        return tally

    def clean(self, tally):
        """Removes the run's directory, never into a mount; what can't be removed is a failure."""
        for mount in sbxfs_mounts():
            if mount.startswith(self.dir + "/"):
                tally.fail(f"{mount} can't be unmounted: {self.dir} is left")
                return
        subprocess.run(["chmod", "-R", "u+rwX", self.dir], check=False, stderr=subprocess.DEVNULL)
        subprocess.run(["rm", "-rf", "--one-file-system", self.dir], check=False)
        if os.path.exists(self.dir):
            tally.fail(f"can't remove {self.dir}")


def main():
    parser = argparse.ArgumentParser(prog="scripts/test")
    parser.add_argument("--build", required=True, help=argparse.SUPPRESS)
    parser.add_argument("-k", metavar="EXPR", default="")
    parser.add_argument("-m", metavar="MARKS", default="")
    parser.add_argument("suites", metavar="SUITE", nargs="*")
    options = parser.parse_args()
    unknown = [name for name in options.suites if name not in SUITES]
    if unknown:
        parser.error(f"no suite {unknown[0]}; there are {', '.join(SUITES)}")

    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) != 0:
        sys.exit("prctl(PR_SET_CHILD_SUBREAPER) failed")
    if os.environ.get("SBX_SANITIZE") == "thread":
        # Where the kernel randomises 32 bits, gcc 12's ThreadSanitizer finds no place for itself.
        libc.personality(libc.personality(0xffffffff) | ADDR_NO_RANDOMIZE)
    runner = Runner(options)
    tally = Tally()
    try:
        for suite in options.suites or SUITES:
            tally.add(runner.run_suite(suite))
        if tally.total() == 0:
            tally.fail("no test was chosen")
    except KeyboardInterrupt:
        tally.fail("interrupted")
    finally:
        runner.leftovers("all", tally)
        runner.clean(tally)
    print(tally, flush=True)
    sys.exit(1 if tally.failed else 0)


if __name__ == "__main__":
    main()
