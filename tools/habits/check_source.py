#!/usr/bin/env python3
"""Habits of this repository's sources that no compiler holds us to, and files that stay out of it.
Prints what breaks one, as file:line: what or file: what, and ends with 1 then.

    python3 tools/habits/check_source.py
"""

import os
import re
import subprocess
import sys

# Files whose purpose is to call what the rule is about.
FILE_SYSTEM = {
    "core/base/file.cc",
    "core/base/user_path.cc",
    "foresight/prediction.cc",
    "tools/experiment/paths.cc",
}
TESTS = re.compile(r"(_test\.(cc|cu)|/testing(/|\.h)|/failing_\w+\.cc)")

# Each rule: name, what breaks it, which files it is about.
RULES = [
    # These throw where no error_code is given: a name that is too long, a loop of links, a folder
    # that may not be searched. Callers use core/base/file.h; the files above give an error_code.
    ("a std::filesystem function outside core/base/file",
     re.compile(r"\b(fs|filesystem)::(absolute|canonical|weakly_canonical|relative|proximate|copy\w*"
                r"|create_\w+|current_path|exists|equivalent|file_size|hard_link_count|is_\w+"
                r"|last_write_time|permissions|read_symlink|remove\w*|rename|resize_file|space"
                r"|(symlink_)?status|temp_directory_path|(recursive_)?directory_iterator)\b"),
     lambda path: path not in FILE_SYSTEM and not TESTS.search(path)),
    # Where memory runs out while one of them grows, or while it makes an element, it counts an
    # element that was never made, and destroys it later: no message, but a crash.
    ("a hash table of Abseil's, in place of std::unordered_map, std::map and the sets",
     re.compile(r"absl/container/(flat|node)_hash_|absl::(flat|node)_hash_"),
     lambda path: path != "tools/habits/check_source.py"),
    # A reader must find the subject of a sentence.
    ("a comment that begins with \"Of\"",
     re.compile(r"^\s*(//|#) Of [a-z0-9]"),
     lambda path: True),
]

# Built programs, packages, weights and data sets stay out. What these folders hold was made here, for
# pages and tests.
MAY_BE_BINARY = re.compile(r"^(docs/[\w/]+\.png$|tools/divergence/recorded/|tools/hostile/fuzz/corpus/)")


def is_binary(path):
    with open(path, "rb") as file:
        return b"\0" in file.read()


def main():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True).stdout.decode().split("\0")
    sources = [path for path in listed
               if re.search(r"(\.(cc|h|cu|cuh|py|sh|bzl)|(^|/)(BUILD|WORKSPACE))$", path)]
    wrong = 0
    for path in listed:
        if os.path.isfile(path) and not MAY_BE_BINARY.search(path) and is_binary(path):
            print(f"{path}: a binary file, which the repository holds none of but pictures and inputs of tests")
            wrong += 1
    for path in sources:
        try:
            with open(path, encoding="utf-8") as file:
                lines = file.read().splitlines()
        except FileNotFoundError:  # deleted, and not yet committed
            continue
        before = ""
        for number, line in enumerate(lines, 1):
            for name, pattern, is_about in RULES:
                is_comment_rule = name.startswith("a comment")
                # A comment line that goes on with the sentence of the line before may begin so.
                goes_on = re.match(r"^\s*(//|#)", before) and not re.search(r"[.:;]$", before)
                if is_about(path) and pattern.search(line) and not (is_comment_rule and goes_on):
                    print(f"{path}:{number}: {name}")
                    wrong += 1
            before = line
    if wrong:
        print(f"check_source: {wrong} found")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
