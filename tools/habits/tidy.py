#!/usr/bin/env python3
"""clang-tidy 14 on what has changed: .clang-tidy's checks, each warning an error.

    python3 tools/habits/tidy.py                # since the commit before the last, newest first
    python3 tools/habits/tidy.py --since REV
    python3 tools/habits/tidy.py FILE...        # these

A changed header is read through the source of the same name, or else the first one that includes it.
Sources must have been built: what Bazel generates is read too.
"""

import argparse
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys
import time

import compile_commands

DESCRIPTION = __doc__.split("\n", maxsplit=1)[0]


def changed_since(revision):
    """Paths that were changed since `revision`: those not committed, then by commit, newest first."""
    def listed(*arguments):
        return subprocess.run(["git", *arguments], check=True,
                              stdout=subprocess.PIPE).stdout.decode().split("\0")
    newest_first = (listed("diff", "-z", "--name-only", "HEAD") +
                    listed("ls-files", "-z", "--others", "--exclude-standard") +
                    listed("log", "-z", "--name-only", "--format=", f"{revision}..HEAD"))
    return [path for path in dict.fromkeys(newest_first) if os.path.exists(path)]


def sources_for(paths, compiled):
    """The compiled sources that have `paths` in them, each once, in the order of `paths`."""
    chosen = {}  # a set that keeps its order
    for path in paths:
        same_name = re.sub(r"\.h$", ".cc", path)
        if same_name in compiled:
            chosen[same_name] = True
        elif path.endswith(".h"):
            line = re.compile(rf'^#include "{re.escape(path)}"', re.M)
            for source in sorted(compiled):
                with open(source, encoding="utf-8") as file:
                    if line.search(file.read()):
                        chosen[source] = True
                        break
    return list(chosen)


def check(tidy, source, end):
    """What clang-tidy says of `source`; empty: nothing. None: `end` had passed."""
    if time.monotonic() > end:
        return None
    done = subprocess.run([tidy, "-p", ".", "--quiet", "--warnings-as-errors=*", source],
                          check=False, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    if done.returncode == 0:
        return ""
    return done.stdout.decode() or done.stderr.decode()


def judge(tidy, sources, seconds):
    """Prints what clang-tidy says of `sources`. How many have warnings, and which ones there was no
    time to begin within `seconds`."""
    end = time.monotonic() + seconds
    wrong, left_out = 0, []
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        done = {pool.submit(check, tidy, source, end): source for source in sources}
        for i, future in enumerate(concurrent.futures.as_completed(done)):
            said = future.result()
            if said is None:
                left_out.append(done[future])
                continue
            print(f"tidy: {i + 1} of {len(sources)}, {done[future]}", flush=True)
            if said:
                wrong += 1
                print(said, flush=True)
    return wrong, sorted(left_out)


def main():
    parser = argparse.ArgumentParser(description=DESCRIPTION)
    parser.add_argument("--since", default="HEAD~1", metavar="REV")
    parser.add_argument("--seconds", type=float, default=float("inf"),
                        help="begins no further source after that time, and names those that are left")
    parser.add_argument("files", nargs="*")
    flags = parser.parse_args()
    os.chdir(os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))
    tidy = shutil.which("clang-tidy-14") or shutil.which("clang-tidy")
    if tidy is None:
        print("tidy: there is no clang-tidy; ./bazelw run //tools:format installs it", file=sys.stderr)
        return 1
    paths = flags.files or changed_since(flags.since)
    if not any(re.search(r"\.(h|cc)$", path) for path in paths):
        print("tidy: no source has changed")
        return 0
    if compile_commands.main() != 0:
        return 1
    with open("compile_commands.json", encoding="utf-8") as file:
        compiled = {os.path.relpath(command["file"]) for command in json.load(file)}
    sources = sources_for(paths, compiled)
    wrong, left_out = judge(tidy, sources, flags.seconds)
    if left_out:
        print(f"tidy: no time for {len(left_out)} of {len(sources)} sources: {' '.join(left_out)}")
    print(f"tidy: {wrong} of {len(sources) - len(left_out)} sources have warnings")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
