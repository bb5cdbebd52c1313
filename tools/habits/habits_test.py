#!/usr/bin/env python3
"""Tests of what check_source.py finds.

    python3 tools/habits/habits_test.py
"""

import unittest

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


if __name__ == "__main__":
    unittest.main()
