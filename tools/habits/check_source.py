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

BEGINS_WITH_OF = "a comment that begins with \"Of\""
SENTENCE_WITH_OF = "a sentence that begins with \"Of\""

# Each rule: name, what breaks it, which files it is about.
RULES = [
    # These throw where no error_code is given: a name that is too long, a loop of links, a folder
    # that may not be searched. Callers use core/base/file.h; the files above give an error_code.
    ("a std::filesystem function outside core/base/file",
     re.compile(r"\b(fs|filesystem)::(absolute|canonical|weakly_canonical|relative|proximate|copy\w*"
                r"|create_\w+|current_path|exists|equivalent|file_size|hard_link_count|is_\w+"
                r"|last_write_time|permissions|read_symlink|remove\w*|rename|resize_file|space"
                r"|(symlink_)?status|temp_directory_path|(recursive_)?directory_iterator)\b"),
     lambda path: path not in FILE_SYSTEM and not TESTS.search(path) and not path.endswith(".md")),
    # Where memory runs out while one of them grows, or while it makes an element, it counts an
    # element that was never made, and destroys it later: no message, but a crash.
    ("a hash table of Abseil's, in place of std::unordered_map, std::map and the sets",
     re.compile(r"absl/container/(flat|node)_hash_|absl::(flat|node)_hash_"),
     lambda path: not path.startswith("tools/habits/") and not path.endswith(".md")),
    # A reader must find the subject of a sentence.
    (BEGINS_WITH_OF, re.compile(r"^\s*(//|#|\"\"\") ?Of \S"), lambda path: not path.endswith(".md")),
    (SENTENCE_WITH_OF, re.compile(r"((//|#|\"\"\").*[.:]|^[^`|]*[.:]) Of [a-z]"),
     lambda path: not path.startswith("tools/habits/")),
    # These stand for a noun that the reader then has to look for: in comments, pages and messages.
    ("\"such a one\", \"so much\" or \"the same of\": name the thing again",
     re.compile(r"\b(such a one|so much|the same of)\b", re.IGNORECASE),
     lambda path: not path.startswith("tools/habits/")),
]

# Built programs, packages, weights and data sets stay out. What these folders hold was made here, for
# pages and tests.
MAY_BE_BINARY = re.compile(r"^(docs/[\w/]+\.png$|tools/divergence/recorded/|tools/hostile/fuzz/corpus/)")


def is_binary(path):
    with open(path, "rb") as file:
        return b"\0" in file.read()


def breaches(path, lines):
    """(line number, name of the rule) of each line that breaks a rule."""
    before = ""
    for number, line in enumerate(lines, 1):
        # A comment line that goes on with the sentence of the line before may begin with "Of".
        goes_on = re.match(r"^\s*(//|#)", before) and not re.search(r"[.:;]$", before)
        for name, pattern, is_about in RULES:
            if is_about(path) and pattern.search(line) and not (name == BEGINS_WITH_OF and goes_on):
                yield number, name
        before = line


def main():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True).stdout.decode().split("\0")
    sources = [path for path in listed
               if re.search(r"(\.(cc|h|cu|cuh|py|sh|bzl|toml|md)|(^|/)(BUILD|WORKSPACE))$", path)]
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
        for number, name in breaches(path, lines):
            print(f"{path}:{number}: {name}")
            wrong += 1
    if wrong:
        print(f"check_source: {wrong} found")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
