"""The benchmark: a false peer is found out, and one quick run fills every section."""

import json
import platform
import sys
from pathlib import Path

import pytest

from benchmarks import bench
from benchmarks.bench import finite, resources, target
from benchmarks.bench.grid import Task, reference
from benchmarks.bench.peers import Peer, available
from sparsity import InputError, kernels

PEERS = available()
BUDGET = 0.02

SLOW = pytest.mark.slow  # a quick run of everything takes half a minute


def _false(cell, draws, dtype):
    """A peer whose a² is 5 % too large: its error bar does not know."""
    honest = PEERS[0].prepare(cell, draws, dtype)
    return lambda seed: honest(seed) * [1.0, 1.05]


@pytest.mark.thorough
def test_a_false_peer_is_found_out():
    cell = Task(kernels.identity, 1.0, 1.0)
    false = Peer("false", "a² is too large", _false)
    slow = Peer("slow", "never done", PEERS[0].prepare)
    speed = {("false", "identity"): 1e8, ("slow", "identity"): 1.0}
    how = {"dtype": "float64", "budget": 0.05, "rounds": 3}
    found = target.timed(cell, 1e-3, [false, slow], speed, **how)
    assert found["peers"]["false"]["how"] == "wrong"
    assert found["peers"]["slow"]["how"] == "computed"
    assert found["peers"]["slow"]["seconds"] == pytest.approx(cell.plain_draws(1e-3))
    assert found["best"][0] == "slow"
    honest = target.timed(cell, 1e-3, [PEERS[0]], {("numpy", "identity"): 1e8}, **how)
    assert honest["peers"]["numpy"]["how"] == "measured"


def probe(job, value, what, alone=resources.probe):
    """The cold start in a process of its own, other jobs in this one."""
    if job == "cold":
        return alone(job, value, what)
    return {"job": job, "value": value, "what": what, **resources.measure_job(job, value)}


@pytest.fixture(scope="module")
def quick(tmp_path_factory):
    """A quick run: (report, folder, steps told)."""
    out, steps = tmp_path_factory.mktemp("bench"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(resources, "probe", probe)
        report = bench.run(
            quick=True, budget_seconds=BUDGET, out=out, progress=lambda *step: steps.append(step)
        )
    return report, out, steps


@SLOW
def test_quick_run_fills_every_section(quick):
    report, _, _ = quick
    sections = report.sections
    assert set(sections) == {
        "raw", "ceiling", "target", "adaptive", "theory", "users", "finite", "curves", "single",
        "cold", "memory", "scaling",
    }  # fmt: skip
    assert len(sections["users"]) == len(sections["curves"]) == 2
    assert len(sections["single"]) == len(sections["target"])
    assert {row["dtype"] for row in sections["raw"]} == {"float32", "float64"}
    assert len(sections["target"]) == len(reference(quick=True)) == 3
    assert {peer.name for peer in PEERS} <= set(report.peers)


@SLOW
def test_files_are_whole_and_name_no_place(quick):
    report, out, _ = quick
    assert {path.name for path in out.iterdir()} == {
        f"bench.{x}" for x in ("json", "txt", "svg", "png")
    }
    written = (out / "bench.json").read_text(encoding="utf-8")
    assert json.loads(written) == report.summary()
    assert (out / "bench.txt").read_text(encoding="utf-8") == report.text()
    assert (out / "bench.svg").read_bytes().startswith(b"<?xml")
    assert (out / "bench.png").read_bytes().startswith(b"\x89PNG")
    assert "$10^" not in (out / "bench.svg").read_text(encoding="utf-8")  # a formula as text
    for text in (written, report.text()):
        assert platform.node() not in text
        assert str(Path.home()) not in text
        assert sys.prefix not in text


@SLOW
def test_an_exact_law_that_is_off_is_not_claimed(monkeypatch):
    truth = finite.by_quad_vec
    monkeypatch.setattr(finite, "by_quad_vec", lambda *args, **law: truth(*args, **law) * 1.00001)
    assert not finite.timed(kernels.exp, 3, 2, 1)["agrees"]


@SLOW
def test_integrators_are_held_against_thirty_digits(quick):
    report, _, _ = quick
    for row in report.sections["users"]:
        assert row["within_bound"], row["kernel"]
        assert max(row["worst_error"].values()) < 1e-12, row["kernel"]


@pytest.mark.thorough
def test_bad_budgets_and_jobs_are_refused():
    with pytest.raises(InputError, match="budget_seconds"):
        bench.run(budget_seconds=0)
    with pytest.raises(InputError, match="could not be measured"):
        resources.probe("nothing", 1, "no such job")
