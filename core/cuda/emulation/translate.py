#!/usr/bin/env python3
"""Translates a .cu file to C++ for emulated GPUs: translate.py ROOT SOURCE OUTPUT

C++ has no word for five things of CUDA's, which are rewritten as calls of the emulation:

  kernel<<<grid, block, shared, stream>>>(arguments)   Launch(kernel, ..., arguments)
  __shared__ T x[n];                                    a reference to memory of the block
  extern __shared__ T x[];                              a pointer to it
  const __grid_constant__ T x                           const T& x
  asm("ptx.of.some.kind operands" : ... : ...);         ptx::ptx_of_some_kind(operands)

and a kernel tells its name when it begins. Headers of kernels (.cuh) are translated in place. Lines stay where they
were, so that messages of the compiler name lines of the source.
"""

import pathlib
import re
import sys

EMULATION = "::lockstep::emulation::"


def closing(text, begin):
    """The position of the bracket that closes the one at `begin`; quoted text counts as well."""
    pairs = {"(": ")", "{": "}", "[": "]"}
    depth, opening, end = 0, text[begin], pairs[text[begin]]
    for i in range(begin, len(text)):
        depth += (text[i] == opening) - (text[i] == end)
        if depth == 0:
            return i
    raise ValueError(f"nothing closes {text[begin:begin + 60]!r}")


def split_arguments(text):
    """Splits at the commas that stand outside of brackets and strings."""
    parts, depth, quoted, current = [], 0, False, ""
    for character in text:
        if character == '"':
            quoted = not quoted
        if not quoted:
            depth += (character in "([{") - (character in ")]}")
            if character == "," and depth == 0:
                parts.append(current.strip())
                current = ""
                continue
        current += character
    return parts + [current.strip()] if current.strip() else parts


def kernel_before(text, end):
    """Where the name of the kernel that ends before `end` begins, its template arguments included."""
    i = len(text[:end].rstrip())
    if text[i - 1] == ">":
        depth = 0
        while True:
            i -= 1
            depth += (text[i] == ">") - (text[i] == "<")
            if depth == 0:
                break
    while re.match(r"[\w:]", text[i - 1]):
        i -= 1
    return i


def is_deduced(text, kernel):
    """Whether the kernel is a template whose arguments the call leaves to the compiler."""
    if "<" in kernel:
        return False
    declaration = r"template\s*<[^;{}]*>\s*(static\s+)?__global__\s+void\s+(__launch_bounds__\([^)]*\)\s*)?"
    return re.search(declaration + kernel + r"\s*\(", text) is not None


def with_launches(text, whole):
    while (at := text.find("<<<")) >= 0:
        begin, end = kernel_before(text, at), text.index(">>>", at)
        kernel = text[begin:at].rstrip()
        shape = text[at + 3 : end]
        arguments = end + 3
        assert text[arguments] == "(", text[at : arguments + 40]
        address = "nullptr" if is_deduced(whole, kernel) else f"{EMULATION}AddressOf({kernel})"
        lines = "\n" * text[begin:at].count("\n")
        call = (
            f"{EMULATION}Launch(\"{kernel}\", {address}, [=](const auto&... of_launch) {{ {kernel}(of_launch...); }}, "
            f"{EMULATION}Shape({shape}), {lines}"
        )
        text = text[:begin] + call + text[arguments + 1 :]
    return text


def with_shared(text):
    text = re.sub(
        r"extern __shared__ (?:__align__\((\d+)\) )?([\w ]+?) (\w+)\[\];",
        lambda m: f"{m[2]}* const {m[3]} = {EMULATION}DynamicShared<{m[2]}, {m[1] or 16}>();",
        text,
    )
    return re.sub(
        r"__shared__ ([\w:<>]+) (\w+)((?:\[[^\]]+\])+);",
        lambda m: f"auto& {m[2]} = {EMULATION}StaticShared<{m[1]}{m[3]}>([] {{}});",
        text,
    )


def with_names(text):
    """Kernels that begin with the telling of their name."""
    at = 0
    while match := re.compile(r"__global__\s+void\s+(__launch_bounds__\([^)]*\)\s*)?\w+\s*(?=\()").search(text, at):
        body = closing(text, match.end()) + 1
        brace = text.index("{", body)
        assert not text[body:brace].strip(), text[match.start() : brace]
        text = f"{text[:brace + 1]} {EMULATION}EnterKernel(__PRETTY_FUNCTION__);{text[brace + 1:]}"
        at = brace
    return text


def instruction(statement):
    """The call that stands for asm(...), whose inside is `statement`."""
    strings = re.match(r'\s*((?:"[^"]*"\s*)+)(.*)', statement, re.S)
    ptx = "".join(re.findall(r'"([^"]*)"', strings[1])).strip().rstrip(";").strip()
    operands = []
    for group in strings[2].replace("::", ": :").split(":")[1:3]:
        for operand in split_arguments(group):
            operands.append(re.match(r'"[^"]*"\s*\((.*)\)$', operand, re.S)[1])
    name, _, places = ptx.partition(" ")
    arguments = [
        operands[int(place[1:])] if place.startswith("%") else place
        for place in re.findall(r"%\d+|\b\d+\b", places)
    ]
    return f"{EMULATION}ptx::{name.replace('.', '_').replace('::', '_')}({', '.join(arguments)});"


def protect_ternaries(text):
    """Colons of C++ inside of an asm statement's operands, which are no separators, hidden in brackets' depth."""
    depth, result, quoted = 0, "", False
    for character in text:
        quoted ^= character == '"'
        if not quoted:
            depth += (character in "([{") - (character in ")]}")
        result += "\x01" if character == ":" and (depth > 0 or quoted) else character
    return result


def with_instructions(text):
    pattern = re.compile(r"\basm(?: volatile)?(?=\()")
    while match := pattern.search(text):
        end = closing(text, match.end())
        inside = protect_ternaries(text[match.end() + 1 : end])
        call = instruction(inside).replace("\x01", ":")
        lines = "\n" * (text[match.start() : end].count("\n") - call.count("\n"))
        text = text[: match.start()] + call + lines + text[end + 2 :]
    return text


def translate(root, path, seen):
    text = (root / path).read_text()
    text = re.sub(r"const __grid_constant__ ([\w:<>]+) (\w+)", r"const \1& \2", text)
    text = with_instructions(with_shared(text))
    text = with_launches(text, text)
    text = with_names(text).replace("#pragma once", "")
    result = [f'#line 1 "{path}"']
    for number, line in enumerate(text.split("\n"), 1):
        include = re.match(r'#include "(.*\.cuh)"', line)
        if not include:
            result.append(line)
        elif include[1] not in seen:
            seen.add(include[1])
            result += [translate(root, include[1], seen), f'#line {number + 1} "{path}"']
    return "\n".join(result)


def main():
    root, source, output = pathlib.Path(sys.argv[1]), sys.argv[2], pathlib.Path(sys.argv[3])
    output.write_text(translate(root, source, set()))


if __name__ == "__main__":
    main()
