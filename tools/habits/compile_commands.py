#!/usr/bin/env python3
"""Writes compile_commands.json for editors and clang-tidy: how Bazel compiles each C++ source.

    python3 tools/habits/compile_commands.py

What Bazel generates is found once `./bazelw build //...` has been there.
"""

import json
import os
import subprocess
import sys

# Options that begin so are gcc's; clang does not know them.
GCC_ALONE = ("-fno-canonical-system-headers", "--param=")


def bazelw(*arguments):
    return subprocess.run(["./bazelw", *arguments], check=True, stdout=subprocess.PIPE,
                          stderr=subprocess.DEVNULL).stdout.decode()


def commands(workspace, output_base):
    """[{directory, file, arguments}] of the sources below `workspace`, each once.

    Headers of other repositories, such as MPI's, lie in external/ of `output_base`.
    """
    actions = json.loads(bazelw("aquery", "--output=jsonproto", "--include_artifacts=false",
                                'mnemonic("CppCompile", //...)')).get("actions", [])
    found = {}
    for action in actions:
        arguments = [word for word in action["arguments"] if not word.startswith(GCC_ALONE)]
        source = arguments[arguments.index("-c") + 1] if "-c" in arguments else ""
        if source in found or not os.path.exists(os.path.join(workspace, source)):
            continue  # compiled once more by another name, or generated
        path = os.path.join(workspace, source)
        absolute = {source: path}
        for word in arguments:
            if word.startswith("external/"):
                absolute[word] = os.path.join(output_base, word)
        found[source] = {"directory": workspace, "file": path,
                         "arguments": [absolute.get(word, word) for word in arguments]
                         + ["-Wno-unknown-warning-option", "-Wno-ignored-optimization-argument"]}
    return [found[source] for source in sorted(found)]


def main():
    workspace = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    os.chdir(workspace)
    written = commands(workspace, bazelw("info", "output_base").strip())
    with open("compile_commands.json.tmp", "w", encoding="utf-8") as file:
        json.dump(written, file, indent=1)
    os.replace("compile_commands.json.tmp", "compile_commands.json")
    print(f"compile_commands: {len(written)} sources")
    return 0 if written else 1


if __name__ == "__main__":
    sys.exit(main())
