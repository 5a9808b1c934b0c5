"""Times the workloads on each system and prints the tables; see scripts/bench."""

import argparse
import math
import multiprocessing
import os
import platform
import re
import shlex
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sbxtest import Sbxd, tree_dir
from systems import DelayProxy, Local, Rclone, Sbxfs, Sshfs
from workloads import WORKLOADS

PEERS = {"sshfs": Sshfs, "rclone": Rclone}


class Sample:
    """One timing: seconds (None: it failed, inf: it took too long), and what it moved."""

    def __init__(self, seconds=None, requests=None, moved=None):
        self.seconds, self.requests, self.moved = seconds, requests, moved


def in_child(function, limit: float):
    """Runs it in a process of its own; seconds, or the number it returned: as Sample has it."""
    def child(pipe):
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setpgid(0, 0)
        start = time.monotonic()
        try:
            result = function()
        except (AssertionError, OSError, subprocess.SubprocessError) as error:
            print(f"failed: {error}", file=sys.stderr)
            return
        pipe.send(time.monotonic() - start if result is None else result)

    ours, theirs = multiprocessing.Pipe()
    process = multiprocessing.get_context("fork").Process(target=child, args=(theirs,))
    process.start()
    theirs.close()
    try:
        return ours.recv() if ours.poll(limit) else math.inf
    except EOFError:
        return None
    finally:
        ours.close()
        if process.is_alive():
            try:
                process.join(2)
                os.killpg(process.pid, signal.SIGKILL)
            except OSError:
                pass
        process.join()


def measure(system, function, limit) -> Sample:
    requests, moved = system.requests(), system.bytes()
    seconds = in_child(function, limit)
    return Sample(seconds, None if requests is None else system.requests() - requests,
                  None if moved is None else system.bytes() - moved)


def fresh(workload, served: Path):
    """The workload's directory in the served one, made anew."""
    for name in ("bench", "bench-source"):
        shutil.rmtree(served / name, ignore_errors=True)
    workload.prepare(served / "bench")


def run_one(workload, system, options, samples):
    limit = options.peer_limit if system.name in PEERS else options.limit
    fresh(workload, system.served)
    mnt = system.mount()
    try:
        def once():
            return workload.run(mnt / "bench", system.served / "bench")
        workload.begin(mnt / "bench")
        samples.setdefault((workload.name, system.name), []).append(measure(system, once, limit))
        if workload.warm:
            samples.setdefault((workload.name + " again", system.name), []).append(
                measure(system, once, limit))
    finally:
        system.unmount()
    if hasattr(workload, "curl") and isinstance(system, Sbxfs):
        command = workload.curl(system)
        (system.served / "bench/new").unlink(missing_ok=True)
        samples.setdefault((workload.name, "curl"), []).append(Sample(in_child(
            lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL) and None,
            limit)))


def run_rtt(rtt_ms, options, work: Path):
    """All samples of one added round trip: {(workload, system): [Sample]}."""
    samples = {}
    with Sbxd() as sbxd:
        with sbxd.client() as client:
            session = client.create()["sessionId"]
        served = sbxd.session_dir(session).resolve()
        local = work / "local"
        local.mkdir(exist_ok=True)
        systems = []
        try:
            for name in options.systems:
                if name == "local":
                    systems.append(Local(local, work))
                elif name == "sbxfs":
                    systems.append(Sbxfs(served, work, sbxd, session, rtt_ms))
                elif PEERS[name].installed():
                    systems.append(PEERS[name](served, work, rtt_ms))
                else:
                    print(f"{name} is not installed", file=sys.stderr)
            for run in range(options.runs):
                for workload in options.only:
                    for system in systems:
                        print(f"{rtt_ms} ms, run {run + 1}: {workload.name} on {system.name}",
                              file=sys.stderr, flush=True)
                        run_one(workload, system, options, samples)
        finally:
            for system in systems:
                system.close()
    return samples


def median(samples):
    """The median of each field; of seconds None when any run failed."""
    if not samples:
        return Sample()

    def middle(values):
        values = list(values)
        return None if None in values else statistics.median(values)
    return Sample(*(middle(getattr(each, field) for each in samples)
                    for field in ("seconds", "requests", "moved")))


def number(value, form="{:.2f}"):
    return "–" if value is None else form.format(value)


def seconds(value, limit):
    return f"> {limit:g}" if value == math.inf else number(value)


def ratio(ours, theirs, limit):
    """Of seconds; theirs may be more than the limit."""
    if ours in (None, math.inf) or not theirs:
        return "–"
    return f"< {ours / limit:.2f}" if theirs == math.inf else f"{ours / theirs:.2f}"


def table(samples, workloads, options) -> list:
    lines = ["| work | sbxfs s | requests | KiB | sshfs s | KiB | rclone s | KiB | to best peer | "
             "curl s | to curl | local s |",
             "|---|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|--:|"]
    for workload in workloads:
        for name in [workload.name] + ([workload.name + " again"] if workload.warm else []):
            what = workload.what + (", again" if name != workload.name else "")
            row = {system: median(samples.get((name, system), []))
                   for system in ("sbxfs", "sshfs", "rclone", "local")}
            compared = workload.name if workload.moves_again else name
            row["curl"] = median(samples.get((compared, "curl"), []))
            for system in row:
                if (name, system) in samples and row[system].seconds is None:
                    print(f"{what}: {system} failed", file=sys.stderr)
            peers = [row[peer].seconds for peer in PEERS if row[peer].seconds is not None]
            ours = row["sbxfs"]
            cells = [what, seconds(ours.seconds, options.limit),
                     number(ours.requests, "{:.0f}"), kib(ours)]
            for peer in PEERS:
                cells += [seconds(row[peer].seconds, options.peer_limit), kib(row[peer])]
            cells += [ratio(ours.seconds, min(peers, default=None), options.peer_limit),
                      number(row["curl"].seconds),
                      ratio(ours.seconds, row["curl"].seconds, options.limit),
                      number(row["local"].seconds)]
            lines.append("| " + " | ".join(cells) + " |")
    return lines


def kib(sample):
    return number(None if sample.moved is None else sample.moved / 1024, "{:,.0f}")


def versions() -> list:
    found = []
    for command in (["sshfs", "--version"], ["rclone", "version"]):
        if shutil.which(command[0]):
            output = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                                    check=False).stdout.decode().split("\n")
            found.append(output[0].strip())
    return found


def main():
    parser = argparse.ArgumentParser(prog="scripts/bench")
    parser.add_argument("--rtt", default="0,10,40")
    parser.add_argument("--mbit", type=int, default=0)
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--only", default=",".join(each.name for each in WORKLOADS))
    parser.add_argument("--systems", default="sbxfs,sshfs,rclone,local")
    parser.add_argument("--limit", type=float, default=300, metavar="SECONDS")
    parser.add_argument("--peer-limit", type=float, metavar="SECONDS")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        for each in WORKLOADS:
            print(f"{each.name:8} {each.what}")
        return
    options.peer_limit = options.peer_limit or options.limit
    wanted = options.only.split(",")
    unknown = set(wanted) - {each.name for each in WORKLOADS}
    if unknown:
        parser.error(f"no workload {', '.join(sorted(unknown))}")
    options.only = [each for each in WORKLOADS if each.name in wanted]
    options.systems = options.systems.split(",")
    DelayProxy.mbit = options.mbit
    if set(options.systems) - {"sbxfs", "local", *PEERS}:
        parser.error("systems are sbxfs, sshfs, rclone and local")

    # Ended from outside it takes its mounts and servers away all the same.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    work = Path(tempfile.mkdtemp(prefix="sbx-bench."))
    sections = {}
    try:
        for rtt in options.rtt.split(","):
            before = os.getloadavg()[0]
            samples = run_rtt(int(rtt), options, work)
            heading = f"## {rtt} ms added round trip" + \
                (f", {options.mbit} Mbit/s" if options.mbit else "")
            sections[heading] = "\n".join([
                heading, "",
                f"`scripts/bench {shlex.join(sys.argv[1:])}`, {options.runs} alternating runs, "
                f"load {before:.1f} before and {os.getloadavg()[0]:.1f} after:", "",
                *table(samples, options.only, options), ""])
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print("\n".join(sections.values()))
    print(f"{os.cpu_count()} cores, {platform.system()} {platform.release()}; "
          f"{'; '.join(versions())}.")
    if options.write:
        keep(tree_dir() / "docs/BENCHMARKS.md", sections)


def keep(document: Path, sections: dict):
    """Puts each section in the place of the one with its heading, new ones before the last two."""
    parts = re.split(r"^(?=## )", document.read_text(), flags=re.MULTILINE)
    for heading, text in sections.items():
        places = [i for i, part in enumerate(parts) if part.split("\n")[0] == heading]
        if places:
            parts[places[0]] = text + "\n"
        else:
            parts.insert(max(1, len(parts) - 2), text + "\n")
    document.write_text("".join(parts))


if __name__ == "__main__":
    main()
