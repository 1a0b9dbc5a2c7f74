"""Packages outside skdpm, compiled against the installed skdpm: the skeletons of doc/, and the
probes of the tests."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

SKELETONS = Path(__file__).resolve().parents[2] / "doc" / "skeletons"


def build(name, folder):
    """Compile a skeleton and unpack its wheel into `folder`."""
    build_package(SKELETONS / name, folder)


def build_package(package, folder):
    """Compile the package in one folder and unpack its wheel into another."""
    source = folder / package.name
    shutil.copytree(package, source)
    # The tools (cython, meson, ninja) of this interpreter, whether or not it is activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-c", "import mesonpy; mesonpy.build_wheel('.')"],
        cwd=source,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        raise RuntimeError(
            f"{package.name} could not be compiled, for which a C compiler, Cython, meson-python "
            f"and ninja are needed:\n{done.stdout}{done.stderr}"
        )
    (wheel,) = source.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
