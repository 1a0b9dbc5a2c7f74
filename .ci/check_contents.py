# SPDX-License-Identifier: BSD-3-Clause
"""Compare an sdist and a wheel with the tracked files; run in the root of a clone.

    python .ci/check_contents.py SDIST WHEEL

A module that no meson.build names is missing from the wheel without a word from the build: only
an import of just that module would tell. What is in the wheel but neither tracked nor compiled
from a tracked file is an error too.
"""

import re
import subprocess
import sys
import tarfile
import zipfile
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import PurePosixPath

INSTALLED_AS_IS = {".py", ".pxd", ".pyi", ".h", ".typed"}
WRITTEN_BY_CYTHON = "skdpm/_core/_cyutility.pyx"  # as if from such a file


def tracked_files():
    listing = subprocess.run(
        ["git", "ls-files", "-z"], check=True, capture_output=True, text=True
    ).stdout
    return {name for name in listing.split("\0") if name}


def sdist_problems(path, tracked):
    with tarfile.open(path) as archive:
        members = {m.name.partition("/")[2] for m in archive.getmembers() if m.isfile()}
    return [f"not in the sdist: {name}" for name in sorted(tracked - members)]


def wheel_problems(path, tracked):
    with zipfile.ZipFile(path) as archive:
        members = {name for name in archive.namelist() if not name.endswith("/")}
    package = [PurePosixPath(name) for name in tracked if name.startswith("skdpm/")]
    expected = {str(name) for name in package if name.suffix in INSTALLED_AS_IS}
    problems = [f"not in the wheel: {name}" for name in sorted(expected - members)]
    unknown = members - expected
    sources = [name for name in package if name.suffix == ".pyx"]
    for source in [*sorted(sources), PurePosixPath(WRITTEN_BY_CYTHON)]:
        compiled = {f"{source.with_suffix('')}{suffix}" for suffix in EXTENSION_SUFFIXES}
        if not members & compiled:
            problems.append(f"no compiled module in the wheel: {source}")
        unknown -= compiled
    unknown = {name for name in unknown if not re.match(r"skdpm-[^/]*\.dist-info/", name)}
    problems += [f"in the wheel, but from no tracked file: {name}" for name in sorted(unknown)]
    if not any(re.fullmatch(r"skdpm-[^/]*\.dist-info/(.*/)?LICENSE", name) for name in members):
        problems.append("not in the wheel: LICENSE")
    return problems


def main():
    sdist, wheel = sys.argv[1:]
    tracked = tracked_files()
    problems = sdist_problems(sdist, tracked) + wheel_problems(wheel, tracked)
    print("\n".join(problems) or f"{len(tracked)} tracked files accounted for")
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
