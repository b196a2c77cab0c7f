"""The experiments: tiny ones run, and go on when cut short; their parts are what they say."""

import csv
import functools
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import numpy as np
import pytest

from experiments import frame, recall, sinks, statistics, temperature, training
from experiments.__main__ import ALL
from experiments.weights import FEATURES, row_weights
from sparsity import kernels
from sparsity.kernels.lowering import numpy_weight

HOME = Path(__file__).parents[1]
NAMES = [experiment.name for experiment in ALL]


def table(folder, name):
    with (folder / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


@functools.cache
def tiny(name, folder):
    """Run a tiny experiment once for all tests."""
    (experiment,) = (each for each in ALL if each.name == name)
    return experiment, frame.run(experiment, folder, tiny=True)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("experiments")


# --- runs ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_a_tiny_one_writes_its_table_figure_and_page(name, folder):
    experiment, records = tiny(name, folder)
    cells = experiment.cells(experiment.tiny)
    written = table(folder, name)
    assert len(written) == len(records) >= len(cells) >= 2
    assert list(written[0]) == list(records[0])
    page = (folder / f"{name}.md").read_text("utf-8")
    prediction = (frame.PREDICTIONS / f"{name}.md").read_text("utf-8").strip()
    assert prediction in page
    assert "refute" in prediction
    assert "ontrol" in page
    assert (folder / f"{name}.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("name", NAMES)
def test_one_that_was_cut_short_ends_with_the_same_results(name, folder, tmp_path, monkeypatch):
    experiment, _ = tiny(name, folder)
    first, *others = (folder / f"{name}.jsonl").read_text("utf-8").splitlines(keepends=True)
    # Killed in the midst of writing its second cell.
    (tmp_path / f"{name}.jsonl").write_text(first + others[0][:40], "utf-8")
    ran = []

    def run(settings, cell):
        ran.append(cell)
        return experiment.run(settings, cell)

    again = frame.Experiment(**(vars(experiment) | {"run": run}))
    frame.run(again, tmp_path, tiny=True)
    assert ran == experiment.cells(experiment.tiny)[1:]
    for suffix in ("csv", "png"):
        name_of = f"{name}.{suffix}"
        assert (tmp_path / name_of).read_bytes() == (folder / name_of).read_bytes()


def test_cells_of_other_settings_are_run_anew(folder, tmp_path):
    experiment, _ = tiny("temperature", folder)
    lines = (folder / "temperature.jsonl").read_text("utf-8").splitlines()
    other = [json.loads(line) for line in lines]
    for line in other:
        line["settings"]["steps"] += 1
        for record in line["records"]:
            record["accuracy"] = -1.0  # which would be seen
    text = "".join(json.dumps(line) + "\n" for line in other)
    (tmp_path / "temperature.jsonl").write_text(text, "utf-8")
    assert all(each["accuracy"] >= 0 for each in frame.run(experiment, tmp_path, tiny=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_one_that_is_killed_goes_on(name, folder, tmp_path):
    tiny(name, folder)
    command = [sys.executable, "-m", "experiments", name, "--tiny", "--out", str(tmp_path)]
    with subprocess.Popen(command, cwd=HOME, stderr=subprocess.DEVNULL) as process:
        log = tmp_path / f"{name}.jsonl"
        while not (log.is_file() and log.read_text("utf-8")):
            assert process.poll() is None, "it ended before it could be killed"
            time.sleep(0.01)
        os.kill(process.pid, signal.SIGKILL)
    assert not (tmp_path / f"{name}.csv").exists()
    subprocess.run(command, cwd=HOME, check=True, capture_output=True)
    whole = tmp_path / "whole"
    subprocess.run([*command[:-1], str(whole)], cwd=HOME, check=True, capture_output=True)
    assert (whole / f"{name}.csv").read_bytes() == (tmp_path / f"{name}.csv").read_bytes()


MINUTES = re.compile(r"^[\d.]+ minutes on .*$", re.MULTILINE)


def not_the_same(folder, committed, name):
    """What of the results of a run is not as committed, the minutes and the device apart."""
    found = []
    for one, other in zip(table(folder, name), table(committed, name), strict=True):
        found += [f"{column}: {value}" for column, value in one.items() if value != other[column]]
    one, other = (
        MINUTES.sub("", (x / f"{name}.md").read_text("utf-8")) for x in (folder, committed)
    )
    differing = zip(one.splitlines(), other.splitlines(), strict=True)
    return found + [mine for mine, theirs in differing if mine != theirs]


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_committed_results_come_again(name, tmp_path):
    """The command gives every digit of the committed table and page again.

    It holds on a processor like that of the committed run: another one rounds otherwise, and
    hundreds of steps of training make more of it. So do the settings of this suite (float64, XLA
    that optimises less), which the command is run without.
    """
    own = ("JAX_ENABLE_X64", "NPROC", "XLA_FLAGS")
    settings = {key: value for key, value in os.environ.items() if key not in own}
    command = [sys.executable, "-m", "experiments", name, "--out", str(tmp_path)]
    subprocess.run(command, cwd=HOME, env=settings, check=True, capture_output=True)
    assert not_the_same(tmp_path, HOME / "experiments" / "results", name) == []


def test_a_digit_that_is_not_the_same_is_seen(folder, tmp_path):
    tiny("sinks", folder)
    for suffix in ("csv", "md"):
        shutil.copy(folder / f"sinks.{suffix}", tmp_path)
    page = tmp_path / "sinks.md"
    page.write_text(MINUTES.sub("9.9 minutes on gpu with JAX 9", page.read_text("utf-8")), "utf-8")
    assert not_the_same(folder, tmp_path, "sinks") == []
    wrong = table(tmp_path, "sinks")[0]["logit"]
    text = (tmp_path / "sinks.csv").read_text("utf-8")
    (tmp_path / "sinks.csv").write_text(text.replace(wrong, wrong[:-1] + "x", 1), "utf-8")
    assert not_the_same(folder, tmp_path, "sinks") == [f"logit: {wrong}"]
    page.write_text(page.read_text("utf-8").replace("Held", "**Failed**", 1), "utf-8")
    assert len(not_the_same(folder, tmp_path, "sinks")) == 2


# --- parts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*recall.MAPS, "entmax1.5"])
def test_weights_are_those_of_the_library(name):
    s = np.random.default_rng(0).normal(0.3, 1.5, size=(4, 24))
    if name == FEATURES:
        s = np.abs(s)
    found = np.asarray(row_weights(name, jax.numpy.asarray(s)))
    known = None if name == FEATURES else kernels.named(name)
    if known is None:
        right = s / s.sum(-1, keepdims=True)
    elif isinstance(known, kernels.RowMap):
        right = known.weights(s)
    else:
        f = numpy_weight(known)(s)
        right = f / np.abs(np.expm1(s) if name == "softpick" else f).sum(-1, keepdims=True)
    np.testing.assert_allclose(found, right, rtol=1e-4, atol=1e-7)


@pytest.mark.parametrize("name", ["sparsemax", "entmax1.5", "topk:8"])
def test_gradients_of_maps_are_those_of_small_steps(name):
    rng = np.random.default_rng(1)
    s, along = rng.normal(0, 1.5, size=(2, 24))
    by = rng.normal(size=24)

    def read(scores):
        return (row_weights(name, scores) * by).sum()

    slope = float(jax.grad(read)(jax.numpy.asarray(s)) @ along)
    step = 1e-6
    finite = float(read(jax.numpy.asarray(s + step * along)) - read(s - step * along)) / (2 * step)
    assert slope == pytest.approx(finite, rel=1e-5)
    assert abs(slope) > 1e-3


def test_adam_finds_the_least_squares_of_each_model():
    rng = np.random.default_rng(2)
    wanted = np.array([1.0, -2.0, 3.0], np.float32)
    x = rng.normal(size=(3, 400, 8)).astype(np.float32)
    found, ended = training.train(
        lambda p, batch, fixed: ((p * batch - fixed * batch) ** 2).mean(),
        np.zeros(3, np.float32),
        np.full(3, 0.1, np.float32),
        x,
        wanted,
    )
    np.testing.assert_allclose(found, wanted, atol=1e-3)
    assert np.all(np.asarray(ended) < 1e-4)
    assert training.best_of([3.0, np.nan, 2.0, 1.0], (0.1, 0.2)) == [0, 3]


def test_intervals_hold_what_was_planted():
    rng = np.random.default_rng(3)
    x = np.repeat(np.arange(6.0), 3)
    found = statistics.slope(x, 1.5 * x + rng.normal(0, 0.1, 18))
    assert found.low < 1.5 < found.high < 1.6
    tied = statistics.rank_correlation(x, x**3)
    assert tied.value == pytest.approx(1)
    none = statistics.rank_correlation(rng.normal(size=200), rng.normal(size=200))
    assert none.low < 0 < none.high


@pytest.mark.parametrize(
    ("slope", "said"), [(1.0, "1.00 (1.00 to 1.00)"), (0.5, "0.50 (0.50 to 0.50)")]
)
def test_the_verdict_on_sinks_tells_a_logit_that_grows_slower(slope, said):
    records = [
        {
            **{"noise_from": -1.0, "head": head, "length": n, "seed": seed, "gamma": 0.1},
            **{
                "logit": slope * np.log(n) + 5,
                "raw_logit": 3 + 0.01 * seed,
                "odds": 5 + 0.01 * seed,
            },
            **{"law": np.log(n) + 5, "error": 0.1, "leak": 0.1, "leak_without_first": 1.0},
            "first_mass": 0.99,
        }
        for head in sinks.WITH_SINK
        for n in (8, 32, 128)
        for seed in range(3)
    ]
    judged = sinks.judge(records)
    assert all(f"| {head} | {said} |" in judged for head in sinks.WITH_SINK)


def test_the_factor_of_bounded_scores_keeps_n_eff_and_that_of_gaussian_ones_does_not():
    rng = np.random.default_rng(4)
    found = {}
    for length in (16, 1024):
        s = 5 * 12**0.5 * rng.random((4000, length))  # γ = 5, where n_eff is 2.561 at n = 16
        for rule, factor in temperature.factors(length, 2.561).items():
            with np.errstate(invalid="ignore"):
                a = np.exp(np.nan_to_num((s - s.max(-1, keepdims=True)) * factor))
            found[rule, length] = (a.sum(-1) ** 2 / (a * a).sum(-1)).mean()
    assert found["constant n_eff, bounded", 1024] == pytest.approx(2.565, abs=0.1)
    assert found["as trained", 16] == pytest.approx(2.561, abs=0.1)
    assert found["constant n_eff, Gaussian", 1024] > 10
