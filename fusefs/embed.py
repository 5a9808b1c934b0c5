#!/usr/bin/python3
"""Makes a C source of a text file: embed.py FILE SYMBOL HEADER OUTPUT."""

import sys


def main():
    source, symbol, header, output = sys.argv[1:]
    with open(source, "rb") as text:
        data = text.read()
    rows = [", ".join(f"0x{byte:02x}" for byte in data[at:at + 12])
            for at in range(0, len(data), 12)]
    with open(output, "w") as out:
        out.write(f'#include "{header}"\n\nconst char {symbol}_text[] = {{\n\t')
        out.write(",\n\t".join(rows))
        out.write(f"\n}};\nconst size_t {symbol}_len = sizeof({symbol}_text);\n")


main()
