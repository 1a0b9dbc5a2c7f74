"""Kernel methods for Python: the contents of `tests/probes/skdpm_probes.pyx`.

They are compiled when this module is first imported, once for all workers of pytest-xdist, and
kept in build/probes for later sessions with the same sources, declarations and interpreter. Tests
that import this module need a C compiler, and fail without one; .ci/run and cibuildwheel therefore
run others on wheels.
"""

import contextlib
import hashlib
import importlib.util
import os
import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path

import Cython
import numpy as np

import skdpm
from support.skeletons import build_package

try:
    import fcntl
except ImportError:  # Windows, where several workers may each compile
    fcntl = None

SOURCE = Path(__file__).resolve().parents[1] / "probes"
CACHE = SOURCE.parents[1] / "build" / "probes"


def key():
    """A hash of all that the compiled module depends on."""
    package = Path(skdpm.__file__).parent
    versions = [sys.version, sysconfig.get_config_var("EXT_SUFFIX"), Cython.__version__]
    found = hashlib.sha256(repr([*versions, np.__version__, str(package)]).encode())
    declarations = [p for end in ("pxd", "h") for p in package.rglob(f"*.{end}")]
    for path in sorted([*declarations, *SOURCE.iterdir()]):
        found.update(path.name.encode() + path.read_bytes())
    return found.hexdigest()[:16]


@contextlib.contextmanager
def locked(path):
    with open(path, "w") as file:
        if fcntl is not None:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def folder_of_probes():
    """The folder with the compiled module; it is compiled if there is none."""
    CACHE.mkdir(parents=True, exist_ok=True)
    folder = CACHE / key()
    with locked(CACHE / "lock"):
        if not folder.exists():
            work = Path(tempfile.mkdtemp(dir=CACHE))
            try:
                build_package(SOURCE, work)
                shutil.rmtree(work / SOURCE.name)
                # Another worker may have been faster where there is no lock.
                with contextlib.suppress(OSError):
                    os.rename(work, folder)
            finally:
                shutil.rmtree(work, ignore_errors=True)
    return folder


def load():
    (path,) = folder_of_probes().glob("skdpm_probes*" + sysconfig.get_config_var("EXT_SUFFIX"))
    spec = importlib.util.spec_from_file_location("skdpm_probes", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


_probes = load()
ARMProbe = _probes.ARMProbe
FeatureProbe = _probes.FeatureProbe
MoveProbe = _probes.MoveProbe
Probe = _probes.Probe
RelaunchProbe = _probes.RelaunchProbe
ResamplingProbe = _probes.ResamplingProbe
StateProbe = _probes.StateProbe
accumulated = _probes.accumulated
add_square = _probes.add_square
allocation = _probes.allocation
audit = _probes.audit
cholesky_update = _probes.cholesky_update
conditional = _probes.conditional
draw_pair = _probes.draw_pair
draw_polya_gamma = _probes.draw_polya_gamma
log_density_bounds = _probes.log_density_bounds
log_likelihoods_at = _probes.log_likelihoods_at
log_marginals_at = _probes.log_marginals_at
log_predictive_bounds = _probes.log_predictive_bounds
log_predictive_floors = _probes.log_predictive_floors
weigh_part = _probes.weigh_part
