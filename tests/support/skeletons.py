"""The skeletons of doc/, compiled against the installed skdpm as a stranger's would be."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

SKELETONS = Path(__file__).resolve().parents[2] / "doc" / "skeletons"


def build(name, folder):
    """Compile a skeleton and unpack its wheel into `folder`."""
    source = folder / name
    shutil.copytree(SKELETONS / name, source)
    # The tools (cython, meson, ninja) of this interpreter, whether or not it is activated.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    done = subprocess.run(
        [sys.executable, "-c", "import mesonpy; mesonpy.build_wheel('.')"],
        cwd=source,
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (wheel,) = source.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder)
