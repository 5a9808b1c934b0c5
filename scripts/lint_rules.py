#!/usr/bin/python3
"""The house rules that can be seen in the text of the tree; called by scripts/lint.

Each finding is one line, `file:line: rule`. The exit status is 1 when there is one.
"""

import ast
import os
import re
import subprocess
import sys

MAX_LINES = 800
MAX_COLUMNS = 100

# Files that may see <fuse_lowlevel.h>: the frame of operations and its interrupts, the loop and its
# negotiation, notifications, main.
FUSE_LOWLEVEL = re.compile(r"fusefs/(main|fs|ops[a-z_]*|notify|negotiate|reply|interrupt)\.[ch]$")
# Where ENOSYS may stand: the table that reads it, the clamp that keeps it from the kernel.
ENOSYS = re.compile(r"(client/errmap|fusefs/reply)\.c$")
# The only file that includes it.
ONLY = {"curl/": "client/http.c", "cjson/": "client/json.c", "cJSON": "client/json.c"}

BANNED = re.compile(
    r"(?<![\w.>])(strcpy|sprintf|strcat|gets|strtok|atoi|system|signal|usleep)\s*\(")
BANNED_GLIB = re.compile(r"\b(g_error|g_assert\w*|g_warning|g_critical|g_print\w*|g_message)\s*\(")
BANNED_LIBRARY = re.compile(
    r"(?<![\w.>])(exit|_exit|abort|printf|vprintf|puts|putchar|perror)\s*\(")
ROUTE = re.compile(r'"[^"]*/(sessions|readdir|reattach|hydrate|persist|exec)[/?"]')
MACHINE_PATH = re.compile(r"(?<![\w.$}-])/(wor[k]|Users|home/(?!agent\b|user\b|me\b)\w+)/")

found = 0


def report(path, line, rule):
    global found
    found += 1
    print(f"{path}:{line}: {rule}")


def tree_files():
    listing = subprocess.run(["git", "ls-files", "-z", "--cached", "--others",
                              "--exclude-standard"], stdout=subprocess.PIPE, check=True).stdout
    return sorted({os.fsdecode(name) for name in listing.split(b"\0") if name})


def without_comments(text):
    """C text with comments blanked out, line numbers kept."""
    pattern = r'"(?:\\.|[^"\\\n])*"|\'(?:\\.|[^\'\\\n])*\'|/\*.*?\*/|//[^\n]*'

    def blank(match):
        piece = match.group(0)
        return re.sub(r"[^\n]", " ", piece) if piece.startswith("/") else piece
    return re.sub(pattern, blank, text, flags=re.DOTALL)


def without_strings(line):
    return re.sub(r'"(?:\\.|[^"\\])*"', '""', line)


def check_text(path, lines):
    is_code = path.endswith((".c", ".h", ".sh", ".py", "meson.build")) or \
        path.startswith(("scripts/", ".ci/"))
    for number, line in enumerate(lines, 1):
        if line != line.rstrip():
            report(path, number, "blanks at the end of the line")
        if is_code and len(line.expandtabs(8)) > MAX_COLUMNS:
            report(path, number, f"longer than {MAX_COLUMNS} columns")
        if MACHINE_PATH.search(line):
            report(path, number, "an absolute path of one machine")
    if is_code and len(lines) > MAX_LINES:
        report(path, MAX_LINES + 1, f"more than {MAX_LINES} lines")


def check_include(path, number, name):
    layer = path.split("/")[0]
    for part, owner in ONLY.items():
        if part in name and path != owner:
            report(path, number, f"only {owner} includes <{name}>")
    if layer == "client" and (name.startswith("fuse") or "fuse3" in name):
        report(path, number, f"client/ knows nothing of FUSE: {name}")
    if layer in ("client", "fusefs") and name.startswith("tests/"):
        report(path, number, f"{layer}/ includes a test's header: {name}")
    if layer == "fusefs" and name in ("client/http.h", "client/json.h", "client/wire.h"):
        report(path, number, f"fusefs/ knows no HTTP: {name}")
    if name == "fuse_lowlevel.h" and not FUSE_LOWLEVEL.match(path):
        report(path, number, "only ops*, reply, interrupt, notify, negotiate, fs and main include "
               "<fuse_lowlevel.h>")
    if name in ("fuse.h", "fuse3/fuse.h"):
        report(path, number, "the high-level API is not used")


def check_c(path, text):
    code = without_comments(text)
    lines = code.split("\n")
    layer = path.split("/")[0]
    includes = []
    for number, line in enumerate(lines, 1):
        match = re.match(r'\s*#\s*include\s*[<"]([^>"]+)[>"]', line)
        if match:
            includes.append((number, match.group(1)))
            check_include(path, number, match.group(1))
            continue
        if layer == "fusefs" and ROUTE.search(line):
            report(path, number, "fusefs/ names no route")
        plain = without_strings(line)
        rules = [(BANNED, "banned: ")]
        if layer in ("client", "fusefs"):
            rules.append((BANNED_GLIB, "banned: "))
        if layer == "client":
            rules.append((BANNED_LIBRARY, "a library never exits, aborts or prints: "))
        for pattern, rule in rules:
            for match in pattern.finditer(plain):
                report(path, number, f"{rule}{match.group(1)}()")
        if layer in ("client", "fusefs") and re.search(r"\bENOSYS\b", plain) and \
           not ENOSYS.match(path):
            report(path, number, "ENOSYS stands in the errno table and in reply's clamp only")
        if re.search(r"\btypedef\s+(struct|union|enum)\b", plain):
            report(path, number, "structs, unions and enums are not typedef'd")
    if path.endswith(".c"):
        own = path[:-2] + ".h"
        if os.path.exists(own) and (not includes or includes[0][1] != own):
            report(path, includes[0][0] if includes else 1, f'the first include is "{own}"')
    else:
        guard = re.search(r"^\s*#\s*ifndef\s+(\w+)\s*\n\s*#\s*define\s+\1\b", code, re.MULTILINE)
        name = re.sub(r"\W", "_", os.path.basename(path)).upper()
        if not guard or not re.fullmatch(rf"SBX_(\w+_)?{name}", guard.group(1)):
            report(path, 1, f"the include guard is SBX_<DIR>_{name}")


def main():
    for path in tree_files():
        if not os.path.isfile(path) or os.path.islink(path):
            continue
        with open(path, "rb") as file:
            data = file.read()
        if b"\0" in data:
            continue
        text = data.decode("utf-8", "replace")
        lines = text.split("\n")
        if lines and not lines[-1]:
            lines.pop()
        else:
            report(path, len(lines), "no newline at the end")
        check_text(path, lines)
        if path.endswith((".c", ".h")):
            check_c(path, text)
        elif path.endswith(".py"):
            try:
                ast.parse(text, path)
            except SyntaxError as error:
                report(path, error.lineno or 1, f"Python: {error.msg}")
    sys.exit(1 if found else 0)


if __name__ == "__main__":
    main()
