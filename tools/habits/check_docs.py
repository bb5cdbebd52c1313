#!/usr/bin/env python3
"""Holds the pages of the repository to what they name. Prints each dead link, target, flag and key
as file:line: what, and ends with 1 then.

    python3 tools/habits/check_docs.py

Checked are links between pages and their headings; and of `./bazelw build, test or run`, in code
blocks and within sentences, that the target is there, that flags behind ` -- ` are some program's,
and that keys behind --set are in docs/configuration.md. Targets that a macro makes are found by the
macro's own list. Code within a sentence that names a file, a folder or a target of this repository
is held to there being one.
"""

import glob
import os
import re
import subprocess
import sys

FLAG = re.compile(r"ABSL_FLAG\(\s*(?:[\w:<>, ]|\n)*?,\s*(\w+)\s*,")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)|!\[[^\]]*\]\(([^)\s]+)\)")
INLINE = re.compile(r"(?<!`)`([^`]+)`(?!`)")
# A file whose name ends so is a source: were it not here, it would be nowhere.
SOURCE = re.compile(r"^[\w./*-]*\w\.(cc|h|cu|cuh|py|sh|bzl)$")
READERS_OWN = {"train.py"}  # sources that pages speak of and a reader has
LABEL = re.compile(r"//[\w./-]*(?::[\w./-]+)?")


def anchor(heading):
    """The name that a heading is linked by, as GitHub makes it."""
    text = re.sub(r"[`*]", "", heading.strip().lower())
    text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)
    return re.sub(r"[^\w\- ]", "", text).replace(" ", "-")


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def code_lines(text):
    """(number, line) of the lines of indented and of fenced code, joined where they go on."""
    lines = text.split("\n")
    fenced, fails, joined, begin = False, False, "", 0
    for number, line in enumerate(lines, 1):
        if line.lstrip().startswith("```"):
            fenced = not fenced
            fails = line.rstrip().endswith(" fails")  # a command that is meant to be refused
            continue
        if fenced and fails:
            continue
        if not fenced and not line.startswith("    "):
            continue
        begin = begin or number
        joined += line.strip()
        if joined.endswith("\\"):
            joined = joined[:-1] + " "
            continue
        yield begin, joined
        joined, begin = "", 0


def experiment_words():
    """Words in what makes the targets of experiments: a name that is none of them is no target."""
    text = "".join(read(path) for path in glob.glob("experiments/*.bzl") + ["strategies/presets.bzl"])
    return set(re.findall(r"\w+", text))


class Checker:
    def __init__(self):
        self.wrong = 0
        self.flags = {"help"}
        tracked = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard"],
                                 check=True, capture_output=True, text=True)
        for path in tracked.stdout.split("\n"):
            if path.endswith((".cc", ".py", ".sh")) and os.path.exists(path):
                text = read(path)
                self.flags |= set(FLAG.findall(text))
                self.flags |= set(re.findall(r'add_argument\("--(\w+)"', text))
                if path.endswith(".sh"):
                    self.flags |= set(re.findall(r"--(\w+)", text))
        self.files = [path for path in tracked.stdout.split("\n") if os.path.exists(path)]
        self.folders = {path.split("/")[0] for path in self.files if "/" in path}
        self.keys = set()
        table = ""
        for line in read("docs/configuration.md").split("\n"):
            if match := re.match(r"#+ .*?\[?`?\[?([\w.]+)\]?`?", line):
                table = match.group(1)
            for key in re.findall(r"`([\w.]+)`", line):
                self.keys |= {key, f"{table}.{key}"}
        self.experiment_words = experiment_words()

    def complain(self, path, number, what):
        print(f"{path}:{number}: {what}")
        self.wrong += 1

    def check_links(self, path, text):
        folder = os.path.dirname(path)
        in_code = {n for n, _ in code_lines(text)}
        for number, line in enumerate(text.split("\n"), 1):
            if number in in_code:
                continue
            for match in LINK.finditer(line):
                target = match.group(1) or match.group(2)
                if re.match(r"[a-z]+://|mailto:", target):
                    continue
                file, _, fragment = target.partition("#")
                there = os.path.normpath(os.path.join(folder, file)) if file else path
                if not os.path.exists(there):
                    self.complain(path, number, f"dead link: {target}")
                elif fragment and there.endswith(".md"):
                    headings = re.findall(r"^#+ (.*)$", read(there), re.MULTILINE)
                    if fragment not in [anchor(heading) for heading in headings]:
                        self.complain(path, number, f"{there} has no heading #{fragment}")

    def is_target(self, label):
        package, _, name = label[2:].partition(":")
        if package.endswith("..."):
            return os.path.isdir(package[:-3].rstrip("/") or ".")
        build = os.path.join(package, "BUILD")
        if not os.path.exists(build):
            return False
        name = name or os.path.basename(package)
        text = read(build)
        if name == "all" or f'"{name}"' in text or f"'{name}'" in text:
            return True
        if f'"{name.removesuffix("_test")}": {{' in text:  # a table of tests
            return True
        if package.startswith("experiments"):
            words = self.experiment_words | set(re.findall(r"\w+", text))
            return name in words or re.sub(r"(_cuda)?_curve_test$", "", name) in words
        return package.startswith("strategies") and name in ("main", os.path.basename(package))

    def is_path(self, folder, word):
        """Whether `word` names a file or folder from the root, from `folder`, or as the end of a path.
        A word in <brackets> and * stand for any name."""
        word = re.sub(r"<[^>]*>", "*", word)
        if glob.glob(word) or glob.glob(os.path.join(folder, word)):
            return True
        if word in READERS_OWN:
            return True
        return bool(SOURCE.match(word)) and "*" not in word and any(
            ("/" + file).endswith("/" + word) for file in self.files)

    def check_inline(self, path, number, code):
        """Code within a sentence: a command, a label, a path; anything else is left alone."""
        if code.startswith(("./bazelw ", "bazel-bin/", "DIR/")):
            self.check_command(path, number, code)
            return
        word = code.split()[0] if code.split() else ""
        if word.startswith("//"):
            is_package = os.path.exists(os.path.join(word[2:], "BUILD"))
            if LABEL.fullmatch(word) and not is_package and not self.is_target(word):
                self.complain(path, number, f"no target {word}")
        elif word.split("/")[0] in self.folders and ":" in word:
            if LABEL.fullmatch("//" + word) and not self.is_target("//" + word):
                self.complain(path, number, f"no target //{word}")
        elif (word.split("/")[0] in self.folders and "/" in word) or SOURCE.match(word):
            if not self.is_path(os.path.dirname(path), word.removesuffix("/...")):
                self.complain(path, number, f"no file or folder {word}")

    def check_command(self, path, number, command):
        command = command.split(" # ")[0]
        match = re.search(r"bazelw (build|test|run) (.*)", command)
        if match:
            bazel, _, program = match.group(2).partition(" -- ")
            for label in LABEL.findall(re.sub(r"\{[^}]*\}", "", bazel)):
                if not re.search(r"[{<]", match.group(2)) and not self.is_target(label):
                    self.complain(path, number, f"no target {label}")
            own = program
        elif re.match(r"(bazel-bin|DIR)/", command):
            own = command
        else:
            return
        own = re.sub(r'"(?:mpirun|srun) [^"]*"', "", own)  # the flags of launchers are not ours
        for flag in re.findall(r"(?:^|\s)--([a-z]\w*)", own):
            if flag not in self.flags:
                self.complain(path, number, f"no program has a flag --{flag}")
        for key in re.findall(r"--set '?\"?([a-z_]+\.[a-z_.0-9]+)=", own):
            if key not in self.keys and key.split(".", 1)[1] not in self.keys:
                self.complain(path, number, f"docs/configuration.md has no key {key}")

    def check(self, path):
        text = read(path)
        self.check_links(path, text)
        for number, line in code_lines(text):
            self.check_command(path, number, line)
        fenced = False
        for number, line in enumerate(text.split("\n"), 1):
            fenced ^= line.lstrip().startswith("```")
            if fenced or line.startswith("    "):
                continue
            for code in INLINE.findall(line):
                self.check_inline(path, number, code)


def main():
    listed = subprocess.run(["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
                            check=True, capture_output=True, text=True).stdout.split("\n")
    checker = Checker()
    pages = [path for path in listed if path and os.path.exists(path)]
    for path in pages:
        checker.check(path)
    print(f"check_docs: {len(pages)} pages, {checker.wrong} dead names")
    return 1 if checker.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
