#!/usr/bin/env python3
"""Tests of what check_source.py and check_docs.py find.

    python3 tools/habits/habits_test.py
"""

import contextlib
import io
import unittest

import check_docs
import check_source


def breaches(path, *lines):
    return [number for number, _ in check_source.breaches(path, lines)]


class CheckSourceTest(unittest.TestCase):
    def test_no_comment_begins_with_of(self):
        self.assertEqual(breaches("a.h", "// Of the ranks, those with a shard.", "int a;"), [1])
        self.assertEqual(breaches("a.h", "int a;", "  // Of `tensors`, the first."), [2])
        self.assertEqual(breaches("a.toml", "# Of WORKLOAD, the name."), [1])

    def test_a_sentence_may_go_on_with_of(self):
        self.assertEqual(breaches("a.h", "// The product", "// Of the Ring."), [])

    def test_things_are_named_again(self):
        self.assertEqual(breaches("a.cc", "// The same of a rank.", "f();  // or such a one"), [1, 2])
        self.assertEqual(breaches("a.md", "It takes so much.", "All of it."), [1])
        self.assertEqual(breaches("a.cc", 'Say("so much");'), [])


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
                     "//core/comm/...", "./bazelw test //core/config/...", "losses.csv", "runs/x/single"):
            self.assertEqual(self.complaints(code), "", code)

    def test_what_is_not_there_is_found(self):
        for code in ("core/kernels/no_such.h", "no_such_file.h", "strategies/no_such", "tools/no_such_*.py",
                     "//tools/bench:no_such", "tools/plan:no_such", "//no_such/...",
                     "./bazelw test //no_such/...", "./bazelw run //tools/bench:training -- --no_such"):
            self.assertNotEqual(self.complaints(code), "", code)


if __name__ == "__main__":
    unittest.main()
