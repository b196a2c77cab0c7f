"""Figures and claims on executors: the same bits as without."""

import os
import pickle
import threading
from concurrent import futures
from dataclasses import replace

import fatal_tasks
import jax
import numpy as np
import pytest

from sparsity import InputError, plotting
from sparsity import claims_ledger as ledger
from sparsity.claims_ledger.findings import core
from sparsity.report import figures
from sparsity.series import Series
from sparsity.tasks import _Answer, has_float64, process_pool, run_all_tasks


class Elsewhere(futures.Executor):
    """Runs what was sent and brings back what was sent back, as another process would."""

    def __init__(self):
        self.count = self.largest = 0

    def submit(self, fn, /, *args, **kwargs):
        sent = pickle.dumps((fn, args, kwargs))
        self.count += 1
        self.largest = max(self.largest, len(sent))
        fn, args, kwargs = pickle.loads(sent)
        found = futures.Future()
        found.set_result(pickle.loads(pickle.dumps(fn(*args, **kwargs))))
        return found


# Figures, claims, and all of it.


def _line(context):
    return (Series.line("one", [1, 2, 3], np.log([1, 2, context.seed + 1.0])),)


def _drawn(data, canvas):
    plotting.curve(plotting.axes(canvas, "x", "y"), data[0], plotting.LOOKS[0])


@pytest.mark.thorough
def test_figures_computed_elsewhere_are_the_same_bytes(tmp_path, monkeypatch):
    own = {"data": _line, "draw": _drawn, "size": (3.0, 2.0)}  # a small one takes less to draw
    each = [replace(figures.ALL[0], name=name, **own) for name in "xy"]
    monkeypatch.setattr(figures, "ALL", tuple(each))
    here = figures.write_all(tmp_path / "a", seed=2)
    there = figures.write_all(tmp_path / "b", seed=2, executor=Elsewhere())
    assert [x.name for x in here] == ["x", "y"]
    assert here == there
    for file in (tmp_path / "a").iterdir():
        assert file.read_bytes() == (tmp_path / "b" / file.name).read_bytes()
    assert figures.write_all(tmp_path / "c", seed=3, executor=Elsewhere()) != here


def _judge(routes, seed):
    return [core("the seed is odd", seed % 2 == 1)], {"seed": seed}


def test_claims_judged_elsewhere_are_the_same_records(monkeypatch):
    each = [replace(ledger.ALL[0], key=key, judge=_judge) for key in "xy"]
    monkeypatch.setattr(ledger, "ALL", tuple(each))
    there = ledger.claims(seed=3, executor=Elsewhere())
    assert there == ledger.claims(seed=3) != ledger.claims(seed=2)
    assert [x["key"] for x in there] == ["x", "y"]


def test_every_figure_and_claim_can_be_sent_to_a_worker():
    for one in (*figures.ALL, *ledger.ALL):
        assert pickle.loads(pickle.dumps(one)) == one


# Executors themselves.


@pytest.mark.thorough
def test_a_pool_of_processes_and_one_that_loses_a_worker():
    with process_pool(2) as pool:
        pids = dict(run_all_tasks(fatal_tasks.pid, range(8), pool))
        assert sorted(pids) == list(range(8))
        assert len({*pids.values()}) <= 2
        assert os.getpid() not in pids.values()
        # Ctrl-C while a worker still starts would end it, and break the pool.
        assert dict(run_all_tasks(fatal_tasks.holds_interrupts, [0], pool)) == {0: True}
        assert not fatal_tasks.holds_interrupts(0)
        with pytest.raises(ValueError, match="wrong"):
            list(run_all_tasks(fatal_tasks.upper, ["a", "wrong"], pool))
        with pytest.raises(InputError, match=r"^executor = ProcessPoolExecutor: lost its workers"):
            list(run_all_tasks(fatal_tasks.upper, ["fatal"], pool))
    with pytest.raises(InputError, match=r"^workers = 0"):
        process_pool(0)


class Jobs:
    """As submitit: what it hands out is no future, and is done at the second look."""

    class Job:
        def __init__(self, value):
            self.value, self.looks = value, 0

        def done(self):
            self.looks += 1
            return self.looks > 1

        def result(self):
            return self.value

        def cancel(self):
            pass

    def submit(self, fn, /, *args):
        return self.Job(fn(*args))


def test_jobs_that_are_no_futures_are_asked_until_they_are_done():
    assert dict(run_all_tasks(str.upper, "abc", Jobs())) == {0: "A", 1: "B", 2: "C"}


def test_what_is_not_waited_for_is_cancelled():
    given = []

    class Idle(futures.Executor):
        def submit(self, fn, /, *args):
            given.append(futures.Future())
            return given[-1]

    tasks = run_all_tasks(str.upper, "abc", Idle())
    threading.Timer(0.05, lambda: given[1].set_result(_Answer("B"))).start()
    assert next(tasks) == (1, "B")
    tasks.close()
    assert [future.cancelled() for future in given] == [True, False, True]


def test_precision_is_that_of_the_caller():
    """Where a worker has another default, as one of a cluster may."""
    with jax.enable_x64(False):
        assert [*run_all_tasks(_has_float64, [0], InThread())] == [(0, False)]
    assert [*run_all_tasks(_has_float64, [0], InThread())] == [(0, True)]


def _has_float64(task):
    return has_float64()


class InThread(futures.Executor):
    """Another thread, which has not the precision of this one's context."""

    def submit(self, fn, /, *args):
        with futures.ThreadPoolExecutor(1) as pool:
            future = pool.submit(fn, *args)
            futures.wait([future])
        return future


class Wrong(futures.Executor):
    """What does not run tasks."""

    def __init__(self, how):
        self.how = how

    def submit(self, fn, /, *args, **kwargs):
        found = futures.Future()
        if self.how == "raises":
            raise ValueError("no room")
        if self.how == "cancels":
            found.cancel()
        if self.how == "answers":
            found.set_result(7)
        return 7 if self.how == "returns" else found


@pytest.mark.parametrize(
    ("how", "says"),
    [
        *[("raises", "takes no task: ValueError: no room"), ("cancels", "cancelled a task")],
        *[("answers", "answers int"), ("returns", "submit returns int")],
    ],
)
def test_an_executor_that_runs_nothing_is_refused_in_a_line(how, says):
    with pytest.raises(InputError, match=f"executor = Wrong: .*{says}"):
        list(run_all_tasks(abs, [-1, -2], Wrong(how)))


def test_a_long_silence_is_in_the_log(monkeypatch):
    """As of a cluster that has lost all its workers; the task that ends at last is an answer."""
    monkeypatch.setattr("sparsity.tasks._SILENCE_SECONDS", 0.01)
    held, lines = threading.Event(), []

    def note(*said):
        lines.append(said)
        held.set()

    monkeypatch.setattr("sparsity.tasks._LOG.warning", note)
    with futures.ThreadPoolExecutor(1) as pool:
        assert list(run_all_tasks(lambda task: held.wait(600) and task, [5], pool)) == [(0, 5)]
    assert "has it workers?" in lines[0][0]
