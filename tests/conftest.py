"""Seeds, sizes, long and slow tests.

Hypothesis and the tests of p-values run in a part of their full size: a quarter, or all of it with
--run-slow. What then is larger than a quarter counts as slow, so that `--run-slow -m slow`
includes it.

SKDPM_SEEDS: "0-99", "7" or "1,5,8-10" runs every test that uses `seed` once per seed.
SKDPM_PART: another part than these.
SKDPM_SHARE: "7/3", with --run-slow: one of three shares of the tests, 7 modulo 3.
SKDPM_HYPOTHESIS_PROFILE: "part" (default), the same examples every time, or "nightly".
"""

import os
import re
from pathlib import Path
from zlib import crc32

import hypothesis
import numpy as np
import pytest
from support import pvalues
from threadpoolctl import threadpool_limits

FULL_EXAMPLES = 100
EVERYDAY_PART = 0.25

hypothesis.settings.register_profile("nightly", deadline=None, max_examples=1000, print_blob=True)


def _parse_seeds(text):
    seeds = []
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d+)(?:-(\d+))?\s*", part)
        if not match:
            raise pytest.UsageError(f"SKDPM_SEEDS must look like 0-99 or 1,5,8-10, got {text!r}")
        first, last = int(match[1]), int(match[2] or match[1])
        seeds.extend(range(first, last + 1))
    return seeds


def pytest_addoption(parser):
    parser.addoption("--run-long", action="store_true", help="run tests marked long, too")
    parser.addoption("--run-slow", action="store_true", help="run all tests")


def pytest_configure(config):
    # Before the tests are imported, whose settings are parts of the profile's.
    usual = 1.0 if config.getoption("--run-slow") else EVERYDAY_PART
    part = pvalues.first_factor = float(os.environ.get("SKDPM_PART", usual))
    hypothesis.settings.register_profile(
        "part",
        max_examples=round(part * FULL_EXAMPLES),
        derandomize=True,
        deadline=None,
        database=None,
    )
    hypothesis.settings.load_profile(os.environ.get("SKDPM_HYPOTHESIS_PROFILE", "part"))


def _choose(items, named):
    """Mark cases of tests as slow, except as many as their mark `some` says, and those `named` on
    the command line. The hash of a case decides, so that tests of the same likelihoods or samplers
    keep different ones."""
    cases = {}
    for item in items:
        name = (item.path, item.nodeid.partition("::")[2])
        if "some" in item.keywords and "slow" not in item.keywords and name not in named:
            cases.setdefault(item.nodeid.partition("[")[0], []).append(item)
    for several in cases.values():
        several.sort(key=lambda item: crc32(item.nodeid.encode()))
        # A test without parameters has no callspec.
        given = [getattr(item, "callspec", None) for item in several]
        n_seeds = len({call and call.params.get("seed") for call in given})
        for item in several[n_seeds * several[0].get_closest_marker("some").args[0] :]:
            item.add_marker("slow")


@pytest.hookimpl(tryfirst=True)  # before -m selects
def pytest_collection_modifyitems(config, items):
    named = [argument.partition("::")[::2] for argument in config.args]
    _choose(items, {(Path(file).resolve(), case) for file, case in named})
    if config.getoption("--run-slow"):
        for item in items if pvalues.first_factor > EVERYDAY_PART else ():
            if "hypothesis" in item.keywords or "seed_sequence" in item.fixturenames:
                item.add_marker("slow")
        number, n_shares = map(int, os.environ.get("SKDPM_SHARE", "0/1").split("/"))
        chosen = [i for i in items if (crc32(i.nodeid.encode()) - number) % n_shares == 0]
        items[:] = chosen
        return
    # Thousands of skipped tests would take longer to report than to leave out.
    left_out = {"slow"} if config.getoption("--run-long") else {"slow", "long"}
    config.hook.pytest_deselected(items=[i for i in items if not left_out.isdisjoint(i.keywords)])
    items[:] = [item for item in items if left_out.isdisjoint(item.keywords)]


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """Give tests that stand together to one worker: the other need not make their fixtures."""
    if config.getoption("dist") != "load":  # another one was asked for
        return None
    from xdist.scheduler import WorkStealingScheduling

    return WorkStealingScheduling(config, log)


@pytest.fixture(autouse=True, scope="session")
def one_blas_thread():
    """The references factorise small matrices: more threads only wait for each other."""
    with threadpool_limits(limits=1, user_api="blas"):
        yield


@pytest.fixture(params=_parse_seeds(os.environ.get("SKDPM_SEEDS", "0")), ids="seed{}".format)
def seed(request):
    """0, or every seed of SKDPM_SEEDS."""
    return request.param


@pytest.fixture
def seed_sequence(request, seed):
    """A SeedSequence of this test alone: adding or renaming another test does not change it."""
    return np.random.SeedSequence([seed, crc32(request.node.nodeid.encode())])
