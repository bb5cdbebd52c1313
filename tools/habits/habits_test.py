#!/usr/bin/env python3
"""Tests of what check_source.py, check_docs.py and tidy.py find.

    python3 tools/habits/habits_test.py
"""

import contextlib
import io
import os
import subprocess
import tempfile
import unittest

import check_docs
import check_source
import tidy


def breaches(path, *lines):
    return [number for number, _ in check_source.breaches(path, lines)]


class CheckSourceTest(unittest.TestCase):
    def test_no_comment_begins_with_of(self):
        self.assertEqual(breaches("a.h", "// Of the ranks, those with a shard.", "int a;"), [1])
        self.assertEqual(breaches("a.h", "int a;", "  // Of `tensors`, the first."), [2])
        self.assertEqual(breaches("a.toml", "# Of WORKLOAD, the name."), [1])
        self.assertEqual(breaches("a.py", '    """Of a row, the checksum."""'), [1])

    def test_no_sentence_begins_with_of(self):
        self.assertEqual(breaches("a.h", "// It is one. Of two, the first."), [1])
        self.assertEqual(breaches("a.md", "It is one. Of two, the first.", "The house Of cards."), [1])
        self.assertEqual(breaches("a.cc", 'Say("one. Of two");'), [1])

    def test_a_sentence_may_go_on_with_of(self):
        self.assertEqual(breaches("a.h", "// The product", "// Of the Ring."), [])

    def test_things_are_named_again(self):
        self.assertEqual(breaches("a.cc", "// The same of a rank.", "f();  // or such a one"), [1, 2])
        self.assertEqual(breaches("a.md", "It takes so much.", "All of it."), [1])
        self.assertEqual(breaches("a.cc", 'Say("so much");', "int so_much;"), [1])


class CheckDocsTest(unittest.TestCase):
    def complaints(self, code):
        checker = check_docs.Checker()
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            checker.check_inline("docs/page.md", 1, code)
        return printed.getvalue()

    def test_what_is_there_passes(self):
        for code in ("core/kernels/kernels.h", "core/kernels/", "kernels.h", "strategies/<name>/<name>.h",
                     "tools/bench/torch_*.py", "//tools/bench:training --rounds 2", "tools/plan:calibrate",
                     "//core/comm/...", "./bazelw test //core/config/...", "losses.csv", "runs/x/single",
                     './bazelw run //tools/launch -- --launcher "srun --mpi=pmix -n {ranks}" --ranks 4'):
            self.assertEqual(self.complaints(code), "", code)

    def test_what_is_not_there_is_found(self):
        for code in ("core/kernels/no_such.h", "no_such_file.h", "strategies/no_such", "tools/no_such_*.py",
                     "//tools/bench:no_such", "tools/plan:no_such", "//no_such/...",
                     "./bazelw test //no_such/...", "./bazelw run //tools/bench:training -- --no_such",
                     './bazelw run //tools/launch -- --launcher "srun -n 4" --no_such'):
            self.assertNotEqual(self.complaints(code), "", code)


class TidyTest(unittest.TestCase):
    def judge(self, script, sources, seconds):
        """What tidy.py makes of a clang-tidy that is this shell script, and what it prints."""
        with tempfile.TemporaryDirectory() as folder:
            program = os.path.join(folder, "clang-tidy")
            with open(program, "w", encoding="utf-8") as file:
                file.write("#!/bin/sh\n" + script)
            os.chmod(program, 0o755)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                return tidy.judge(program, sources, seconds), printed.getvalue()

    def test_what_changed_last_is_judged_first(self):
        def git(*arguments):
            subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a@b", *arguments], check=True,
                           stdout=subprocess.DEVNULL)

        def write(path):
            with open(path, "a", encoding="utf-8") as file:
                file.write(f'#include "{path[:-3]}.h"\n')

        here = os.getcwd()
        with tempfile.TemporaryDirectory() as folder:
            os.chdir(folder)
            try:
                git("init", "--quiet")
                for paths in (["first.cc"], ["b.cc", "gone.cc"], ["a.cc", "b.cc"], ["c.h"]):
                    for path in paths:
                        write(path)
                    git("add", "--all")
                    git("commit", "--quiet", "--message=x")
                os.remove("gone.cc")
                write("new.cc")
                changed = tidy.changed_since("HEAD~3")
                self.assertEqual(changed, ["new.cc", "c.h", "a.cc", "b.cc"])
                self.assertEqual(tidy.sources_for(changed, {"a.cc", "b.cc", "new.cc"}),
                                 ["new.cc", "a.cc", "b.cc"])
                write("c.cc")  # includes c.h
                os.rename("c.cc", "user.cc")
                self.assertEqual(tidy.sources_for(["c.h", "a.cc"], {"a.cc", "user.cc"}),
                                 ["user.cc", "a.cc"])
            finally:
                os.chdir(here)

    def test_warnings_are_counted_and_shown(self):
        script = 'for source; do :; done; test "$source" = good.cc || { echo "a warning"; exit 1; }'
        found, printed = self.judge(script, ["bad.cc", "good.cc"], 600)
        self.assertEqual(found, (1, []))
        self.assertEqual(printed.count("a warning"), 1)

    def test_a_program_that_cannot_run_passes_nothing(self):
        found, _ = self.judge('echo "no such option" >&2; exit 1', ["good.cc"], 600)
        self.assertEqual(found, (1, []))

    def test_what_there_is_no_time_for_is_named(self):
        found, _ = self.judge("exit 0", ["b.cc", "a.cc"], -1)
        self.assertEqual(found, (0, ["a.cc", "b.cc"]))


if __name__ == "__main__":
    unittest.main()
