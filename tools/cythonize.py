# SPDX-License-Identifier: BSD-3-Clause
"""Translate the Cython modules of a folder to C in one process.

    python tools/cythonize.py OUTPUT_FOLDER DEPFILE [CYTHON_OPTION ...] MODULE.pyx ...

Most of the time that Cython takes for a small module is its own start: one process for a folder
needs a third of the time of one for each module. Modules whose sources have not changed since the
last call are left alone, so that nothing is compiled again for them.
"""

import os
import shlex
import sys

from Cython import __version__
from Cython.Compiler.CmdLine import parse_command_line
from Cython.Compiler.Main import compile as translate


def main(folder, depfile, *arguments):
    options, sources = parse_command_line(arguments)
    options.depfile = True
    # Other options, or another Cython, make all C files anew. A new module makes its own only.
    stamp = os.path.join(folder, "cythonize.stamp")
    command = "\n".join([__version__, *(a for a in arguments if a not in sources)])
    same = read(stamp) == command
    outputs, dependencies = [], []
    for source in sources:
        output = os.path.join(folder, os.path.splitext(os.path.basename(source))[0] + ".c")
        if not (same and is_newer(output, read_dependencies(output))):
            options.output_file = output
            if translate(source, options).num_errors:
                return 1
        outputs.append(output)
        dependencies += read_dependencies(output)
    with open(stamp, "w", encoding="utf-8") as file:
        file.write(command)
    with open(depfile, "w", encoding="utf-8") as file:
        names = [name.replace(" ", r"\ ") for name in dict.fromkeys(dependencies)]
        file.write(f"{outputs[0]}: {' '.join(names)}\n")
    return 0


def read_dependencies(output):
    """Sources of a C file, as Cython listed them when it wrote it; none if there is no list."""
    _, _, names = read(output + ".dep").replace("\\\n", " ").partition(": ")
    return shlex.split(names)


def read(path):
    """Text of a file, empty if there is none."""
    try:
        with open(path, encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return ""


def is_newer(output, sources):
    try:
        return bool(sources) and os.path.getmtime(output) >= max(map(os.path.getmtime, sources))
    except FileNotFoundError:
        return False


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
