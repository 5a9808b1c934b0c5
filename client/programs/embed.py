#!/usr/bin/env python3
"""Makes C arrays of the shell programs: embed.py OUTPUT PRELUDE NAME.sh... [--bare NAME.sh...]

Each program gets the prelude before it, but those after --bare, and in the place of a line
"# include FILE" that file, which is beside it. Comment lines, blank lines and indentation are taken
out, because the texts travel with every request.
"""

import pathlib
import sys


INCLUDE = "# include "


def strip(path):
    path = pathlib.Path(path)
    text = ""
    for line in map(str.strip, path.read_text().splitlines()):
        if line.startswith(INCLUDE):
            text += strip(path.with_name(line.removeprefix(INCLUDE)))
        elif line and not line.startswith("#"):
            text += line + "\n"
    return text


def c_string(text):
    quoted = text.replace("\\", "\\\\").replace('"', '\\"')
    return "\n".join(f'\t"{line}\\n"' for line in quoted.splitlines())


def main():
    output, prelude, *programs = sys.argv[1:]
    head = strip(prelude)
    parts = ["/* Made from client/programs/ by embed.py. */\n"]
    for program in programs:
        if program == "--bare":
            head = ""
            continue
        name = pathlib.Path(program).stem
        text = head + strip(program)
        if not text.isascii():
            sys.exit(f"{program}: not ASCII")
        parts.append(f"static const char program_{name}[] =\n{c_string(text)};\n")
    pathlib.Path(output).write_text("\n".join(parts))


if __name__ == "__main__":
    main()
