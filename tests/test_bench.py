"""The benchmark: its arithmetic on planted timings, its peers against the truth, one quick run."""

import importlib
import json
import math
import platform
import re
import sys
from pathlib import Path

import jax
import numpy as np
import pytest
import sympy
from scipy import stats

from benchmarks import bench
from benchmarks.bench import (
    adaptive,
    finite,
    resources,
    target,
    throughput,
    user_kernels,
    users,
    verdict,
)
from benchmarks.bench.grid import SCRAMBLES, Task, delta, reference
from benchmarks.bench.peers import Peer, available
from benchmarks.bench.timing import Paired, paired, ratio
from sparsity import InputError, estimate, kernels

PEERS = available()


@pytest.fixture(scope="module")
def easy():
    """Cells of the grid that plain draws answer soon."""
    return [cell for cell in reference() if cell.plain_draws(1e-2) < 1e6]


# --- timing ---------------------------------------------------------------------------------


class Clock:
    """Time that passes only when work says so."""

    def __init__(self):
        self.now = 0.0

    def __call__(self):
        return self.now

    def work(self, *seconds):
        def run(round_):
            self.now += seconds[round_ % len(seconds)]
            return round_

        return run


def test_the_ratio_comes_from_the_timings_given():
    clock = Clock()
    done = paired({"ours": clock.work(1, 2, 4), "peer": clock.work(3, 6, 12)}, 3, clock)
    assert done.seconds == {"ours": [1, 2, 4], "peer": [3, 6, 12]}
    assert ratio(done.seconds["peer"], done.seconds["ours"]) == 3  # the drift cancels
    assert done.results["ours"] == [0, 1, 2]


def test_contestants_take_turns_in_going_first():
    order = []
    contestants = {name: lambda _, name=name: order.append(name) for name in "ABC"}
    paired(contestants, 3)
    assert "".join(order) == "ABCBCACAB"


# --- the verdict ----------------------------------------------------------------------------


def row(cell, ours, peers, reached=True, rel_error=1e-3):
    """A row of time to target from seconds: peers as name -> (seconds, how)."""
    entries = {
        name: {"seconds": seconds, "how": how, "ratio": seconds / ours}
        for name, (seconds, how) in peers.items()
    }
    made = {
        "cell": cell, "rel_error": rel_error, "peers": entries,
        "ours": {"seconds": ours, "reached": reached},
    }  # fmt: skip
    return {**made, "best": target.best(made)}


def test_the_best_peer_counts_and_a_slow_one_does_not():
    rows = [row("a", 1.0, {"fast": (4.0, "measured"), "slow": (9.0, "measured")})]
    (found,) = verdict.to_target(rows)
    assert found["worst"] == {"ratio": 4.0, "cell": "a", "peer": "fast"}
    assert found["geometric_mean"] == pytest.approx(4.0)


def test_a_faster_peer_changes_the_verdict():
    slower = [row("a", 1.0, {"p": (400.0, "measured")}), row("b", 1.0, {"p": (100.0, "computed")})]
    (found,) = verdict.to_target(slower)
    assert found["geometric_mean"] == pytest.approx(200.0)
    assert found["geometric_mean_measured"] == pytest.approx(400.0)
    assert (found["cells"], found["measured_cells"], found["slower"]) == (2, 1, [])
    faster = [slower[0], row("b", 1.0, {"p": (0.5, "measured")})]
    (found,) = verdict.to_target(faster)
    assert found["worst"]["ratio"] == 0.5
    assert found["slower"] == ["b"]


def test_a_wrong_peer_does_not_count():
    rows = [row("a", 1.0, {"false": (0.01, "wrong"), "true": (5.0, "measured")})]
    (found,) = verdict.to_target(rows)
    assert found["worst"] == {"ratio": 5.0, "cell": "a", "peer": "true"}


def form(kernel, speed=1e8, checked=5e7):
    """A row of a closed form."""
    return {"kernel": kernel, "points_per_second": speed, "evaluate_points_per_second": checked}


def own(ratio, *, within=True, bound=2e-13, speed=1e5, quad=13.0, first=0.2):
    """A row of a user's kernel."""
    return {
        "ratio": ratio, "within_bound": within, "largest_bound": bound, "first_seconds": first,
        "points_per_second": {"sparsity": speed}, "ours_over": {"scipy.quad": quad},
    }  # fmt: skip


def law(curve=0.007, biases=0.3, agrees=True):
    """A row of an exact law."""
    return {"curve_seconds": curve, "biases_seconds": biases, "agrees": agrees}


def versus_vegas(ratio, reached=True):
    """A row of time to target beside vegas."""
    return {"rel_error": 1e-3, "ours": {"reached": reached}, "ratio": ratio}


@pytest.fixture(scope="module")
def planted():
    """Sections in which every claim is met."""
    rows = [row("a", 0.1, {"p": (100.0, "measured")}), row("b", 0.1, {"p": (20.0, "measured")})]
    forms = [form(name) for name in ("exp", "relu2", "identity")]
    return {
        "raw": [{"dtype": t, "ratio": 2.0, "wrong": []} for t in ("float32", "float64")],
        "target": rows,
        "adaptive": [versus_vegas(3.0), versus_vegas(0.9)],
        "theory": {
            "closed_forms": forms,
            "integrators": [{"name": "scipy.quad", "points_per_second": 5e3}],
        },
        "users": [own(3.0), own(2.0)],
        "finite": [law(), law(0.009)],
        "curves": [row("a", 0.1, {"p": (0.2, "measured")})],
        "memory": [{"peak_mib": 500.0}],
    }


def unmet(sections):
    return [claim["claim"] for claim in verdict.claims(sections) if not claim["met"]]


def test_claims_are_met_and_each_can_fail(planted):
    assert unmet(planted) == []
    forms = planted["theory"]["closed_forms"]
    slow_form = {**planted["theory"], "closed_forms": [form("exp", 1e6), *forms]}
    slow_check = {**planted["theory"], "closed_forms": [form("decayed", checked=1e7), *forms]}
    quad = {**planted["theory"], "integrators": [{"name": "scipy.quad", "points_per_second": 5e4}]}
    spoiled = {
        "raw float32": {"raw": [{"dtype": "float32", "ratio": 1.4, "wrong": []}]},
        "raw float64": {"raw": [{"dtype": "float64", "ratio": 2.0, "wrong": ["sparsity"]}]},
        "geometric mean": {"target": [row("a", 0.1, {"p": (9.0, "measured")})]},
        "worst cell": {"target": [row("a", 0.1, {"p": (0.05, "measured")})]},
        "slowest cell": {"target": [row("a", 1.5, {"p": (999.0, "measured")})]},
        "vegas's, geometric mean": {"adaptive": [versus_vegas(1.5), versus_vegas(0.5)]},
        "time to 0.001 over vegas's": {"adaptive": [versus_vegas(9.0, reached=False)]},
        "closed forms, points per second": {"theory": slow_form},
        "through evaluate": {"theory": slow_check},
        "closed forms over scipy.integrate.quad": {"theory": quad},
        "kernels of users": {"users": [own(2.0, speed=1e4)]},
        "the same over scipy.integrate.quad": {"users": [own(2.0, quad=9.0)]},
        "over the best integrator": {"users": [own(0.5)]},
        "first call": {"users": [own(2.0, first=1.1)]},
        "errors within bounds": {"users": [own(2.0, within=False)]},
        "kernels of users, points per second": {"users": [own(2.0, bound=2e-11)]},
        "a curve of lengths": {"finite": [law(), law(0.011)]},
        "many biases": {"finite": [law(biases=0.6)]},
        "exact law of many": {"finite": [law(agrees=False)]},
        "curves over": {"curves": [row("a", 0.1, {"p": (0.05, "measured")})]},
        "curves over the best": {"curves": [row("a", 0.1, {"p": (1, "measured")}, reached=False)]},
        "peak memory": {"memory": [{"peak_mib": 1025.0}]},
    }
    assert len(spoiled) == 22
    for part, change in spoiled.items():
        assert any(part in claim for claim in unmet({**planted, **change})), part


def test_what_ours_did_not_reach_is_not_claimed(planted):
    missed = {**planted, "target": [row("a", 0.1, {"p": (100.0, "measured")}, reached=False)]}
    assert len(unmet(missed)) == 4


# --- the peers ------------------------------------------------------------------------------


@pytest.mark.parametrize("peer", PEERS, ids=lambda peer: peer.name)
def test_peers_sample_the_truth_with_the_error_predicted(peer, easy):
    """Given the draws computed for 1e−2, the error bars found are 1e−2, and hold the truth."""
    squares, dof, z = 0.0, 0, []
    seeds = 1 if peer.name == "nt-loop" else 4  # at least 64 draws of 4096
    for cell in easy:
        needed = peer.draws(cell, 1e-2)
        for seed in range(seeds):
            batches = peer.prepare(cell, math.ceil(needed), "float64")(seed)
            log_S, error = delta(batches)
            z.append((log_S - cell.log_S) / error)
            if peer.name == "numpy" and needed > 2**14:  # draws close to those asked for
                squares += (error / 1e-2) ** 2 * (len(batches) - 1)
                dof += len(batches) - 1
    assert len(z) == seeds * len(easy) >= 12 * seeds
    limit = stats.t.isf(1e-6 / len(z), SCRAMBLES - 1 if peer.quasi else 63)
    assert max(map(abs, z)) < limit
    if dof:
        assert (
            stats.chi2.ppf(1e-6, dof) < squares * 0.98 < squares * 1.02 < stats.chi2.isf(1e-6, dof)
        )


def test_quasi_random_errors_are_those_of_stratified_sampling(easy):
    (peer,) = (peer for peer in PEERS if peer.quasi)
    checked = 0
    for cell in easy:
        log2_points = 10
        predicted = math.exp(cell.log_stratified_variance(log2_points) / 2)
        found = [
            delta(peer.prepare(cell, SCRAMBLES * 2**log2_points, "float64")(seed))[0] - cell.log_S
            for seed in range(24)
        ]
        actual = math.sqrt(SCRAMBLES * np.mean(np.square(found)))
        assert 0.5 < actual / predicted < 2, cell.label
        checked += 1
    assert checked >= 12


def _false(cell, draws, dtype):
    """A peer whose a² is 5 % too large: its error bar does not know."""
    honest = PEERS[0].prepare(cell, draws, dtype)
    return lambda seed: honest(seed) * [1.0, 1.05]


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


def row_beside_vegas(*runs):
    """The row of a cell from runs of vegas, ours to the target each time."""
    cell = Task(kernels.identity, 1.0, 1.0)
    ours = [estimate("identity", beta=1.0, gamma=1.0, rel_error=1e-2, seed=i) for i in range(2)]
    found = {
        throughput.OURS: ours,
        "vegas": [adaptive.Run(cell.log_S + off, *r) for off, *r in runs],
    }
    return adaptive.row(
        cell, 1e-2, Paired({throughput.OURS: [1.0, 1.0], "vegas": [4.0, 2.0]}, found)
    )


def test_a_run_of_vegas_that_contradicts_itself_or_the_truth_is_marked():
    honest = row_beside_vegas((0.001, 1e-3, 1.1, 0.4), (0.0, 1e-3, 0.3, 0.7))
    assert not honest["vegas"]["wrong"]
    assert not honest["vegas"]["contradicts_itself"]
    assert honest["ratio"] == 3
    assert honest["ours"]["reached"]
    assert honest["vegas"]["chance"] == 0.4
    restless = row_beside_vegas((0.0, 1e-3, 1.0, 0.4), (0.0, 1e-3, 9.0, 1e-9))
    assert restless["vegas"]["contradicts_itself"]
    assert not restless["vegas"]["wrong"]
    false = row_beside_vegas((0.01, 1e-3, 1.0, 0.4), (0.01, 1e-3, 1.0, 0.4))
    assert false["vegas"]["wrong"]
    marked = [line.count("!") for line in adaptive.text([honest, restless, false])]
    assert sum(marked[1:-1]) == 2
    assert "not installed" in "".join(adaptive.text([]))


def test_raw_rates_flag_a_false_peer():
    peers = [PEERS[0], Peer("false", "a² is too large", _false)]
    rows = [throughput.rates(cell, "float64", peers, 2**18, 1) for cell in throughput.CELLS]
    assert [row["cell"] for row in rows] == [cell.label for cell in throughput.CELLS]
    assert all("false" in row["wrong"] and row["best_peer"] == "numpy" for row in rows)


def test_draws_needed_are_exact_for_exp():
    """Var log S of exp: (e^γ² − 1) + (e^4γ² − 1)/4 − (e^2γ² − 1)."""
    for gamma in (0.5, 1.0, 3.0, 6.0):
        x = gamma**2
        exact = math.expm1(x) + math.expm1(4 * x) / 4 - math.expm1(2 * x)
        assert Task(kernels.exp, 0.0, gamma).variance == pytest.approx(exact, rel=1e-9)


# --- one quick run --------------------------------------------------------------------------

BUDGET = 0.02


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


def numbers(value, path=""):
    """Every number in nested sections, with its path."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield from numbers(item, f"{path}/{key}")
    elif isinstance(value, (list, tuple)):
        for i, item in enumerate(value):
            yield from numbers(item, f"{path}/{i}")
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, value


SIGNED = re.compile(r"log_S|worst_z|exponent|worst_error")


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
    found = list(numbers(sections))
    assert len(found) > 120
    for path, value in found:
        assert math.isfinite(value), path
        assert value > 0 or SIGNED.search(path), path


def test_what_is_too_long_is_computed_and_marked(quick):
    report, _, _ = quick
    marks = set()
    for row in report.sections["target"]:
        for name, peer in row["peers"].items():
            marks.add(peer["how"])
            long = peer.get("computed_seconds", peer["seconds"]) > BUDGET
            assert (peer["how"] == "computed") == long, (row["cell"], name)
    assert {"computed", "measured"} <= marks
    hard = next(row for row in report.sections["target"] if row["cell"] == "exp γ=4")
    assert min(peer["seconds"] for peer in hard["peers"].values()) > 1e18
    text = report.text()
    assert "*" in text
    assert "computed from the exact number of draws" in text


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


def test_progress_counts_to_the_end(quick):
    _, _, steps = quick
    assert [done for done, _ in steps] == list(range(1, len(steps) + 1))
    assert {total for _, total in steps} == {len(steps)}


def test_bad_budgets_and_jobs_are_refused():
    with pytest.raises(InputError, match="budget_seconds"):
        bench.run(budget_seconds=0)
    with pytest.raises(InputError, match="could not be measured"):
        resources.probe("nothing", 1, "no such job")


# --- kernels of users, curves ---------------------------------------------------------------


@pytest.mark.parametrize("kernel", user_kernels.KERNELS, ids=lambda kernel: kernel.name)
def test_a_users_kernel_is_the_same_three_times(kernel):
    s = np.linspace(-9, 9, 73)
    symbol = sympy.Symbol("s", real=True)
    truth = [float(kernel.expression(symbol).evalf(40, subs={symbol: x})) for x in s.tolist()]
    assert [kernel.scalar(x) for x in s.tolist()] == pytest.approx(truth, rel=1e-14, abs=1e-300)
    assert kernel.vector(s) == pytest.approx(truth, rel=1e-14, abs=1e-300)


def test_integrators_are_held_against_thirty_digits(quick):
    report, _, _ = quick
    for row in report.sections["users"]:
        assert row["within_bound"], row["kernel"]
        assert max(row["worst_error"].values()) < 1e-12, row["kernel"]


def test_the_exact_law_is_held_against_nested_quadrature(quick):
    report, _, _ = quick
    (found,) = report.sections["finite"]
    assert found["agrees"]
    assert found["difference"] < 1e-10
    rows = {kernel.name: finite.timed(kernel, 3, 2, 1) for kernel in finite.KERNELS[1:]}
    assert len(rows) == 2
    assert all(row["agrees"] for row in rows.values()), rows


def test_an_exact_law_that_is_off_is_not_claimed(monkeypatch):
    truth = finite.by_quad_vec
    monkeypatch.setattr(finite, "by_quad_vec", lambda *args, **law: truth(*args, **law) * 1.00001)
    assert not finite.timed(kernels.exp, 3, 2, 1)["agrees"]


def test_lengths_are_as_many_as_asked_for():
    for count in (2, 4, 60):
        found = finite.lengths(count)
        assert len(found) == count
        assert (found[0], found[-1]) == (4, 4096)
    with pytest.raises(ValueError, match="5000"):
        finite.lengths(5000)


def test_no_gamma_is_asked_twice():
    rounds = np.concatenate([users.gammas_of_round(60, number) for number in range(4)])
    assert len(np.unique(rounds)) == len(rounds)


def test_a_hard_curve_is_computed_and_an_easy_one_measured(quick):
    report, _, _ = quick
    easy, hard = report.sections["curves"]
    assert {peer["how"] for peer in easy["peers"].values()} <= {"measured", "computed"}
    assert {peer["how"] for peer in hard["peers"].values()} == {"computed"}
    assert all(row["ours"]["reached"] for row in report.sections["curves"])
    assert easy["ours"]["rel_stderr"] <= 1.02 * easy["rel_error"]


# --- the scripts ----------------------------------------------------------------------------


def test_generators_give_the_known_answers():
    """Random123's kat_vectors, and the bits of JAX's own threefry."""
    generators = importlib.import_module("benchmarks.generators")

    def words(*values):
        return tuple(np.array([value], "uint32") for value in values)

    pi = (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344, 0xA4093822, 0x299F31D0)
    for rounds, answer in ((13, [0xBA3E4725, 0xF27D669E]), (20, [0xC4923A9C, 0x483DF7A0])):
        found = generators.threefry(words(*pi[2:4]), words(*pi[:2]), rounds)
        assert [int(x[0]) for x in found] == answer
    found = generators.philox(words(*pi[4:]), words(*pi[:4]), 10)
    assert [int(x[0]) for x in found] == [0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1]
    key = jax.random.key(3, impl="threefry2x32")
    written_out = generators.rekeyed(key, generators.NAMED["threefry2x32 written out, JAX's bits"])

    @jax.jit  # one program each
    def bits(key):
        return [jax.random.bits(key, (3, 4099), kind) for kind in ("uint32", "uint64")]

    for theirs, ours in zip(bits(key), bits(written_out), strict=True):
        assert np.array_equal(theirs, ours)


def test_threefry_written_out_changes_no_batch():
    """Another lowering of the same generator: the estimate is the same in every bit."""
    rekeyed = importlib.import_module("benchmarks.rekeyed")
    sampler, arguments = rekeyed.rows(64, "float32")
    jaxs, ours = (
        rekeyed.drawn(sampler, arguments, rekeyed.NAMED[name], 1, 7)
        for name in ("threefry2x32", "threefry2x32 written out, JAX's bits")
    )
    assert np.array_equal(jaxs, ours)


def test_every_generator_of_ours_draws_distinct_words():
    generators = importlib.import_module("benchmarks.generators")
    ours = [generator for generator in generators.ALL if generator.words is not None]
    assert len(ours) == 9

    @jax.jit  # one program for all
    def drawn(key):
        key = jax.random.fold_in(key, 5)
        return [jax.random.bits(generators.rekeyed(key, g), (10_007,), "uint32") for g in ours]

    words = drawn(jax.random.key(11, impl="threefry2x32"))
    for generator, word in zip(ours, words, strict=True):
        assert len(np.unique(word)) >= 10_005, generator.name


# --- the accelerator's script ---------------------------------------------------------------


@pytest.fixture(scope="module")
def gpu():
    return importlib.import_module("benchmarks.gpu")


def test_gpu_rates_count_what_was_drawn(gpu):
    words = gpu.threefry(32)(2.0**18)
    assert words >= 2**18
    for work in (gpu.scalar("float32"), gpu.full_keys("float32", 64), gpu.rows("float32", 64)):
        assert work(2.0**16) >= 2**16
    assert gpu.rate(lambda size: size, 0.01) > 0


def test_parts_of_sampled_keys_are_timed_with_their_bytes():
    (found,) = importlib.import_module("benchmarks.gpu_keys").rows((64,), (2**11,), 0.001)
    assert found["keys"] == 32
    assert min(found[part] for part in ("normals", "scores", "all")) > 0
    # The moments of 32 scores of each key are read and written on top of its 64 normals.
    assert found["all_bytes"] > found["scores_bytes"] + 2 * 4 * 32 / 64


def test_gpu_judges_by_theory(gpu):
    estimate = next(iter(gpu.correctness(quick=True)))
    assert not estimate["wrong"]
    found = gpu.estimators.plain(
        kernels.identity, {"beta": 0.0, "gamma": 1.0}, gpu.Sampling(1e-3, dtype="float64")
    )
    truth = 0.5 * math.log(2 / math.pi)
    assert not gpu.judged("right", "float64", found, truth)["wrong"]
    assert gpu.judged("planted", "float64", found, truth + 1e-2)["wrong"]
