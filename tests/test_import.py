"""What `import skdpm` brings along, and what it says where the compiled parts are missing."""

import importlib
import inspect
import pathlib
import pydoc
import shutil
import subprocess
import sys
import sysconfig

import pytest

import skdpm

LAZY = (
    "tqdm",
    "dask",
    "matplotlib",
    "pandas",
    "sklearn.cluster._kmeans",
    "hypothesis",
    "pytest",
    "skdpm.papers",
)


def _python(code, **kwargs):
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, **kwargs
    )


@pytest.mark.long
def test_imports(tmp_path):
    """`import skdpm` is enough, and loads neither what it may never need nor a heavy module beyond
    those that scikit-learn itself imports."""
    done = _python(
        "import sys, sklearn.base, sklearn.utils.metaestimators\n"
        "before = set(sys.modules)\n"
        "import skdpm\n"
        "assert 'skdpm.plotting' not in sys.modules\n"
        "skdpm.plotting.ClustersDisplay\n"
        "print(*sorted(set(sys.modules) - before))\n"
        "skdpm.model_selection.log_evidence\n"
        "assert 'skdpm.datasets' not in sys.modules and 'datasets' in dir(skdpm)\n",
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    added = done.stdout.split()
    assert "skdpm.mixture.estimators" in added
    for name in LAZY:
        assert not [module for module in added if (module + ".").startswith(name + ".")], name


def test_missing_compiled_parts_are_explained(tmp_path):
    """The root of the source tree hides the installed package: say so."""
    source = pathlib.Path(skdpm.__file__).parent
    shutil.copytree(
        source, tmp_path / "skdpm", ignore=shutil.ignore_patterns("*.so", "*.pyd", "__pycache__")
    )
    code = "import sys; sys.meta_path = [m for m in sys.meta_path if 'Meson' not in repr(m)]\n"
    done = _python(code + "import skdpm", cwd=tmp_path)
    assert done.returncode == 1
    assert "ImportError: the compiled parts of skdpm are missing from this folder" in done.stderr
    assert "pip install --no-build-isolation -e ." in done.stderr


def test_other_import_errors_are_not_explained_away(tmp_path):
    """Without NumPy the reason is NumPy."""
    done = _python("import sys; sys.modules['numpy'] = None; import skdpm", cwd=tmp_path)
    assert done.returncode == 1
    assert "compiled parts" not in done.stderr and "numpy" in done.stderr


def test_public_names():
    modules = {name for name in dir(skdpm) if inspect.ismodule(getattr(skdpm, name))}
    assert {"datasets", "hyperpriors", "mixture"} <= modules and not modules & sys.modules.keys()
    assert set(skdpm.__all__) == set(dir(skdpm)) - modules - {"__version__"}
    assert skdpm.DPMixture.__module__ == "skdpm.mixture.estimators"


def test_unknown_names():
    with pytest.raises(AttributeError, match="'skdpm' has no attribute 'plots'"):
        skdpm.plots  # noqa: B018


@pytest.mark.parametrize("family", ["mixture", "features"])
def test_parts_of_models_are_at_hand(family):
    package = importlib.import_module(f"skdpm.{family}")
    for kind in ("likelihoods", "samplers"):
        parts = importlib.import_module(f"skdpm.{family}.{kind}")
        assert set(parts.__all__) <= set(package.__all__)
        for name in parts.__all__:
            assert getattr(package, name) is getattr(parts, name)
    assert set(package.__all__) <= set(dir(package))


@pytest.mark.parametrize(
    "name",
    [
        "allocations",
        "datasets",
        "diagnostics",
        "draws",
        "hyperpriors",
        "metrics",
        "model_selection",
        "mutations",
        "networks",
        "partitions",
        "plotting",
    ],
)
def test_modules_list_what_is_public(name):
    module = importlib.import_module(f"skdpm.{name}")
    assert dir(module) == sorted(module.__all__)
    assert all(hasattr(module, public) for public in module.__all__)
    assert not any(public.startswith("_") for public in module.__all__)


@pytest.mark.skipif(
    not sysconfig.get_config_var("Py_GIL_DISABLED"), reason="an interpreter that has the lock"
)
def test_import_does_not_bring_the_lock_back(tmp_path):
    """One module that is not declared to do without it would, with a warning."""
    code = "import skdpm, sys; sys.exit(sys._is_gil_enabled())"
    done = subprocess.run([sys.executable, "-W", "error", "-c", code], cwd=tmp_path, check=False)
    assert done.returncode == 0


def test_help_can_be_read():
    for cls in (skdpm.DPMixture, skdpm.FiniteMixture, skdpm.FeatureAllocation):
        assert len(pydoc.render_doc(cls, renderer=pydoc.plaintext).splitlines()) <= 550
