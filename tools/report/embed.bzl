"""Text files inside programs, so that a program needs nothing beside it."""

load("//build_defs:cc.bzl", "ls_cc_library")

def embedded_text(name, texts):
    """A library with the header <name>.h of this package, which has each text as a constant.

    Args:
      name: of the library.
      texts: a dict from file to the constant's name, such as {"page.css": "kPageCss"}.
    """
    command = "echo '#pragma once' > $@\n"
    for text, constant in texts.items():
        command += """
            {{ echo 'inline constexpr char {constant}[] = R"___TEXT___('
               cat $(location {text})
               echo ')___TEXT___";' ; }} >> $@
        """.format(constant = constant, text = text)
    native.genrule(
        name = name + "_header",
        srcs = texts.keys(),
        outs = [name + ".h"],
        cmd = command,
    )
    ls_cc_library(name = name, hdrs = [name + ".h"])
