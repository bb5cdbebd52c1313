#!/usr/bin/env python3
"""Holds each source to the standard headers that it uses: a file includes the header of every name of
the standard library in it, and none whose names it does not have. Prints what breaks this, as
file: what, and ends with 1 then; with --fix, mends the files instead (clang-format sorts the lines).

    python3 tools/habits/check_includes.py [--fix]

A .cc file has what the header of the same name includes, and a test what its header includes.
"""

import re
import subprocess
import sys

# The names of a header, without std::. A name with several headers is served by any of them, and
# the first is what a file without one is told to include.
NAMES = {
    "algorithm": """adjacent_find all_of any_of clamp copy copy_if copy_n count count_if equal fill fill_n
        find find_if find_if_not is_sorted lower_bound max max_element min min_element minmax_element
        mismatch none_of nth_element replace reverse set_intersection shuffle sort stable_partition
        stable_sort swap_ranges transform unique upper_bound""",
    "array": "array to_array",
    "atomic": """atomic atomic_ref memory_order memory_order_acq_rel memory_order_acquire
        memory_order_relaxed memory_order_release""",
    "bit": "bit_cast bit_ceil bit_floor bit_width countl_zero countr_zero endian has_single_bit popcount rotl rotr",
    "cctype": "isalnum isalpha isdigit isspace tolower toupper",
    "charconv": "from_chars to_chars",
    "chrono": "chrono",
    "cmath": """HUGE_VAL INFINITY M_PI NAN ceil copysign cos cosh erf erfc exp exp2 fabs floor fma fmod hypot ilogb isfinite isinf
        isnan ldexp lerp llround log log10 log2 lround nan nanf nearbyint nextafter pow round signbit sin
        sqrt tanh trunc""",
    "concepts": "same_as",
    "condition_variable": "condition_variable condition_variable_any",
    "cstddef": "byte ptrdiff_t",
    "cstdio": "ferror fflush fprintf fputc fputs freopen fwrite perror printf puts snprintf",
    "cstdlib": "abort aligned_alloc atoi exit free getenv malloc strtoll strtoul strtoull",
    "cstring": """memchr memcmp memcpy memmove memset strcat strchr strcmp strcpy strerror strlen strncmp strncpy
        strrchr strstr strtok""",
    "ctime": "strftime time time_t tm",
    "deque": "deque",
    "exception": """current_exception exception exception_ptr make_exception_ptr rethrow_exception
        set_terminate terminate""",
    "filesystem": "filesystem",
    "fstream": "fstream ifstream ofstream",
    "functional": "divides equal_to function greater less not_equal_to ref reference_wrapper",
    "future": "future future_status promise shared_future",
    "iterator": "back_inserter distance inserter next prev advance ssize",
    "limits": "numeric_limits",
    "list": "list",
    "map": "map multimap",
    "memory": """enable_shared_from_this make_shared make_unique shared_ptr static_pointer_cast
        unique_ptr weak_ptr""",
    "mutex": "lock_guard mutex scoped_lock unique_lock",
    "new": "align_val_t bad_alloc nothrow_t",
    "numbers": "numbers",
    "numeric": "accumulate gcd inner_product iota partial_sum",
    "optional": "nullopt optional",
    "queue": "priority_queue queue",
    "random": "mt19937 mt19937_64 normal_distribution uniform_real_distribution",
    "regex": "regex sregex_iterator",
    "set": "set",
    "shared_mutex": "shared_lock shared_mutex",
    "span": "as_bytes as_writable_bytes span",
    "sstream": "istringstream ostringstream stringstream",
    "stdexcept": "length_error logic_error runtime_error",
    "stop_token": "stop_token stop_source",
    "string": "getline stod string to_string u32string",
    "string_view": "string_view u32string_view",
    "system_error": "errc error_code make_error_code system_error",
    "thread": "jthread this_thread thread",
    "tuple": "apply forward_as_tuple make_tuple tie tuple",
    "type_traits": """conditional_t decay_t enable_if_t integral_constant is_arithmetic_v
        is_floating_point_v is_integral_v is_same_v is_scalar_v is_trivially_copyable_v make_unsigned
        make_unsigned_t remove_const_t remove_cvref_t remove_pointer_t type_identity""",
    "unordered_map": "unordered_map",
    "unordered_set": "unordered_set",
    "utility": """as_const declval exchange forward in_range index_sequence make_index_sequence make_pair
        move pair piecewise_construct swap""",
    "variant": "get_if holds_alternative variant variant_alternative_t variant_size_v visit",
    "vector": "vector",
}
HEADERS = {header: frozenset(names.split()) for header, names in NAMES.items()}
# What a header brings by the standard's own words, and what else declares a name.
ALSO = {
    "abs": ("cmath", "cstdlib"),
    "begin": ("iterator", "vector", "string", "array", "map", "set", "span", "deque", "string_view"),
    "end": ("iterator", "vector", "string", "array", "map", "set", "span", "deque", "string_view"),
    "erase": ("vector", "string", "deque", "list"),
    "erase_if": ("vector", "map", "set", "string", "deque", "list", "unordered_map"),
    "get": ("tuple", "utility", "variant", "array"),
    "initializer_list": ("initializer_list", "vector", "string", "map", "set", "algorithm"),
    "size": ("iterator", "vector", "string", "array", "map", "set", "span", "deque", "string_view"),
    "ssize": ("iterator", "vector", "string", "array", "map", "set", "span", "deque", "string_view"),
    "stop_token": ("stop_token", "thread"),
    "tuple_size_v": ("tuple", "utility", "array"),
}
# Headers with names that this table does not have whole, such as operators, macros and signals.
NEVER_TOO_MANY = {"cstddef", "cstdlib", "new", "numeric", "random", "exception", "ctime", "concepts",
                  "system_error", "functional", "utility", "iterator", "memory", "cctype", "cstdio",
                  "thread", "charconv", "stdexcept", "algorithm", "type_traits", "bit", "chrono"}

# Stand-ins for other people's headers include what those do.
STAND_INS = "core/cuda/emulation/include/"

RANGES = re.compile(r"std::ranges::(\w+)")
NAME = re.compile(r"(?<![\w:])std::(\w+)")
INCLUDE = re.compile(r'^#include [<"]([^">]+)[">]', re.M)


def headers_of(name):
    """The headers that serve std::name; none for a name that the table does not have."""
    if name in ALSO:
        return ALSO[name]
    return tuple(header for header, names in HEADERS.items() if name in names)


def code_of(text):
    """The text without comments, literals of strings and lines of the preprocessor."""
    text = re.sub(r'R"(\w*)\(.*?\)\1"', '""', text, flags=re.S)
    text = re.sub(r'''"(\\.|[^"\\\n])*"|'(\\.|[^'\\\n])'|//[^\n]*|/\*.*?\*/''',
                  lambda match: "" if match.group(0)[0] == "/" else "0", text, flags=re.S)
    return re.sub(r"^#include.*$", "", text, flags=re.M)


def own_header(path, paths):
    stem = re.sub(r"(_test)?\.(cc|cu|cuh|h)$", "", path)
    for extension in (".h", ".cuh"):
        if stem + extension in paths and stem + extension != path:
            return stem + extension
    return None


def judge(text, inherited):
    """The standard headers that are missing in `text`, and those that are too many."""
    code = code_of(text)
    included = set(INCLUDE.findall(text))
    names = set(RANGES.findall(code)) | set(NAME.findall(code))
    missing = {headers_of(name)[0] for name in names
               if headers_of(name) and not (included | inherited) & set(headers_of(name))}
    # Words without std:: count too here: macros, functions of C, names that `using` has brought.
    words = names | set(re.findall(r"\w+", code))
    idle = {header for header in included & set(HEADERS) - NEVER_TOO_MANY
            if not any(header in headers_of(word) for word in words)}
    return sorted(missing), sorted(idle)


def mend(text, missing, idle):
    for header in idle:
        text = re.sub(rf"^#include <{header}>.*\n", "", text, flags=re.M)
    if not missing:
        return text
    lines = "".join(f"#include <{header}>\n" for header in missing)
    # clang-format sorts within a block: the lines join the first of the standard's headers, or
    # stand before the first other include.
    first = re.search(r"^#include <[a-z_]+>", text, flags=re.M)
    if first:
        return text[:first.start()] + lines + text[first.start():]
    first = re.search(r"^#include ", text, flags=re.M)
    place = first.start() if first else re.search(r"^#define \w+\n\n", text, flags=re.M).end()
    return text[:place] + lines + "\n" + text[place:]


def main():
    listed = subprocess.run(
        ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
        check=True, capture_output=True).stdout.decode().split("\0")
    paths = sorted(path for path in set(listed) if re.search(r"\.(h|cc|cu|cuh)$", path))
    texts = {}
    for path in paths:
        with open(path, encoding="utf-8") as file:
            texts[path] = file.read()
    found = 0
    for path, text in texts.items():
        header = own_header(path, texts)
        inherited = set(INCLUDE.findall(texts[header])) if header else set()
        missing, idle = judge(text, inherited)
        if path.startswith(STAND_INS):
            idle = []
        found += len(missing) + len(idle)
        if "--fix" in sys.argv[1:] and (missing or idle):
            with open(path, "w", encoding="utf-8") as file:
                file.write(mend(text, missing, idle))
            continue
        for header in missing:
            print(f"{path}: <{header}> is used and not included")
        for header in idle:
            print(f"{path}: <{header}> is included and not used")
    print(f"check_includes: {found} headers, {len(paths)} files")
    return 1 if found and "--fix" not in sys.argv[1:] else 0


if __name__ == "__main__":
    sys.exit(main())
