#!/usr/bin/env python3
"""Copies a source with a fault in it: with_fault.py SOURCE OUTPUT WAS BECOMES

WAS must stand in SOURCE exactly once, so that a fault whose source has changed is noticed.
"""

import pathlib
import sys


def main():
    source, output, was, becomes = sys.argv[1:]
    text = pathlib.Path(source).read_text()
    count = text.count(was)
    if count != 1:
        sys.exit(f"{source}: the text that the fault replaces stands there {count} times, not once:\n{was}")
    pathlib.Path(output).write_text(text.replace(was, becomes))


if __name__ == "__main__":
    main()
