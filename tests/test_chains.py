"""Running chains: seeds, turns, threads, progress; without any model."""

import itertools
import signal
import threading

import numpy as np
import pytest

from skdpm import chains as module
from skdpm.chains import run_chains, seed_entropy, stream


def _chains(n_chains):
    return [{"index": c, "iteration": 0, "values": []} for c in range(n_chains)]


def _advance(chain, n_iterations, go_on):
    running = True
    while running and chain["iteration"] < n_iterations:
        chain["iteration"] += 1
        chain["values"].append(threading.get_ident())
        running = go_on(done=chain["iteration"])


@pytest.mark.parametrize("n_jobs", [None, 1, 2, 5, -1])
def test_all_chains_reach_the_end(n_jobs):
    chains = _chains(3)
    assert run_chains(_advance, chains, 7, n_jobs=n_jobs) is False
    assert [chain["iteration"] for chain in chains] == [7, 7, 7]
    assert run_chains(_advance, chains, 9, n_jobs=n_jobs) is False
    assert [len(chain["values"]) for chain in chains] == [9, 9, 9]


def test_a_chain_that_is_ahead_is_left_alone():
    chains = _chains(3)
    chains[1]["iteration"] = 7
    run_chains(_advance, chains, 7)
    assert [len(chain["values"]) for chain in chains] == [7, 0, 7]


def _order_of_work(n_chains, n_jobs, monkeypatch):
    monkeypatch.setattr(module, "TURN", 0.0)
    order = []

    def advance(chain, n_iterations, go_on):
        def noted(**figures):
            order.append(chain["index"])
            return go_on(**figures)

        _advance(chain, n_iterations, noted)

    run_chains(advance, _chains(n_chains), 3, n_jobs=n_jobs)
    return order


def test_few_threads_take_turns(monkeypatch):
    assert _order_of_work(3, 1, monkeypatch) == [0, 1, 2] * 3


def test_turns_grow_with_time(monkeypatch):
    """An iteration takes 1/32 second of this clock."""
    now, order = [0.0], []
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])

    def advance(chain, n_iterations, go_on):
        def timed(**figures):
            now[0] += 1 / 32
            order.append(chain["index"])
            return go_on(**figures)

        _advance(chain, n_iterations, timed)

    run_chains(advance, _chains(2), 2000)
    lengths = [len(list(turn)) for _, turn in itertools.groupby(order)]
    assert lengths[:8] == [4] * 8 and lengths == sorted(lengths[:-2]) + lengths[-2:]
    # A second, however long the fit takes.
    assert max(lengths) == 32 == lengths[len(lengths) // 2]


def test_one_chain_never_waits(monkeypatch):
    monkeypatch.setattr(module, "TURN", 0.0)
    calls = []

    def advance(chain, n_iterations, go_on):
        calls.append(chain["index"])
        _advance(chain, n_iterations, go_on)

    run_chains(advance, _chains(1), 5)
    run_chains(advance, _chains(2), 5, n_jobs=2)
    assert sorted(calls) == [0, 0, 1]


def test_threads_are_used():
    barrier = threading.Barrier(2, timeout=30)

    def advance(chain, n_iterations, go_on):
        barrier.wait()  # until both are running
        _advance(chain, n_iterations, go_on)

    chains = _chains(2)
    run_chains(advance, chains, 2, n_jobs=2)
    assert chains[0]["values"][0] != chains[1]["values"][0]


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_an_error_comes_through_and_stops_the_others(n_jobs):
    def advance(chain, n_iterations, go_on):
        if chain["index"] == 0:
            raise FloatingPointError("item 3: no cluster has positive weight")
        _advance(chain, n_iterations, go_on)

    chains = _chains(2)
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(FloatingPointError, match="item 3"):
        run_chains(advance, chains, 10**9, n_jobs=n_jobs)  # would take hours
    assert signal.getsignal(signal.SIGINT) is before


def _press_ctrl_c_at(iteration, times=1):
    def advance(chain, n_iterations, go_on):
        def pressed(**figures):
            if chain["index"] == 0 and chain["iteration"] == iteration:
                for _ in range(times):
                    signal.raise_signal(signal.SIGINT)
            return go_on(**figures)

        _advance(chain, n_iterations, pressed)

    return advance


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_ctrl_c_stops_between_iterations(n_jobs, monkeypatch):
    monkeypatch.setattr(module, "TURN", 0.0)
    chains = _chains(2)
    before = signal.getsignal(signal.SIGINT)
    assert run_chains(_press_ctrl_c_at(5), chains, 10**9, n_jobs=n_jobs) is True
    assert signal.getsignal(signal.SIGINT) is before
    assert all(chain["iteration"] == len(chain["values"]) for chain in chains)
    if n_jobs == 1:
        assert [chain["iteration"] for chain in chains] == [5, 4]
    else:
        assert chains[0]["iteration"] >= 5


def test_a_second_ctrl_c_is_immediate():
    before = signal.getsignal(signal.SIGINT)
    with pytest.raises(KeyboardInterrupt):
        run_chains(_press_ctrl_c_at(5, times=2), _chains(2), 10**9)
    assert signal.getsignal(signal.SIGINT) is before


def test_someone_elses_handler_is_put_back():
    calls = []
    before = signal.signal(signal.SIGINT, lambda *args: calls.append(args))
    try:
        assert run_chains(_press_ctrl_c_at(2), _chains(1), 10)
        assert not calls
        signal.raise_signal(signal.SIGINT)
        assert len(calls) == 1
    finally:
        signal.signal(signal.SIGINT, before)


def test_ignored_ctrl_c_stays_ignored():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        run_chains(_advance, _chains(1), 3)
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_outside_the_main_thread():
    before = signal.getsignal(signal.SIGINT)
    chains, seen = _chains(2), []

    def advance(chain, n_iterations, go_on):
        seen.append(signal.getsignal(signal.SIGINT))
        _advance(chain, n_iterations, go_on)

    thread = threading.Thread(target=run_chains, args=(advance, chains, 4))
    thread.start()
    thread.join()
    assert [chain["iteration"] for chain in chains] == [4, 4]
    assert seen == [before] * 2  # nothing was installed


def test_progress_goes_to_stderr(capsys):
    run_chains(_advance, _chains(2), 4, verbose=1)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "8/8" in shown.err and "done=4" in shown.err and "at most" not in shown.err
    run_chains(_advance, _chains(2), 4, verbose=1, halts=lambda done: 2 if done < 2 else None)
    assert (shown := capsys.readouterr().err).startswith("\rat most 8:") and "\r100%|" in shown
    run_chains(_advance, _chains(2), 4)
    assert capsys.readouterr().err == ""


# Seeds.


def test_seed_entropy():
    assert seed_entropy(7) == seed_entropy(np.uint16(7)) == 7
    assert type(seed_entropy(np.int64(7))) is int
    assert seed_entropy(2**100) == 2**100
    assert seed_entropy(None) != seed_entropy(None)
    for make in (np.random.RandomState, np.random.default_rng):
        rng = make(3)
        first, second = seed_entropy(rng), seed_entropy(rng)
        assert first == seed_entropy(make(3)) and first != second
        assert 0 <= first < 2**128 and first.bit_length() > 64
    state = np.random.get_state()
    try:
        np.random.seed(3)
        first = seed_entropy(np.random)
        np.random.seed(3)
        assert seed_entropy(np.random) == first
    finally:
        np.random.set_state(state)


@pytest.mark.parametrize("bad", [-1, 1.0, "0", True, [1, 2], np.random.SeedSequence(0)])
def test_seed_entropy_refuses(bad):
    with pytest.raises(ValueError, match="random_state must"):
        seed_entropy(bad)


def test_streams_repeat_and_differ():
    words = {stream(0, c).random_raw() for c in range(100)} | {stream(1, 0).random_raw()}
    assert len(words) == 101
    assert stream(5, 3).random_raw() == stream(5, 3).random_raw()
    assert stream(5, 3, 1).random_raw() != stream(5, 3).random_raw()
