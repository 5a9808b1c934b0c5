#!/usr/bin/env python3
"""Makes C arrays of the shell programs: embed.py OUTPUT PRELUDE NAME.sh... [--bare NAME.sh...]

Each program gets the prelude before it, but those after --bare, and in the place of a line
"# include FILE" that file, which is beside it. Comment lines, blank lines, indentation and
functions that nothing calls are taken out, because the texts travel with every request.

A line "# on demand: NAME..." names functions ("do_*": all that begin so) that only some requests
call. What only they need goes into an array of parts beside the text, from which program.c puts
together what a request takes.

A function begins with "NAME() {" and ends with "}", both at the beginning of a line. It is taken to
call whatever function's name stands in it as a word.
"""

import fnmatch
import pathlib
import re
import sys

INCLUDE = "# include "
ON_DEMAND = "# on demand: "
FUNCTION = re.compile(r"(\w+)\(\) \{$")
BITS = 64


class Piece:
    """A function, or lines between functions (name "")."""

    def __init__(self, name=""):
        self.name = name
        self.lines = []
        self.words = set()

    def add(self, line):
        line = line.strip()
        if line and not line.startswith("#"):
            self.lines.append(line)
            self.words.update(re.findall(r"\w+", line))

    def text(self):
        return "".join(line + "\n" for line in self.lines)


def read(path):
    """The pieces of a program in their order, and what it has on demand."""
    path = pathlib.Path(path)
    pieces, demand = [Piece()], []
    for line in path.read_text().splitlines():
        begins = FUNCTION.match(line)
        if line.startswith(INCLUDE):
            others, names = read(path.with_name(line.removeprefix(INCLUDE)))
            pieces += others + [Piece()]
            demand += names
        elif line.startswith(ON_DEMAND):
            demand += line.removeprefix(ON_DEMAND).split()
        elif begins:
            pieces.append(Piece(begins[1]))
            pieces[-1].add(line)
        else:
            pieces[-1].add(line)
            if line == "}" and pieces[-1].name:
                pieces.append(Piece())
    return pieces, demand


def strip(path):
    """All of a program's own text."""
    return "".join(piece.text() for piece in read(path)[0])


def closure(functions, names):
    """The functions that are called by those names, or by what they call."""
    found, queue = set(), list(names)
    while queue:
        name = queue.pop()
        if name not in found:
            found.add(name)
            queue += functions[name].words & functions.keys()
    return found


def c_string(text):
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return "\n".join(f'\t"{line}\\n"' for line in quoted.splitlines())


def parts(name, pieces, functions, always, roots):
    """The C array of what is always there, name "", and of what is not."""
    optional = [piece.name for piece in pieces if piece.name and piece.name not in always]
    if len(optional) > BITS:
        sys.exit(f"{name}: more than {BITS} functions on demand")
    rows, core = [], ""

    def row(name, text):
        needs = closure(functions, [name]) - always if name else set()
        bits = sum(1 << optional.index(need) for need in needs)
        bit = 1 << optional.index(name) if name else 0
        shown = name if name in roots else ""
        rows.append(f'\t{{ "{shown}", {bit:#x}u, {bits:#x}u,\n{c_string(text)} }},')

    for piece in pieces:
        if piece.name not in optional:
            core += piece.text()
            continue
        if core:
            row("", core)
            core = ""
        row(piece.name, piece.text())
    if core:
        row("", core)
    return f"static const struct program_part program_{name}_parts[] = {{\n" + "\n".join(
        rows) + "\n};\n"


def embed(path, head):
    pieces, demand = read(path)
    pieces = head + pieces
    name = pathlib.Path(path).stem
    functions = {piece.name: piece for piece in pieces if piece.name}
    roots = {name for name in functions if any(fnmatch.fnmatch(name, form) for form in demand)}
    called = set().union(*(piece.words for piece in pieces if not piece.name))
    always = closure(functions, (called & functions.keys()) - roots)
    used = always | closure(functions, roots)
    pieces = [piece for piece in pieces if not piece.name or piece.name in used]
    text = "".join(piece.text() for piece in pieces)
    if not text.isascii():
        sys.exit(f"{path}: not ASCII")
    made = f"static const char program_{name}[] =\n{c_string(text)};\n"
    return made + ("\n" + parts(name, pieces, functions, always, roots) if roots else "")


def main():
    output, prelude, *programs = sys.argv[1:]
    head = read(prelude)[0]
    made = ["/* Made from client/programs/ by embed.py. */\n"]
    for program in programs:
        if program == "--bare":
            head = []
        else:
            made.append(embed(program, head))
    pathlib.Path(output).write_text("\n".join(made))


if __name__ == "__main__":
    main()
