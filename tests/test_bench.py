"""The benchmark: a false peer is found out, and one quick run fills every section."""

import importlib
import json
import math
import platform
import sys
from pathlib import Path

import pytest

from benchmarks import bench
from benchmarks.bench import finite, resources, target, throughput
from benchmarks.bench.grid import Task, reference
from benchmarks.bench.peers import Peer, available
from sparsity import InputError, kernels

PEERS = available()
BUDGET = 0.02

SLOW = pytest.mark.slow  # a quick run of everything takes half a minute, a GPU's parts seconds


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


@pytest.mark.slow
def test_raw_rates_flag_a_false_peer():
    peers = [PEERS[0], Peer("false", "a² is too large", _false)]
    rows = [throughput.rates(cell, "float64", peers, 2**16, 1) for cell in throughput.CELLS]
    assert [row["cell"] for row in rows] == [cell.label for cell in throughput.CELLS]
    assert all("false" in row["wrong"] and row["best_peer"] == "numpy" for row in rows)


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
def test_the_exact_law_is_held_against_nested_quadrature(quick):
    report, _, _ = quick
    (found,) = report.sections["finite"]
    assert found["agrees"]
    assert found["difference"] < 1e-10
    rows = {kernel.name: finite.timed(kernel, 3, 2, 1) for kernel in finite.KERNELS[1:]}
    assert len(rows) == 2
    assert all(row["agrees"] for row in rows.values()), rows


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


@pytest.fixture(scope="module")
def gpu():
    return importlib.import_module("benchmarks.gpu")


@SLOW
def test_gpu_rates_count_what_was_drawn(gpu):
    words = gpu.threefry(32)(2.0**18)
    assert words >= 2**18
    for work in (gpu.scalar("float32"), gpu.full_keys("float32", 64), gpu.rows("float32", 64)):
        assert work(2.0**16) >= 2**16
    assert gpu.rate(lambda size: size, 0.01) > 0


@SLOW
def test_gpu_judges_by_theory(gpu):
    estimate = next(iter(gpu.correctness(quick=True)))
    assert not estimate["wrong"]
    found = gpu.estimators.plain(
        kernels.identity, {"beta": 0.0, "gamma": 1.0}, gpu.Sampling(1e-3, dtype="float64")
    )
    truth = 0.5 * math.log(2 / math.pi)
    assert not gpu.judged("right", "float64", found, truth)["wrong"]
    assert gpu.judged("planted", "float64", found, truth + 1e-2)["wrong"]
