"""Some 800 cheap numbers of the theory, for a test: `python -m benchmarks.few_numbers [GROUP]`.

A question is a call, a kernel, what it is given and a quantity. They are spread over all kernels,
maps, steps, laws of scores and quantities, and their ends: rows of 1, 2 and 10⁹ tokens, γ from 1e-3
to 12, weights that are nearly always 0. The answers go to `tests/data/numbers.jsonl`, those of a
group behind what is there; what is refused, slow or not resolved is left out, and printed.
`few_numbers_check` holds the table against what is computed without the library.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, fields
from itertools import cycle
from pathlib import Path
from typing import Any

import numpy as np

import sparsity
from benchmarks.numbers_stand import SCORE_KERNELS
from sparsity import kernels
from sparsity.kernels.numeric.boxes import ComplexBox
from sparsity.kernels.numeric.definition import Definition
from sparsity.kernels.numeric.intervals import Interval
from sparsity.kernels.numeric.points import Approx
from sparsity.rows import rope_scaling, score_laws, steps

FILE = Path(__file__).parents[1] / "tests/data/numbers.jsonl"
SLOW, MOST = 0.06, 0.45  # CPU seconds of a question; of one of the few that take longer
PLACES = ((0.5, 1.5), (-2.0, 0.7), (0.0, 1e-3), (3.0, 2.0), (0.0, 12.0), (1.0, 0.25))  # (β, γ)
RARE = ((-9.0, 1.0), (-30.0, 0.9), (-300.0, 2.0), (-5.0, 0.4))  # where ReLU is nearly always 0
LAWS = ("uniform", "t:5", "mixture:0.3,1,0.5;0.7,-0.2,1")
PAIRS = (*("overlap:0.5", "overlap:-0.3", "overlap:0", "overlap:1", "overlap:-1"),
         *("top_k_overlap:4,0.5", "top_k_overlap:2,-0.4", "top_k_overlap:3,1"),
         *("top_k_overlap:3,0", "top_k_overlap:3,-1", "top_k_overlap:40,-1"))  # fmt: skip
QUANTITIES = (
    *("S", "n_eff", "participation", "entropy", "kl_uniform", "varentropy", "max_weight", "gini"),
    *("hoyer", "support", "square_sum", "abs_sum", "top_k_mass:4", "keys_for_mass:0.9"),
    *("power_sum:3", "power_sum:0.5", "weight:1", "weight:3", "below:-2", "mass_below:-2"),
    *("tiles_below:-1,2", "tiles_mass_below:-1,2"),
)
FORMULAS = (
    *("1 - exp(-exp(s))", "s/(exp(s) - 1)", "sqrt(1 + s**2) - s", "sin(s)/s", "erfc(s)", "atan(s)"),
    *(
        "floor(10*s/7) + 0.5",
        "(1 + s**2)**0.4",
        "1 + 1000*exp(-1e4*(s - 1.2345)**2)",
        "log(abs(s))",
    ),
    *("min(max(s + 1/3, 0), 2)", "where(s > 1, s, exp(s))", "1 - cos(s)", "sign(s - 0.2)*s**2"),
    *("sinh(s)**3 - s", "exp(s)*(1 + sin(s)/2)", "1/(1 + s**2)", "log(1 + s**2)/cosh(s)"),
)
OF_MAP = {  # what a family of maps is given
    "router": {"gamma": 1.2, "rho": 0.4},
    "block-router": {"gamma": 1.2, "within": 0.4},
    "tile-softmax": {"gamma": 1.2, "within": 0.4},
    "forgetting": {"gamma": 1.2, "gate": 1.0, "gate_spread": 0.5},
    "differential": {"gamma": 1.2, "gamma2": 0.7, "rho": 0.3, "mix": 0.4},
    "performer": {"gamma": 1.2, "sigma": 0.5, "features": 3, "dim": 2},
}
MAPS = (
    *(
        "sparsemax",
        "topk:2",
        "stick-breaking",
        "entmax1.5",
        "entmax:1.25",
        "router:2",
        "router:2,1",
    ),
    *("router:1,1,0.5", "block-router:1,2", "block-router:1,2,1", "tile-softmax:2", "forgetting"),
    *("differential", "performer"),
)
OF_LIMITS = ("S", "n_eff", "participation", "entropy", "kl_uniform", "hoyer", "power_sum:3",
             "power_sum:0.5")  # fmt: skip
RANKS = (*("max_weight", "gini", "top_k_mass:4", "keys_for_mass:0.9", "below:-2", "mass_below:-2"),
         *("tiles_below:-1,2", "tiles_mass_below:-1,2"))  # fmt: skip
RANKED = ((0.0, 1.5), (0.5, 0.6), (0.0, 3.0), (-1.0, 1.0), (0.0, 0.2))
LONG = ("alibi:0.001", "decay:0.999", "sink-logit:6", "sink:9,1", "window:300", "log-n:64")
OF_STEPS = (
    *("n_eff", "S", "entropy", "participation", "sink_mass", "power_sum:3", "varentropy"),
    *("square_sum", "abs_sum", "weight:1", "kl_uniform", "hoyer", "sink_mass_above:0.3"),
)
OF_NEEDLES = ("needle_mass", "needle_signal", "needle_largest", "needle_odds_above:1",
              "needle_snr_above:1", "needle_recall:3", "n_eff", "entropy")  # fmt: skip
MORE_STEPS = (
    *("window:8,2", "chunk:4", "alibi:0.5", "decay:0.5", "sink:3,0.5", "sink:-1", "sink-logit:-3"),
    *("scalable-softmax:1,0.5", "qk-norm:16,2", "qk-norm:4", "soft-cap:0.5", "soft-cap:30"),
    *("log-n:4,2", "floor-log:0.1,3,1", "length-bias:-0.5", "gate:0.25", "longrope:8,16"),
    *("needle:4,1,5", "needle-above:2,0.5", "yarn:16", "scale-invariant:1"),
)
TOGETHER = (
    *(
        ("window:16", "sink-logit:1"),
        ("sink:2,0.5", "alibi:0.1"),
        ("decay:0.9", "sink:1", "gate:0.5"),
    ),
    *(("sink:2", "window:9"), ("alibi:0.05", "sink-logit:2"), ("log-n:8", "sink:3,1")),
    *(("sink:1", "sink:4,0.3"), ("decay:0.8", "window:6,1"), ("sink-logit:0", "sink-logit:1")),
    *(
        ("length-bias:-1", "sink:2"),
        ("scalable-softmax:0.4", "decay:0.95"),
        ("alibi:0.2", "chunk:5"),
    ),
)
SPARSE = ("relu", "relu2", "relu3", "softpick", "threshold", "max(s - 1, 0)")

KNOWN = {step.name: step for step in steps.ALL}

KERNELS = (*SCORE_KERNELS[:-1], "max(s - 1, 0)")

Question = dict[str, Any]


def limits() -> Iterator[Question]:
    """Limits of long rows."""
    places, of = cycle(PLACES), cycle(OF_LIMITS)
    for kernel in KERNELS:
        for _ in range(4):
            beta, gamma = next(places)
            yield question("evaluate", kernel, next(of), length=1024, beta=beta, gamma=gamma)
    for gamma in (1.5, 0.5):
        yield question("evaluate", "differential", "S", gamma=gamma, gamma2=0.6, rho=0.3, mix=0.4)
        yield question("evaluate", "performer", "S", gamma=gamma, sigma=0.7, features=64, dim=16)
    for n in (1, 50, 10**5):
        yield question(
            "evaluate", "forgetting", "S", gamma=1.2, gate=2.0, gate_spread=0.5, length=n
        )
    for asked in ("S", "n_eff", "entropy", "participation", "sink_mass", "power_sum:3"):
        for step in LONG:
            for kernel in ("exp", "softplus"):
                yield question("evaluate", kernel, asked, [step], length=10**6, gamma=1.5, beta=0.3)
    for ratio, dim in ((0.5, 8), (2.0, 64)):
        for query in ("uniform", "one-hot", "half-normal"):
            yield question("evaluate", "nonnegative", "S", ratio=ratio, dim=dim, query=query)
    for decay in (0.5, 0.99, 1.0):
        for asked in ("S", "n_eff", "participation"):
            yield question("exact", "decayed", asked, decay=decay, length=[1, 2, 17, 10**6])


def rows() -> Iterator[Question]:
    """Exact laws of rows without steps."""
    places, of = cycle(PLACES), cycle(QUANTITIES)
    for kernel in KERNELS:
        for length in ([1, 2, 3], [17, 1024], [10**9], [40]):
            beta, gamma = next(places)
            yield question("exact", kernel, next(of), length=length, beta=beta, gamma=gamma)
    for kernel in SPARSE:
        for beta, gamma in RARE:
            for length in ([1, 2, 30], [10**6]):
                yield question("exact", kernel, next(of), length=length, beta=beta, gamma=gamma)
    laws = cycle(LAWS)
    for kernel in ("exp", "relu2", "softplus", "identity", "sigmoid", "max(s - 1, 0)"):
        for asked in ("S", "n_eff", "entropy", "power_sum:3", "abs_sum", "square_sum"):
            for call, length in (("exact", [1, 2, 30]), ("evaluate", 99)):
                yield question(call, kernel, asked, length=length, gamma=1.2, beta=0.5,
                               scores=next(laws))  # fmt: skip


def ranks_and_maps() -> Iterator[Question]:
    """Laws by ranks, of pairs, needles, and maps of rows: a few, as they take longer."""
    kernels, places = (
        cycle(("exp", "relu2", "exp", "identity", "power4", "relu", "abs")),
        cycle(RANKED),
    )
    for of in RANKS:
        for length in ([1, 2, 3], [9], [200], [10**6]):
            beta, gamma = next(places)
            yield question("exact", next(kernels), of, length=length, beta=beta, gamma=gamma)
        # A row of one token has no spread under this rule.
        yield question("exact", "exp", of, ["scalable-softmax:0.4"], length=[1, 4], gamma=1.2)
    for of in PAIRS:
        for gamma in (1.5, 0.4):
            yield question("evaluate", "exp", of, length=64, gamma=gamma)
        yield question("exact", "exp", of, length=[1, 2, 3], gamma=1.5)
        yield question("exact", "exp", of, length=[64], gamma=0.8)
    for step in (["needle", [4.0, 0.0, 5]], ["needle", [2.0, 1.0]], ["needle-above", [3.0]]):
        for of in OF_NEEDLES:
            for length in ([6], [40]):
                yield question("exact", "exp", of, [step], length=length, gamma=1.2)
    for step in ("sink-logit:1", "sink:2,0.5"):
        for of in ("sink_mass_above:0.3", "sink_mass"):
            yield question("exact", "exp", of, [step], length=[6], gamma=1.2)
    for kernel in ("sparsemax", "entmax1.5"):
        for of in ("S", "n_eff", "participation", "max_weight", "hoyer", "support"):
            for gamma, length in ((1.5, [1, 2]), (0.4, [9]), (3.0, [100])):
                yield question("exact", kernel, of, length=length, gamma=gamma)
    for kernel in ("topk:3", "topk:8"):
        for of in (*OF_LIMITS[:8], "support", "varentropy"):
            yield question("exact", kernel, of, length=[2, 9, 64], gamma=1.5)
    for of in ("S", "n_eff", "participation", "abs_sum", "recall"):
        for rho, length in ((0.6, [2, 3]), (1.0, [3, 40]), (0.0, [9])):
            yield question("exact", "router:3", of, length=length, gamma=1.2, rho=rho)
    for of in ("S", "n_eff", "abs_sum", "recall"):
        yield question("exact", "block-router:2,4", of, length=[8, 16], gamma=1.2, within=0.4)
    for of in RANKS[4:]:
        for within, length in ((0.5, [3, 16]), (0.0, [7]), (1.0, [6])):
            yield question("exact", "tile-softmax:2", of, length=length, gamma=1.2, within=within)


def tokens() -> Iterator[Question]:
    """Exact laws of rows with steps."""
    kernels = cycle(("exp", "relu2", "exp", "softplus", "sigmoid", "exp", "identity"))
    of, sparse = cycle(OF_STEPS), cycle(RARE)
    alone = [[step.name, list(step.example)] for step in steps.ALL]
    for together in [
        *([x] for x in (*alone, *map(typed, MORE_STEPS))),
        *([*map(typed, x)] for x in TOGETHER),
    ]:
        if together[0][0].startswith("needle"):  # `ranks_and_maps` has them
            continue
        for length in ([1, 2, 3], [2, 40], [5], [200]):
            given = {"length": length, "beta": 0.3, "gamma": 1.2}
            yield question("exact", next(kernels), next(of), together, **given)
    for step in ("window:5", "sink:2,0.5", "alibi:0.2", "decay:0.7", "sink-logit:-40", "chunk:3"):
        for kernel in SPARSE[:4]:
            beta, gamma = next(sparse)
            yield question(
                "exact", kernel, next(of), [step], length=[2, 12], beta=beta, gamma=gamma
            )


def definitions() -> Iterator[Question]:
    """Kernels at points, on segments and on boxes, with their errors; weights of maps."""
    for kernel in (*KERNELS, *FORMULAS):
        for scale in (1e-3, 1.0, 12.0):
            yield question("definition", kernel, "", scale=scale)
    for kernel in FORMULAS:
        for beta, gamma in ((0.3, 1.1), (-0.5, 4.0)):
            yield question("evaluate", kernel, "S", beta=beta, gamma=gamma)
    for kernel in MAPS:
        for n in (1, 6):
            yield question("weights", kernel, "", length=n)


def others() -> Iterator[Question]:
    """Regimes, largest logits, sinks that are asked for, capacities, angles of scaled RoPE."""
    for n in (2, 64, 10**6):
        for gamma in (0.5, 2.0, 8.0):
            yield question("regime", "", "", length=n, gamma=gamma)
            yield question("largest_logit", "", "", length=n, gamma=gamma, beta=0.5, rows=3)
    for mass in (0.1, 0.5, 0.9):
        for kernel in ("exp", "softplus"):
            yield question("sink_logit", kernel, "", mass=mass, length=[16, 4096], gamma=2.0)
    for kernel in ("exp", "relu2", "power4", "softplus"):
        yield question("needle_capacity", kernel, "", dim=16, query=2.0)
    for name, own in (("Linear", [8.0]), ("Ntk", [8.0]), ("DynamicNtk", [8.0, 512]),
                      ("Yarn", [8.0, 512]), ("Yarn", [40.0, 4096, 16.0, 2.0]),
                      ("Llama3", [8.0, 8192]), ("Llama3", [32.0, 64, 1.5, 3.0])):  # fmt: skip
        for dim, base in ((8, 10000.0), (64, 500.0), (2, 10.0)):
            for n in (100, 5000):
                yield question(f"{name}Scaling", "", "", own=own, dim=dim, base=base, length=n)


def typed(text: str) -> list[Any]:
    step: Any = steps.parse(text)
    return [step.name, [getattr(step, x.name) for x in fields(step)]]


def _frozen(value: Any) -> Any:
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def question(call: str, kernel: str, of: str, stepped: Any = (), **given: Any) -> Question:
    return {
        "call": call,
        "kernel": kernel,
        "of": of,
        "steps": [x if isinstance(x, list) else typed(x) for x in stepped],
        "given": given,
    }


def _at_points(kernel: Any, scale: float) -> tuple[np.ndarray, np.ndarray]:
    """Return what is said of a kernel's values, and of their errors and phases."""
    at = scale * np.linspace(-2.1, 2.3, 6)
    definition, half = Definition(kernel), 0.03 * scale
    found = definition.values_at(0.0, Approx(at))
    segments = Interval.between(at - half, at + half)
    low, high, taken = definition.bounds_on_segments(0.0, segments, False)
    box = ComplexBox(at - half, at + half, np.full(6, -half), np.full(6, half))
    least, most, angle = definition.bounds_on_boxes(0.0, box, taken, False)
    return np.ravel([found.log, low, high, least, most]), np.ravel([found.error, angle])


def _of_map(kernel: Any, n: int) -> np.ndarray:
    """Return what a map makes of two rows of numbers that look random."""
    drawn, own = kernel.drawn, OF_MAP.get(kernel.family, {})
    if drawn is None:
        of: Any = 1.7 * np.sin(np.arange(1, 2 * n + 1) ** 2.0).reshape(2, n)
    else:
        token, row = drawn.token(own), drawn.row(own)
        z = 1.7 * np.sin(np.arange(1, 2 * n * token + 1) ** 2.0).reshape(2, n, token)
        of = drawn.read(z, np.cos(np.arange(1, 2 * row + 1) ** 2.0).reshape(2, row), **own)
    made = (kernel.weights, kernel.residual_mass, kernel.unnormalised, kernel.reads_top)
    return np.concatenate([np.ravel(x(of)) for x in made if x is not None])


def ask(asked: Question) -> tuple[np.ndarray, Any]:
    """Return the numbers of a question, and their error bounds where they have some."""
    given, call = dict(asked["given"]), asked["call"]
    if call.endswith("Scaling"):
        angles = getattr(rope_scaling, call)(*given.pop("own")).angles
        return angles(given["dim"], given["base"], given["length"]), None
    if call == "definition":
        with np.errstate(all="ignore"):
            return _at_points(kernels.named(asked["kernel"]), given["scale"])
    if call == "weights":
        name = asked["kernel"]
        return _of_map(kernels.named(name), given["length"]), None
    if call in ("regime", "largest_logit", "needle_capacity"):
        first = [asked["kernel"]] if asked["kernel"] else []
        found = getattr(sparsity, call)(*first, **given)
        numbers = found._asdict() if hasattr(found, "_asdict") else asdict(found)
        return np.array([x for x in numbers.values() if isinstance(x, (int, float))], float), None
    if call == "sink_logit":
        return sparsity.sink_logit(given.pop("mass"), asked["kernel"], **given), None
    # The kernel's own numbers are its row's, but of what is evaluated without steps.
    length = {"length": given.pop("length")} if "length" in given else {}
    if "scores" in given:
        given["scores"] = score_laws.parse(given["scores"])
    stepped = tuple(KNOWN[name](*map(_frozen, own)) for name, own in asked["steps"])
    found = getattr(sparsity, call)(
        asked["kernel"], of=asked["of"], steps=stepped, **length, **given
    )
    with np.errstate(divide="ignore"):
        more = np.log(found.p_nonzero) if call == "exact" else ()
    return np.append(found.log_value, more), np.ravel(found.error_bound)


def load() -> list[Question]:
    return [json.loads(line) for line in FILE.read_text("utf-8").splitlines()]


def answered(group: Callable[[], Iterator[Question]]) -> Iterator[Question]:
    """Yield the questions of a group with their answers; say which are left out, and why."""
    most = MOST if group in (ranks_and_maps, definitions) else SLOW
    loosest = 1e-4 if group is ranks_and_maps else 1e-10
    for asked in group():
        start, reason = time.process_time(), ""
        try:
            values, bounds = ask(asked)
            if time.process_time() - start > most:  # if it is not what all begin with
                start = time.process_time()
                ask(asked)
        except (sparsity.InputError, sparsity.NoClosedForm, sparsity.TooFine) as error:
            print(json.dumps(asked), error)
            continue
        seconds = time.process_time() - start
        if not np.isfinite(values).any():
            reason = "no number"
        elif group is not definitions and bounds is not None and bounds.max() > loosest:
            reason = f"bounds {bounds}"
        elif seconds > most:
            reason = f"{seconds:.2f} s"
        if reason:
            print(json.dumps(asked), reason)
        else:
            asked["values"] = [float(f"{x:.14g}") for x in values]
            asked["bounds"] = None if bounds is None else [float(f"{x:.3g}") for x in bounds]
            yield asked


def main() -> None:
    groups = (limits, rows, ranks_and_maps, tokens, definitions, others)
    chosen = [x for x in groups if x.__name__ in sys.argv[1:]] or groups
    with FILE.open("a" if sys.argv[1:] else "w", encoding="utf-8") as file:
        for group in chosen:
            for asked in answered(group):
                print(json.dumps(asked), file=file)


if __name__ == "__main__":
    main()
