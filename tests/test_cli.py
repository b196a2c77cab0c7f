"""The command line's contract: one JSON value on stdout, exit codes, one-line errors."""

import io
import json
import math
import os
import signal
import subprocess
import sys
import threading
from dataclasses import MISSING, dataclass, fields, replace
from pathlib import Path
from typing import ClassVar

import numpy as np
import pytest
import sympy
import xarray

import sparsity
from sparsity import (
    Alibi,
    Decay,
    FloorLog,
    Needle,
    Row,
    ScalableSoftmax,
    SinkLogit,
    Window,
    cli,
    kernels,
    quantities,
)
from sparsity.cli.request import read_request
from sparsity.crosscheck import verify as crosscheck
from sparsity.limit import closed_form
from sparsity.rows import steps
from sparsity.rows.steps import parse

ROOT = Path(__file__).parents[1]
NAMES = [kernel.name for kernel in kernels.ALL]
KNOWN = [kernel.name for kernel in kernels.known()]
LISTED = [*KNOWN, *(each.name for each in kernels.MAPS)]
STEPS = steps.typed()
QUANTITIES = [quantity.name for quantity in quantities.ALL]
OFFERED = [
    *QUANTITIES,
    *(quantity.name for quantity in quantities.OF_MAPS),
    *(f"{family.name}:" for family in quantities.FAMILIES),
]
LAWS = [quantity.name for quantity in quantities.ALL if quantity.has_law]
SCORES = [kernel.name for kernel in kernels.ALL if kernel.law is kernels.Law.SCORE]


@pytest.fixture(autouse=True)
def place(tmp_path, monkeypatch):
    """Every command runs in an empty folder of its own."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def value_of(out):
    """The one JSON value on stdout; NaN and Infinity are not JSON."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    assert out.endswith("\n")
    assert out.count("\n") == 1
    return json.loads(out, parse_constant=refuse)


def answer(command, *arguments, code=0):
    found, out, err = command(*arguments, "--json")
    assert found == code, err
    assert "Traceback" not in err
    return value_of(out)


@pytest.fixture
def printed(command, monkeypatch):
    """A command's JSON value and its text: what the library says of one call is computed once."""

    def remembered(work):
        found = []

        def first(*arguments, **options):
            asked = arguments, {k: x for k, x in options.items() if k != "progress"}
            if asked not in [call for call, _ in found]:
                found.append((asked, work(*arguments, **options)))
            return next(value for call, value in found if call == asked)

        return first

    def run(*arguments):
        with monkeypatch.context() as patch:
            for name in ("estimate", "exact", "design", "verify"):
                patch.setattr(sparsity, name, remembered(getattr(sparsity, name)), raising=False)
            value = answer(command, *arguments)
            code, text, err = command(*arguments)
        assert (code, err) == (0, "")
        return value, text

    return run


def process(*arguments, options=()):
    """The command as a process of its own, from a folder that is not the checkout."""
    return subprocess.run(
        [sys.executable, *options, "-m", "sparsity", *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        timeout=120,
        check=False,
        env=os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"},
    )


# What the subcommands print.


def test_list(command):
    found = answer(command, "list")["kernels"]
    assert [kernel["name"] for kernel in found] == LISTED
    assert KNOWN[: len(NAMES)] == NAMES
    for kernel in found:
        assert {"name", "title", "weight", "parameters", "source"} <= set(kernel)
        known = [p.name for p in kernels.named(kernel["name"]).parameters]
        assert [p["name"] for p in kernel["parameters"]] == known
    code, out, err = command("list")
    assert (code, err) == (0, "")
    assert [line.split()[0] for line in out.splitlines()] == LISTED


@pytest.mark.parametrize("name", NAMES)
def test_derive(command, name):
    found = answer(command, "derive", name)
    keys = {"kernel", "weight", "first_moment", "second_moment", "S", "limits", "latex"}
    assert keys <= set(found)
    assert found["kernel"] == name
    assert found["limits"]
    for limit in found["limits"]:
        assert {"variable", "point", "condition", "value", "leading"} <= set(limit)
    code, text, err = command("derive", name)
    assert (code, err) == (0, "")
    assert text.startswith(name)
    assert command("derive", name, "--format", "text")[1] == text
    code, latex, err = command("derive", name, "--format", "latex")
    assert (code, err) == (0, "")
    assert latex.strip() == found["latex"].strip()
    assert latex.count(r"\begin") == latex.count(r"\end") >= 1
    assert latex.count("{") == latex.count("}")


def test_what_derive_prints_is_right(command):
    found = answer(command, "derive", "exp")
    gamma = sympy.Symbol("gamma")
    printed = sympy.parse_expr(found["S"], local_dict={"gamma": gamma})
    assert sympy.simplify(printed - sympy.exp(-(gamma**2) / 2)) == 0


EVALUATED = [  # (arguments, parameters, S, check value of n_eff)
    ("exp --gamma 2", {"beta": 0, "gamma": 2}, 0.1353352832366127, None),
    ("exp --beta 5 --gamma 2", {"beta": 5, "gamma": 2}, 0.1353352832366127, None),
    ("relu2 --beta 0 --gamma 3", {"beta": 0, "gamma": 3}, 6**-0.5, None),
    ("relu2 --beta -1 --gamma 0.5", {"beta": -1, "gamma": 0.5}, 0.07200634266702317, None),
    ("identity --beta=0 --gamma=1e3", {"beta": 0, "gamma": 1e3}, (2 / math.pi) ** 0.5, None),
    (
        "nonnegative --ratio 3 --dim 4 --query uniform",
        {"ratio": 3, "dim": 4, "query": "uniform"}, 3.25**-0.5, None,
    ),
    (
        "nonnegative --ratio 3 --dim 4 --query one-hot",
        {"ratio": 3, "dim": 4, "query": "one-hot"}, 10**-0.5, None,
    ),
    ("decayed --decay 0.5 --length 2", {"decay": 0.5, "length": 2}, 0.9**0.5, 1.8),
    ("decayed --decay 1 --length 1e12", {"decay": 1, "length": 10**12}, 1.0, 1e12),
    ("exp --gamma 1 --length 1", {"beta": 0, "gamma": 1}, math.exp(-0.5), 1.0),
    ("identity --beta 0 --gamma 1 --length 2", {"beta": 0, "gamma": 1}, (2 / math.pi) ** 0.5,
     1 + 2 / math.pi),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "parameters", "S", "n_eff"), EVALUATED)
def test_eval(command, arguments, parameters, S, n_eff):
    found = answer(command, "eval", *arguments.split())
    assert {"kernel", "params", "S", "log_S", "method", "error_bound"} <= set(found)
    assert found["kernel"] == arguments.split()[0]
    assert found["params"] == parameters
    assert found["S"] == pytest.approx(S, rel=1e-13)
    assert found["log_S"] == pytest.approx(math.log(S), abs=1e-13)
    assert found["method"] == "closed form"
    assert found["error_bound"] == pytest.approx(1e-13 * max(1, -math.log(S)), rel=1e-12)
    assert ("n_eff" in found) == ("n" in found) == ("S_rms" in found) == (n_eff is not None)
    if n_eff is not None:
        assert found["n"] == float(arguments.split()[-1])
        assert found["n_eff"] == pytest.approx(n_eff, rel=1e-9)
        assert found["S_rms"] == pytest.approx((n_eff / found["n"]) ** 0.5, rel=1e-9)
    code, text, err = command("eval", *arguments.split())
    assert (code, err) == (0, "")
    assert f"{found['S']:.6g}"[:7] in text


def test_eval_of_rows_names_each_quantity(command):
    """Three numbers that are not the same: the limit S, √(n_eff/n), and E S_n."""
    found = answer(command, "eval", "exp", "--gamma", 3, "--length", 1024)
    assert found["S"] == pytest.approx(math.exp(-4.5), rel=1e-13)
    assert found["S_rms"] == pytest.approx(0.11637, abs=5e-6)
    assert found["S_n"] == pytest.approx(0.10937, abs=5e-6)
    assert found["S_n_error_bound"] < 1e-9
    _, text, _ = command("eval", "exp", "--gamma", 3, "--length", 1024)
    assert "n = 1024" in text
    assert "E S_n  = 0.109366779" in text
    found = answer(command, "eval", "decayed", "--decay", 0.5, "--length", 2)
    assert found["S_n"] == found["S"]


@pytest.mark.parametrize("name", SCORES)
def test_eval_of_retention_rows(command, name):
    given = ["--beta", 0.5, "--gamma", 1, "--decay", 0.9, "--length", TOKENS]
    found = answer(command, "eval", name, *given)
    assert found["params"] == {"beta": 0.5, "gamma": 1, "decay": 0.9}
    assert found["n"] == TOKENS
    row = Row(name, beta=0.5, gamma=1.0, steps=(Decay(0.9),))
    decay = sparsity.evaluate("decayed", decay=0.9, length=TOKENS)
    score = sparsity.evaluate(name, beta=0.5, gamma=1)
    assert found["log_S"] == pytest.approx(float(decay.log_S + score.log_S), abs=1e-13)
    assert found["n_eff"] == float(sparsity.exact(row, length=TOKENS).value)
    assert found["S_n"] == float(sparsity.exact(row, length=TOKENS, of="S").value)
    code, text, err = command("eval", name, *given)
    assert (code, err) == (0, "")
    assert f"decay = 0.9, n = {TOKENS}" in text
    # What `estimate` takes, `eval` takes, of the same rows.
    sampled = answer(command, "estimate", name, *given)
    assert sampled["theory"]["value"] == found["n_eff"]
    assert abs(sampled["z"]) < 5
    of_S = answer(command, "estimate", name, *given, "--of", "S")
    assert of_S["theory"]["value"] == found["S_n"]


def test_eval_without_decay_is_eval_with_a_decay_of_one(command):
    rows = ["relu2", "--beta", -1, "--gamma", 1, "--length", 10**6]
    plain, one = (answer(command, "eval", *rows, *extra) for extra in ([], ["--decay", 1]))
    for name in ("S", "n_eff", "S_rms", "S_n"):
        assert one[name] == pytest.approx(plain[name], rel=1e-9)


def test_eval_where_s_underflows(command):
    found = answer(command, "eval", "exp", "--gamma", "1e3")
    assert found["S"] == 0
    assert found["log_S"] == -5e5


ESTIMATED = {"S", "stderr", "ci95", "samples", "ess", "method", "device", "seconds", "seed"}


@pytest.mark.parametrize(
    ("arguments", "method"),
    [
        ("relu2 --beta -1 --gamma 0.5", "scalar-stratified"),
        ("exp --beta 0 --gamma 0.5 --method plain", "scalar-plain"),
        ("decayed --decay 0.9 --length 50", "position-stratified"),
        ("identity --beta 1 --gamma 1 --dim 8", "full-keys"),
        ("nonnegative --ratio 0.5 --dim 4 --query uniform", "features-exp"),
    ],
)
def test_estimate(command, arguments, method):
    settings = ["--rel-error", "3e-3", "--max-samples", "1e6", "--seed", "7"]
    found = answer(command, "estimate", *arguments.split(), *settings)
    assert set(found) >= ESTIMATED
    assert (found["method"], found["seed"], found["dtype"]) == (method, 7, "float64")
    low, high = found["ci95"]
    assert 0 < low < found["S"] < high
    assert found["stderr"] <= 3e-3 * found["S"]
    own = [p.name for p in kernels.named(arguments.split()[0]).parameters]
    words = arguments.split()[1:]
    given = dict(zip([w.removeprefix("--") for w in words[::2]], words[1::2], strict=True))
    theory = answer(
        command, "eval", arguments.split()[0],
        *(word for name in own for word in (f"--{name}", given[name])),
    )  # fmt: skip
    assert abs(found["S"] - theory["S"]) < 5 * found["stderr"]
    assert found["trusted"]
    again = answer(command, "estimate", *arguments.split(), *settings)
    assert {k: v for k, v in again.items() if k != "seconds"} == {
        k: v for k, v in found.items() if k != "seconds"
    }


def test_estimate_of_rows(command):
    found = answer(
        command, "estimate", "relu2", "--beta", 2, "--gamma", 1, "--length", TOKENS,
        "--rel-error", "3e-3",
    )  # fmt: skip
    assert found["method"] == "rows"
    assert 1 <= found["value"] <= TOKENS
    assert found["quantity"] == "n_eff"
    assert "S" not in found


ASKED = [  # (arguments, what is shown, words of the definition, method of theory, value of theory)
    ("relu2 --beta -1 --gamma 0.5", "S", "E|a| / √(E a²), a = Max(0, s)**2", "closed form",
     0.07200634266702317),
    ("identity --beta 1 --gamma 1 --dim 8", "S", "E|a| / √(E a²), a = s", "closed form",
     (math.sqrt(2 / math.pi / math.e) + math.erf(0.5**0.5)) / 2**0.5),
    ("decayed --decay 0.5 --length 2", "S", "position", "closed form", 0.9**0.5),
    ("nonnegative --ratio 1 --dim 4 --query uniform", "S", "features", "closed form", 1.25**-0.5),
    ("identity --beta 0.5 --gamma 1 --length 64", "E S_n", "a_j = f(s_j), f = s,", "exact law",
     None),
    ("identity --beta 0 --gamma 1 --length 2 --dim 3", "E S_n", "‖a‖₁/(√n‖a‖₂)",
     "exact law", 4 / math.pi / 2**0.5),
    ("relu2 --beta 0 --gamma 1 --length 64 --decay 0.5", "E S_n", "λ^(n−j) f(s_j)",
     "exact law", None),
    pytest.param("identity --beta 0 --gamma 1 --length 2", "E S_n", "a_j = f(s_j), f = s,",
                 "exact law", 4 / math.pi / 2**0.5, marks=pytest.mark.slow),
    pytest.param("relu2 --beta 0 --gamma 1 --length 1 --decay 0.5", "E S_n", "λ^(n−j) f(s_j)",
                 "exact law", 1.0, marks=pytest.mark.slow),
    ("relu2 --beta -1 --gamma 1 --length 64", "E S_n", "not all zero", "exact law", None),
]  # fmt: skip


@pytest.mark.parametrize(("arguments", "shown", "words", "method", "value"), ASKED)
def test_an_estimate_says_of_what_and_shows_its_theory(
    printed, arguments, shown, words, method, value
):
    name, *given = arguments.split()
    found, text = printed("estimate", *arguments.split(), "--of", "S", "--rel-error", "3e-3")
    assert found["kernel"] == name
    assert found["quantity"] == "S"
    assert words in found["definition"]
    assert found["theory"]["method"] == method
    assert found["theory"]["error_bound"] < 1e-9
    if value is not None:
        assert found["theory"]["value"] == pytest.approx(value, rel=1e-11)
    # The number itself is estimated, and z is what separates the two.
    gap = math.log(found["S"] / found["theory"]["value"])
    assert abs(found["z"]) < 5
    assert found["z"] == pytest.approx(
        gap / math.hypot(found["rel_stderr"], found["theory"]["error_bound"]) if gap else 0,
        abs=1e-3,
    )
    options = dict(zip(given[::2], given[1::2], strict=True))
    assert found["n"] == (int(options["--length"]) if "--length" in options else None)
    head, line, definition, *_, theory = text.splitlines()
    assert head.startswith(f"{name} (")
    assert f"{shown} = {found['S']:.8g} ±" in line
    assert words in definition
    assert theory.startswith(f"theory: {shown} = {found['theory']['value']:.8g} ({method}")
    assert "z = " in theory


TOKENS = 64  # of drawn rows: those of one kernel and one length compile once
BOTH = ["exp --gamma 1", "relu2 --beta -1 --gamma 1", "identity --beta 0.5 --gamma 1"]
STEPS_TOO = [  # the command treats a window alike under every kernel
    pytest.param(f"{line} --step window:50", marks=[] if "relu2" in line else pytest.mark.slow)
    for line in BOTH
]


@pytest.mark.parametrize("arguments", [*BOTH, *STEPS_TOO])
def test_no_two_commands_give_two_numbers_one_name(command, printed, arguments):
    """The limit S is not what `estimate` samples at a length: both show E S_n, and agree on it."""
    line = [*arguments.split(), "--length", TOKENS]
    theory, one = printed("eval", *line)
    sampled, other = printed("estimate", *line, "--of", "S", "--rel-error", "3e-3")
    assert sampled["quantity"] == "S"
    assert sampled["theory"]["value"] == theory["S_n"]
    assert abs(sampled["value"] - theory["S_n"]) < 4.5 * sampled["stderr"]
    assert abs(sampled["z"]) < 4.5
    exact = answer(command, "exact", *line, "--of", "S")
    assert (exact["quantity"], exact["value"]) == ("S", theory["S_n"])
    (shown,) = [row for row in one.splitlines() if row.startswith("E S_n ")]
    value = float(shown.split("=")[1].split()[0])
    assert value == pytest.approx(theory["S_n"], rel=1e-11)
    assert f"theory: E S_n = {theory['S_n']:.8g} " in other
    assert not [row for row in other.splitlines() if row.strip().startswith("S ")]


def test_a_row_that_is_not_random_has_one_s(command):
    line = ["decayed", "--decay", 0.9, "--length", 50]
    theory, sampled = answer(command, "eval", *line), answer(command, "estimate", *line)
    assert sampled["quantity"] == "S"
    assert sampled["theory"]["value"] == theory["S"] == theory["S_n"]
    assert abs(sampled["z"]) < 4.5


STEPPED = (Alibi(0.01), Window(48), SinkLogit(4.0))
STEPPED_LINE = ["--step", "alibi:0.01", "--step", "window:48", "--step", "sink-logit:4"]


def stepped(of):
    """The steps of rows that have a quantity, and as they are typed."""
    if quantities.named(of).rank_law is not None:  # its law is that of rows without steps
        return (), []
    needle = quantities.named(of).needs == "needle"
    steps = (*STEPPED, Needle(6.0, 0.0, 9)) if needle else STEPPED
    return steps, [*STEPPED_LINE, *(["--step", "needle:6,0,9"] if needle else [])]


@pytest.mark.parametrize("of", LAWS)
def test_exact(command, of):
    steps, typed = stepped(of)
    row = Row("exp", gamma=2, steps=steps)
    law = sparsity.exact(row, length=[32, 4096], of=of)
    line = ["exp", "--gamma", 2, *typed, "--of", of]
    found = answer(command, "exact", *line, "--length", "32,4096")
    assert set(found) == {
        "kernel", "params", "steps", "n", "quantity", "value", "log_value", "error_bound", "method",
    }  # fmt: skip
    assert found["kernel"] == "exp"
    assert found["params"] == {"beta": 0, "gamma": 2}
    assert found["steps"] == typed[1::2]
    assert found["n"] == [32, 4096]
    assert found["value"] == law.value.tolist()
    assert found["log_value"] == law.log_value.tolist()
    assert found["error_bound"] == law.error_bound.tolist()
    assert max(found["error_bound"]) < 1e-9
    assert found["quantity"] == of
    one = answer(command, "exact", *line, "--length", 4096)
    assert one["n"] == 4096
    assert one["value"] == pytest.approx(found["value"][1], rel=1e-12)
    code, text, err = command("exact", *line, "--length", "32,4096")
    assert (code, err) == (0, "")
    assert f"{law.value[1]:.12g}" in text
    assert not steps or "alibi:0.01, window:48, sink-logit:4" in text


def test_exact_is_of_n_eff_by_default_and_of_decayed_too(command):
    found = answer(command, "exact", "decayed", "--decay", 0.5, "--length", 2)
    assert (found["quantity"], found["params"]) == ("n_eff", {"decay": 0.5})
    assert found["value"] == pytest.approx(1.8, rel=1e-13)
    rows = ["relu2", "--beta", 0, "--gamma", 1, "--decay", 0.5, "--length", 1]
    assert answer(command, "exact", *rows, "--of", "S")["value"] == pytest.approx(1, rel=1e-13)


LIKE_N_EFF = ("entropy", "max_weight", "hoyer")  # not of other rows, sinks or limits than n_eff


@pytest.mark.parametrize(
    "of",
    [pytest.param(of, marks=pytest.mark.slow) if of in LIKE_N_EFF else of for of in LAWS],
)
def test_an_estimate_of_any_quantity_of_a_row_holds_its_exact_law(command, printed, of):
    _, typed = stepped(of)
    line = ["relu2", "--beta", 0.5, "--gamma", 1, *typed, "--length", TOKENS, "--of", of]
    found, text = printed("estimate", *line, "--rel-error", "3e-3")
    known = answer(command, "exact", *line)
    assert found["quantity"] == known["quantity"]
    assert found["steps"] == known["steps"]
    assert found["theory"]["value"] == known["value"]
    assert abs(found["z"]) < 4.5
    assert ("S" in found) == (of == "S")
    shown = "E S_n" if of == "S" else of
    assert f"{shown} = {found['value']:.8g} ±" in text
    assert text.splitlines()[-1].startswith(f"theory: {shown} = {known['value']:.8g} ")


def test_eval_of_a_row_with_steps(command):
    row = Row("exp", gamma=2, steps=STEPPED)
    found = answer(command, "eval", "exp", "--gamma", 2, *STEPPED_LINE, "--length", 4096)
    assert found["log_S"] == pytest.approx(float(sparsity.evaluate(row, length=4096).log_S))
    assert found["n_eff"] == float(sparsity.exact(row, length=4096).value)
    assert found["S_n"] == float(sparsity.exact(row, length=4096, of="S").value)


def test_a_decay_is_the_step_decay(command):
    line = ["identity", "--beta", 1, "--gamma", 1, "--length", 30]
    one = answer(command, "exact", *line, "--decay", 0.9, "--step", "window:20")
    other = answer(command, "exact", *line, "--step", "decay:0.9", "--step", "window:20")
    assert one["value"] == other["value"]
    assert (one["params"]["decay"], one["steps"]) == (0.9, ["window:20"])
    assert other["steps"] == ["decay:0.9", "window:20"]


def test_sweep_of_a_row_and_of_quantities(command, place):
    found = answer(
        command, "sweep", "exp", "--gamma", "1,2", "--length", "32,4096", *STEPPED_LINE,
        "--of", "n_eff,S", "--out", "x.nc",
    )  # fmt: skip
    assert found["sizes"] == {"beta": 1, "gamma": 2, "length": 2}
    assert {"n_eff", "S"} <= set(found["variables"])
    with xarray.open_dataset(place / "x.nc") as data:
        for gamma in (1, 2):
            row = Row("exp", gamma=gamma, steps=STEPPED)
            for of in ("n_eff", "S"):
                cells = data[of].sel(gamma=gamma).values.ravel()
                law = sparsity.exact(row, length=[32, 4096], of=of)
                np.testing.assert_allclose(cells, law.value, rtol=1e-12)


@pytest.mark.parametrize(
    ("line", "steps", "name"),
    [
        ("exp --gamma 2 --step alibi:0.1 --free slope --n-eff 8", (Alibi,), "slope"),
        pytest.param("exp --gamma 2 --step window:9 --n-eff 3", (Window,), "gamma",
                     marks=pytest.mark.slow),  # γ is free by default below as well
        ("relu2 --gamma 1 --step window:50 --free beta --n-eff 3", (Window,), "beta"),
        (
            "exp --gamma 2 --step sink-logit:0 --free logit --of sink_mass --value 0.3",
            (SinkLogit,),
            "logit",
        ),
        ("exp --gamma 2 --step floor-log:0.1,64 --free slope --n-eff 8", (FloorLog,), "slope"),
        ("exp --gamma 2 --step temperature:ssmax --free scale --n-eff 8", (ScalableSoftmax,),
         "scale"),
        ("exp --step window:100 --of S --value 0.2", (Window,), "gamma"),
        pytest.param("exp --gamma 2 --step alibi:0.1 --free slope --of participation --value 0.2",
                     (Alibi,), "slope", marks=pytest.mark.slow),  # a slope, and --of, as above
    ],
)  # fmt: skip
def test_design_of_a_row(printed, line, steps, name):
    words = ["design", *line.split(), "--length", 1000]
    if name == "gamma" and "--gamma" in words:  # what is free is not held
        at = words.index("--gamma")
        del words[at : at + 2]
    found, text = printed(*words)
    assert found["parameter"] == name
    row = Row(found["kernel"], steps=tuple(map(parse, found["steps"])), **found["parameters"])
    assert tuple(map(type, row.steps)) == steps
    law = sparsity.exact(row, length=1000, of=found["quantity"])
    assert float(law.value) == pytest.approx(found["wanted"], rel=1e-9)
    assert found[found["quantity"]] == pytest.approx(found["wanted"], rel=1e-9)
    assert f"needs {name} = " in text


@pytest.mark.parametrize("name", ["eval", "exact", "estimate", "sweep", "design"])
def test_help_lists_every_step_with_its_fields(command, name):
    code, out, err = command(name, "--help")
    assert (code, err) == (0, "")
    words = "".join(out.split()).replace("-", "")
    for step, kind in STEPS.items():
        needed = [x.name.upper() for x in fields(kind) if x.default is MISSING]
        typed = step.replace("-", "") + (":" + ",".join(needed) if needed else "")
        assert typed in words
    for quantity in QUANTITIES if name != "eval" else ():
        assert quantity in out


def test_the_command_reads_the_tuples_of_now(command, monkeypatch):
    """A new kernel, step and quantity are there without a word of the command line's own."""

    @dataclass(frozen=True)
    class Halved:
        share: float
        name: ClassVar[str] = "halved"
        example: ClassVar[tuple] = (0.5,)

        def breaks(self, length):
            return np.empty(0)

        def __call__(self, tokens, length):
            return replace(tokens, gamma=tokens.gamma * self.share)

    cubed = sparsity.score_kernel("cubed", sympy.Max(sympy.Symbol("s"), 0) ** 3)
    total = replace(
        quantities.n_eff,
        name="total",
        title="tokens in all",
        of=lambda row: row.count + 0 * row.l1,
        integral=None,
    )
    monkeypatch.setattr(kernels, "ALL", (*kernels.ALL, cubed))
    monkeypatch.setattr(quantities, "ALL", (*quantities.ALL, total))
    every = (*steps.ALL, Halved)
    for reader in (steps.typed, steps.parse):
        monkeypatch.setattr(reader, "__defaults__", (every,))
    out = "".join(command("exact", "--help")[1].split())
    assert "halved:SHARE" in out
    assert "totaltokensinall" in out
    line = ["cubed", "--beta", 1, "--gamma", 2, "--length", 9]
    halved = answer(command, "exact", *line, "--step", "halved:0.5")
    row = Row(cubed, beta=1, gamma=1)
    assert halved["value"] == pytest.approx(float(sparsity.exact(row, length=9).value), rel=1e-9)
    assert answer(command, "estimate", *line, "--of", "total")["value"] == pytest.approx(9)


def test_an_estimate_without_theory_says_why(printed):
    found, text = printed("estimate", "exp", "--gamma", "1e4", "--length", TOKENS)
    assert (found["theory"], found["z"]) == (None, None)
    assert "theory: n_eff cannot be had: weight = exp(s)" in text.splitlines()[-1]


def test_an_estimate_that_cannot_be_trusted_says_so_on_stderr(command):
    arguments = ["estimate", "exp", "--gamma", "6", "--method", "plain", "--max-samples", "1e5"]
    code, out, err = command(*arguments, "--json")
    assert code == 0
    found = value_of(out)
    assert found["trusted"] is False
    assert found["warning"] in err
    assert err.splitlines()[-1].startswith("sparsity: warning: ")


def test_verify(command):
    found = answer(command, "verify", "decayed", "--seed", "3")
    keys = {"agree", "cells", "false_alarm_rate", "smallest_detectable", "disagreements"}
    assert keys <= set(found)
    assert found["agree"] is True
    assert found["disagreements"] == []
    assert found["cells"] == 35
    assert found["false_alarm_rate"] <= 1e-4
    assert found["smallest_detectable"] <= 1e-3
    assert found["seed"] == 3


def test_verify_exits_1_on_a_wrong_formula(command, monkeypatch):
    """λ^(2n) for λⁿ, planted in the closed form that the command itself uses."""

    def wrong(decay, length):
        return closed_form.decayed(decay, 2 * np.asarray(length))

    monkeypatch.setitem(closed_form.FORMS, kernels.decayed.weight, wrong)  # type: ignore[arg-type]
    found = answer(command, "verify", "decayed", code=1)
    assert found["agree"] is False
    # λ = 1 and n = 1 aside, where a factor 2 in n may change nothing.
    assert len(found["disagreements"]) >= 35
    wrong_cells = [cell for cell in found["disagreements"] if "route" in cell]
    assert {cell["verdict"] for cell in wrong_cells} == {"disagree"}
    assert max(abs(cell["z"] or math.inf) for cell in wrong_cells) > 100


def test_verify_of_a_row(printed):
    line = ["verify", "relu2", "--beta", 0.5, "--gamma", 1, "--length", TOKENS,
            "--step", "window:9", "--detectable", "1e-2"]  # fmt: skip
    found, text = printed(*line)
    assert found["agree"] is True
    assert (found["kernel"], found["steps"], found["n"]) == ("relu2", ["window:9"], TOKENS)
    assert found["cells"] >= 3
    assert found["smallest_detectable"] <= 1e-2
    assert text.startswith("relu2 (squared ReLU) at beta = 0.5, gamma = 1.0, window:9, n = 64")
    assert text.splitlines()[-1].startswith("AGREE: ")


def test_verify_as_text(command, monkeypatch):
    few = tuple(x for x in crosscheck.reference_grid.reference_grid(("decayed",)))[:3]
    monkeypatch.setattr(crosscheck.reference_grid, "reference_grid", lambda names: few)
    code, out, _ = command("verify", "decayed")
    assert code == 0
    assert "AGREE: 3 cells" in out


RECORDS = [
    {"source": "S", "claim": "c", "verdict": "refuted", "evidence": {"gap": math.nan, "n": 3}}
]


def test_claims(command, monkeypatch):
    """The records themselves are judged in test_ledger; here, how they are printed."""
    seeds = []

    def claims(**options):
        seeds.append(options["seed"])
        return RECORDS

    monkeypatch.setattr(sparsity, "claims", claims, raising=False)
    found = answer(command, "claims", "--seed", "5")
    assert found == [RECORDS[0] | {"evidence": {"gap": None, "n": 3}}]
    assert seeds == [5]


# Sweeps.


def test_sweep_writes_a_labelled_netcdf_file(command, place):
    found = answer(
        command, "sweep", "relu2", "--beta=-2,0,1.5", "--gamma", "0.1:10:5:log", "--out", "x.nc"
    )
    assert found["sizes"] == {"beta": 3, "gamma": 5}
    assert {"S", "log_S"} <= set(found["variables"])
    assert [path.name for path in place.iterdir()] == ["x.nc"]
    with xarray.open_dataset(place / "x.nc") as data:
        assert data.attrs["kernel"] == "relu2"
        assert data.S.dims == ("beta", "gamma")
        np.testing.assert_allclose(data.beta, [-2, 0, 1.5], rtol=0)
        np.testing.assert_allclose(data.gamma, np.geomspace(0.1, 10, 5), rtol=1e-15)
        checked = 0
        for beta in data.beta.values:
            for gamma in data.gamma.values:
                known = sparsity.evaluate("relu2", beta=beta, gamma=gamma)
                cell = data.sel(beta=beta, gamma=gamma)
                assert float(cell.S) == pytest.approx(float(known.S), rel=1e-14)
                assert float(cell.log_S) == pytest.approx(float(known.log_S), rel=1e-14)
                checked += 1
        assert checked == 15


@pytest.mark.parametrize(
    ("arguments", "sizes"),
    [
        ("exp --gamma 1:2:3", {"beta": 1, "gamma": 3}),
        ("exp --gamma 1,2 --length 1:1000:4:log", {"beta": 1, "gamma": 2, "length": 4}),
        ("identity --beta 0:1:2 --gamma 3", {"beta": 2, "gamma": 1}),
        (
            "nonnegative --ratio 1 --dim 1:100:3:log --query uniform,one-hot",
            {"ratio": 1, "dim": 3, "query": 2},
        ),
        ("decayed --decay 0.5:1:3 --length 1,10,100,1000", {"decay": 3, "length": 4}),
    ],
)
def test_sweep_of_every_kernel(command, place, arguments, sizes):
    found = answer(command, "sweep", *arguments.split(), "--out", "y.nc")
    assert found["sizes"] == sizes
    with xarray.open_dataset(place / "y.nc") as data:
        assert {str(name): int(data[name].size) for name in data.coords} == sizes
        S = data.S_limit if "n_eff" in data else data.S
        assert np.all((S > 0) & (S <= 1))
        corner = {name: data[name].values[-1] for name in S.dims}
        single = {str(name): at.item() for name, at in data.coords.items() if not at.ndim}
        single = {name: at for name, at in single.items() if name != "length"}
        known = sparsity.evaluate(arguments.split()[0], **corner, **single)
        assert float(S.sel(corner)) == pytest.approx(float(known.S), rel=1e-14)
        if "length" in sizes and "n_eff" in data:
            np.testing.assert_allclose(data.n_eff.sel(length=1), 1)
            assert np.all(data.n_eff <= data.length)
    code, text, _ = command("sweep", *arguments.split(), "--out", "y.nc")
    assert code == 0
    assert "y.nc" in text


# Bad input: exit 2, one line, nothing on stdout, nothing left behind.

FINE = {
    "exp": "--gamma 1",
    "relu2": "--beta 0 --gamma 1",
    "identity": "--beta 0 --gamma 1",
    "nonnegative": "--ratio 1 --dim 4 --query uniform",
    "decayed": "--decay 0.5 --length 10",
}
BAD = [  # (command line, what the line on stderr must say)
    # γ = −1 and γ = nan
    *((f"{verb} {name} {beta} --gamma {value}", ["gamma", value, shown])
      for verb in ("eval", "estimate")
      for name, beta in (("exp", ""), ("relu2", "--beta 0"), ("identity", "--beta 0"))
      for value, shown in (("-1", "> 0"), ("0", "> 0"), ("nan", "finite"), ("inf", "finite"),
                           ("abc", "number"))),
    ("eval relu2 --beta nan --gamma 1", ["beta", "nan", "finite"]),
    ("eval relu2 --beta 1e400 --gamma 1", ["beta", "1e400", "finite"]),
    ("eval relu2 --beta 0 --gamma=-1 --json", ["gamma", "-1", "> 0"]),
    # an unknown kernel
    *((f"{verb} {wrong} {rest}", ["kernel", wrong, f"did you mean {near}?"])
      for verb, rest in (("eval", "--gamma 1"), ("derive", ""), ("estimate", "--gamma 1"),
                         ("verify", ""), ("sweep", "--gamma 1 --out x.nc"))
      for wrong, near in (("relv2", "relu2"), ("exq", "exp"), ("identiy", "identity"),
                          ("decay", "decayed"), ("nonegative", "nonnegative"))),
    ("eval sparsify --gamma 1", ["kernel", "sparsify", f"the kernels are {', '.join(NAMES)}"]),
    # a sink
    *((f"design --length 100 --sink-mass 0.5 --gamma 1 --kernel {name}",
       ["kernel", name, "softmax logits"]) for name in ("relu2", "nope")),
    ("design --length 1000 --gamma 1 --sink-mass 1", ["mass = 1", "between 0 and 1"]),
    # λ
    *((f"{verb} decayed --decay {value} --length 10", ["decay", value, "(0, 1]"])
      for verb in ("eval", "estimate") for value in ("0", "1.5", "-0.5", "nan")),
    # n
    *((f"{verb} decayed --decay 0.5 --length {value}", ["length", value, shown])
      for verb in ("eval", "estimate")
      for value, shown in (("0", ">= 1"), ("-3", ">= 1"), ("2.5", "whole"), ("abc", "number"),
                           ("inf", "finite"))),
    *((f"{verb} exp --gamma 1 --length {value}", ["length", value, shown])
      for verb in ("eval", "estimate")
      for value, shown in (("0", ">= 1"), ("2.5", "whole"), ("nan", "finite"))),
    ("eval exp --gamma 1 --length 2e300", ["length", "2e300", "at most 2^53"]),
    # d, σ̃/μ̃ and the query family
    *((f"{verb} nonnegative --ratio 1 --dim {value} --query uniform", ["dim", value, shown])
      for verb in ("eval", "estimate")
      for value, shown in (("0", ">= 1"), ("-1", ">= 1"), ("2.5", "whole"))),
    ("estimate relu2 --beta 0 --gamma 1 --dim 0", ["dim", "0", ">= 1"]),
    ("eval nonnegative --ratio 0 --dim 4 --query uniform", ["ratio", "0", "> 0"]),
    ("eval nonnegative --ratio 1 --dim 4 --query unifrom", ["query", "unifrom", "uniform?"]),
    # missing where it matters
    *((f"{verb} {name} --gamma 1", ["beta", "missing", f"{name} needs"])
      for verb in ("eval", "estimate") for name in ("relu2", "identity")),
    ("sweep relu2 --gamma 1 --out x.nc", ["beta", "missing", "relu2 needs"]),
    ("eval exp", ["gamma", "missing"]),
    ("eval nonnegative --ratio 1 --dim 4", ["query", "missing"]),
    ("eval nonnegative --ratio 1 --query uniform", ["dim", "missing"]),
    ("eval nonnegative --dim 4 --query uniform", ["ratio", "missing"]),
    ("eval decayed --decay 0.5", ["length", "missing"]),
    ("eval decayed --length 5", ["decay", "missing"]),
    ("eval", ["KERNEL"]),
    ("sweep exp --gamma 1", ["--out"]),
    # an option that the kernel does not take
    *((f"eval {name} {FINE[name]} --{option} {value}", [option, value, "does not take it", name])
      for name in FINE
      for option, value in (("beta", "3"), ("gamma", "3"), ("decay", "0.25"), ("ratio", "3"),
                            ("dim", "3"), ("query", "one-hot"), ("length", "3"))
      if option not in FINE[name] and (name, option) != ("exp", "beta")
      and not (option in ("decay", "length") and name in ("exp", "relu2", "identity"))),
    *((f"eval {name} {FINE[name]} --decay 0.25", ["decay = 0.25", "give length as well"])
      for name in ("exp", "relu2", "identity")),
    ("eval exp --gamma 1 --decay 1.5 --length 8", ["decay = 1.5", "(0, 1]"]),
    ("sweep exp --gamma 1 --decay 0.5 --out x.nc", ["decay", "0.5", "does not take it"]),
    ("estimate exp --gamma 1 --ratio 3", ["ratio", "3", "does not take it"]),
    ("eval exp --gamma 1 --temperature 3", ["--temperature"]),
    # steps and quantities
    *((f"{verb} exp --gamma 1 --length 8 --step {step}", ["step", step, shown])
      for verb in ("eval", "exact", "estimate", "sweep --out x.nc", "design --n-eff 3")
      for step, shown in (("alibbi:1", "did you mean alibi?"), ("alibi:1,2", "alibi takes slope"),
                          ("alibi", "alibi takes slope"))),
    ("exact exp --gamma 1 --length 8 --step alibi:x", ["step = x", "alibi:NUMBER"]),
    ("exact exp --gamma 1 --length 8 --step alibi:-1", ["slope", "-1"]),
    ("exact exp --gamma 1 --length 8 --step window:2.5", ["size", "2.5"]),
    ("exact decayed --decay 0.5 --length 8 --step alibi:1", ["steps", "no scores"]),
    *((f"{verb} exp --gamma 1 --length 8 --of nef", ["of", "nef", "did you mean n_eff?"])
      for verb in ("exact", "estimate", "sweep --out x.nc")),
    ("exact exp --gamma 1 --length 8 --of sink_mass", ["no sink"]),
    ("estimate exp --gamma 1 --of n_eff", ["length", "missing", "rows of n"]),
    ("eval exp --gamma 1 --step window:4", ["length", "missing"]),
    ("exact exp --gamma 1", ["length", "missing"]),
    ("exact exp --gamma 1 --length 8,x", ["length = x", "number"]),
    ("exact exp --gamma 1 --length 8 --dim 4", ["dim = 4", "same in every dimension"]),
    ("exact nonnegative --ratio 1 --dim 4 --query uniform --length 8", ["length", "not take it"]),
    ("design exp --length 8 --n-eff 3 --free nope", ["free", "nope", "choose one of"]),
    ("design exp --length 8 --n-eff 3 --free slope", ["free", "slope", "0 steps"]),
    ("design decayed --length 8 --n-eff 3 --step alibi:1", ["step", "alibi:1", "no scores"]),
    ("design exp --length 8 --n-eff 3 --of S --value 0.5", ["n_eff", "give one of"]),
    ("design exp --length 8 --of S", ["value", "missing"]),
    ("design exp --kernel relu2 --length 8 --n-eff 3", ["kernel", "relu2", "one of them"]),
    # a malformed grid
    *((f"sweep relu2 --beta 0 --gamma {grid} --out x.nc", ["gamma", grid, shown])
      for grid, shown in (
          ("1:2", "start:stop:count"), ("1:2:3:4:5", "start:stop:count"), ("1:2:x", "whole number"),
          ("1:2:0", "whole number"), ("1:2:-4", "whole number"), ("1:2:2.5", "whole number"),
          ("1:2:3:lin", "log"), ("0:2:3:log", "> 0"), ("-1:2:3:log", "> 0"), ("1,,2", "empty"),
          ("1,x", "not a number"), ("a:2:3", "not a number"), ("1:nan:3", "not finite"),
          ("1:2:99999999999", "1000000"), (":::", ""))),
    ("sweep relu2 --beta 0 --gamma -1,1 --out x.nc", ["gamma = -1", "> 0"]),
    ("sweep relu2 --beta 0 --gamma -1:1:3 --out x.nc", ["gamma = -1", "> 0"]),
    ("sweep decayed --decay 0.5 --length 1,2.5 --out x.nc", ["length", "2.5", "whole"]),
    ("sweep nonnegative --ratio 1 --dim 4 --query uniform,dense --out x.nc", ["query", "dense"]),
    (f"sweep relu2 --beta 0:1:{10**4} --gamma 1:2:{10**4} --out x.nc", ["1000000"]),
    # numbers that only Python reads
    *((line.format(value), [name, value, "give a"])
      for value in ("1_0", "１", "٣", "0x10", "1e", "1e1_0")
      for name, line in (("gamma", "eval exp --gamma {}"),
                         ("length", "eval exp --gamma 1 --length {}"),
                         ("length", "design --n-eff 2 --length {}"), ("seed", "verify --seed {}"),
                         ("n_eff", "design --length 100 --n-eff {}"),
                         ("rel_error", "estimate exp --gamma 1 --rel-error {}"))),
    *((f"sweep relu2 --beta 0 --gamma {grid} --out x.nc", ["gamma", grid, shown])
      for grid, shown in (("1_0", "not a number"), ("1,٣", "not a number"),
                          ("1:２:3", "not a number"), ("1:2:٣", "whole number"),
                          ("1:2:1_0", "whole number"))),
    # whole numbers that float64 would move
    *((f"{verb} decayed --decay 0.5 --length {n}", ["length", n, "at most 2^53"])
      for verb in ("eval", "estimate") for n in ("9007199254740993", "9007199254740991.5")),
    ("eval exp --gamma 1 --length 9007199254740993", ["9007199254740993", "at most 2^53"]),
    ("design --length 9007199254740993 --n-eff 5", ["9007199254740993", "at most 2^53"]),
    ("eval nonnegative --ratio 1 --dim 9007199254740993 --query uniform", ["9007199254740993"]),
    *((f"sweep exp --gamma 1 --length {grid} --out x.nc", ["length", grid, "2^53"])
      for grid in ("9007199254740993", "1,9007199254740993", "1:9007199254740993:3")),
    # what is beyond float64 is one line, and no warning besides
    *((f"estimate {rest}", [shown]) for rest, shown in (
        ("exp --gamma 1e200", "weight = exp(s)"),
        ("exp --gamma 1e200 --length 8", "weight = exp(s)"),
        ("exp --gamma 1e200 --dim 8", "gamma = 1e+200"),
        ("identity --beta 1e300 --gamma 1e-300", "beta = 1e+300"),
        ("identity --beta 1e300 --gamma 1e300", "weight = s"))),
    ("design --length 100 --sink-mass 0.5 --gamma 1e300", ["weight = exp(s)"]),
    ("sweep exp --gamma -1e308:1e308:3 --out x.nc", ["gamma = -1e+308", "> 0"]),
    # the suffix says what is written
    *((f"sweep exp --gamma 1 --out {name}", ["out", name, "ends in .nc, .zarr or .csv"])
      for name in ("x", "x.h5", "x.nc.txt")),
    # the settings of sampling and of output
    ("derive exp --format html", ["format", "html", "text or latex"]),
    ("estimate exp --gamma 1 --seed x", ["seed", "x", "whole"]),
    ("estimate exp --gamma 1 --seed -1", ["seed", "-1", "0 to"]),
    ("estimate exp --gamma 1 --rel-error 0", ["rel_error", "0", "between 0 and 1"]),
    ("estimate exp --gamma 1 --rel-error x", ["rel_error", "x", "number"]),
    ("estimate exp --gamma 1 --max-samples nan", ["max_samples", "nan"]),
    ("estimate exp --gamma 1 --dtype int8", ["dtype", "int8", "float64"]),
    ("estimate exp --gamma 1 --method magic", ["method", "magic", "stratified"]),
    ("estimate exp --gamma 1 --decay 0.5", ["decay", "0.5", "length"]),
    ("verify --seed x", ["seed", "x", "whole"]),
    ("verify exp relu2 --gamma 1", ["gamma", "1", "one kernel"]),
    ("verify --step window:4", ["step", "window:4", "one kernel"]),
    ("verify exp --gamma 1 --detectable 2", ["detectable", "2", "between 0 and 1"]),
    ("claims --seed x", ["seed", "x", "whole"]),
    # an unwritable place: below a regular file, as permissions do not stop root
    ("sweep exp --gamma 1 --out {file}/x.nc", ["out", "{file}/x.nc", "choose another place"]),
    ("sweep exp --gamma 1 --out {file}/a/x.nc", ["out", "choose another place"]),
    ("sweep exp --gamma 1 --out missing/x.nc", ["out", "missing/x.nc", "choose another place"]),
    ("sweep exp --gamma 1 --out .", ["out", "folder"]),
    ("reproduce --out {file}", ["out", "{file}", "choose another place"]),
    ("reproduce --out {file}/figures --json", ["out", "choose another place"]),
    ("reproduce --seed x", ["seed", "x", "whole"]),
    ("reproduce --page --out {file}", ["out", "{file}/relu2.svg", "sparsity reproduce"]),
    ("reproduce --page --seed 3", ["seed", "3", "leave it out"]),
    # no such thing
    ("frobnicate", ["frobnicate"]),
]  # fmt: skip


def one_line(err):
    """The line a failed command leaves on stderr."""
    assert err.count("\n") == 1, err
    assert err.startswith("sparsity: ")
    assert err.endswith("\n")
    assert "Traceback" not in err
    assert len(err) < 300
    return err


@pytest.mark.parametrize(("line", "says"), BAD, ids=[line for line, _ in BAD])
def test_bad_input(command, place, line, says):
    plain = place / "plain-file"
    plain.write_text("not a folder")
    code, out, err = command(*line.format(file=plain.name).split())
    assert (code, out) == (2, "")
    message = one_line(err)
    for words in says:
        assert words.format(file=plain.name) in message
    assert [path.name for path in place.iterdir()] == ["plain-file"]
    assert plain.read_text() == "not a folder"


WARNED = ["estimate exp --gamma 1e200", "design --length 100 --n-eff 5 --beta 1e300",
          "estimate identity --beta 1e200 --gamma 1e200 --dim 4",
          "eval identity --beta 1e300 --gamma 1 --length 10"]  # fmt: skip


@pytest.mark.parametrize("line", WARNED)
def test_no_warning_is_printed_at_the_extremes(command, line):
    """Any that the command does not silence is an error here; below, one that it does."""
    code, _, err = command(*line.split())
    assert code in (0, 2)
    assert err == "" if code == 0 else one_line(err)


def test_python_still_shows_warnings_when_asked():
    code = (
        "import sys, warnings; sys.argv = ['sparsity', 'list']\n"
        "from sparsity import cli\n"
        "cli.list_.callback = lambda as_json: warnings.warn('overflow', RuntimeWarning)\n"
        "cli.main()\n"
    )
    for flags, seen in (([], False), (["-W", "always"], True)):
        found = subprocess.run(
            [sys.executable, *flags, "-c", code],
            capture_output=True, text=True, check=True, timeout=120,
            env=os.environ | {"PYTHONPATH": str(ROOT)},
        )  # fmt: skip
        assert ("overflow" in found.stderr) == seen


def test_the_largest_exact_length_is_taken(command):
    found = answer(command, "eval", "exp", "--gamma", 1, "--length", 2**53)
    assert found["n"] == 2**53
    found = answer(command, "eval", "decayed", "--decay", 0.5, "--length", "9.007199254740992e15")
    assert found["n"] == 2**53


def test_the_list_of_bad_input_is_complete():
    lines = [line for line, _ in BAD]
    assert len(lines) == len(set(lines)) >= 150
    commands = {line.split()[0] for line in lines}
    assert commands >= {
        "eval", "estimate", "derive", "verify", "claims", "sweep", "reproduce",
    }  # fmt: skip


def test_no_command_is_bad_input_of_one_short_line(command):
    code, out, err = command()
    assert (code, out) == (2, "")
    assert "--help" in one_line(err)


def test_an_empty_option_is_bad_input(command):
    code, out, err = command("eval", "relu2", "--beta", "", "--gamma", "1")
    assert (code, out) == (2, "")
    assert "beta" in one_line(err)


def test_control_characters_cannot_break_the_line(command):
    code, out, err = command("eval", "exp\nsecond line", "--gamma", "1")
    assert (code, out) == (2, "")
    assert "second line" in one_line(err)


def test_the_same_bad_input_leaves_an_older_file_alone(command, place):
    (place / "x.nc").write_bytes(b"older")
    assert command("sweep", "relu2", "--beta", "0", "--gamma", "1:2", "--out", "x.nc")[0] == 2
    assert (place / "x.nc").read_bytes() == b"older"
    assert [path.name for path in place.iterdir()] == ["x.nc"]


def test_interruption_exits_130(command, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(sparsity, "evaluate", stop, raising=False)
    code, out, err = command("eval", "exp", "--gamma", "1")
    assert (code, out) == (130, "")
    assert err.strip().startswith("sparsity: interrupted")
    assert "Traceback" not in err


LONG = [  # (command line, seconds until Ctrl-C)
    pytest.param("eval relu2 --beta 0 --gamma 1 --decay 0.99999 --length 3000000", 1.0,
                 marks=pytest.mark.slow),
    ("design --length 1000000000000 --n-eff 8", 0.1),
    ("sweep exp --gamma 0.1:10:3000 --length 1:1000000:300:log --out s.nc", 0.3),
]  # fmt: skip


@pytest.mark.parametrize(("line", "seconds"), LONG)
def test_ctrl_c_ends_a_long_evaluation(command, line, seconds, place):
    """In this process; `test_ctrl_c_is_neither_lost_nor_misread` is of others."""
    pressed = threading.Timer(seconds, os.kill, (os.getpid(), signal.SIGINT))
    pressed.start()
    try:
        code, out, err = command(*line.split())
    finally:
        early = pressed.is_alive()
        pressed.cancel()
    assert not early
    assert (code, out) == (130, "")
    assert one_line(err).startswith("sparsity: interrupted")
    assert list(place.iterdir()) == []


WHERE = {
    "in an import": "import pressing",
    "in the import of a compiled module": "import compiled",
    "in plain code": "press()",
}
PRESS = """
import signal, sys, time
from sparsity import cli
pressed = []
def press():
    if not pressed:
        pressed.append(1)
        signal.raise_signal(signal.SIGINT)
def command(as_json):
    {where}
    time.sleep(30)
cli.list_.callback = command
sys.argv = ["sparsity", "list"]
cli.main()
"""


@pytest.mark.parametrize("where", WHERE)
def test_ctrl_c_is_neither_lost_nor_misread(where, place):
    press = "import sys\nsys.modules['__main__'].press()\n"
    (place / "pressing.py").write_text(press)
    # As the initialisation of NumPy's does: what it meets in it is an ImportError.
    (place / "compiled.py").write_text(
        "try:\n    import pressing\nexcept BaseException:\n    raise ImportError from None\n"
    )
    (place / "here.py").write_text(PRESS.format(where=WHERE[where]))
    found = subprocess.run(
        [sys.executable, "-m", "here"],
        capture_output=True, text=True, check=False, timeout=20,
        env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{place}"},
    )  # fmt: skip
    assert found.returncode == 130
    assert one_line(found.stderr).startswith("sparsity: interrupted")
    assert found.stdout == ""


def test_a_kernel_without_closed_form_is_one_line(command, monkeypatch):
    from sparsity.kernels.symbols import s

    odd = replace(kernels.exp, name="odd", weight=sympy.tanh(s))
    monkeypatch.setattr(kernels, "ALL", (*kernels.ALL, odd))
    code, out, err = command("derive", "odd")
    assert (code, out) == (2, "")
    assert "no closed form" in one_line(err)


def test_help_and_version(command):
    subcommands = [
        "list",
        "derive",
        "eval",
        "exact",
        "estimate",
        "verify",
        "claims",
        "sweep",
        "reproduce",
    ]
    code, out, err = command("--help")
    assert (code, err) == (0, "")
    assert all(f"  {name} " in out for name in subcommands)
    for name in subcommands:
        code, out, err = command(name, "--help")
        assert (code, err) == (0, "")
        assert "--json" in out
    assert command("--version")[1].strip().endswith(sparsity.__version__)


# Links.


@pytest.mark.parametrize("line", ["sweep exp --gamma 1 --out {}", "reproduce --out {}"])
def test_a_loop_of_links_is_refused(command, place, line):
    (place / "loop.nc").symlink_to(place / "other.nc")
    (place / "other.nc").symlink_to("loop.nc")
    code, out, err = command(*line.format("loop.nc").split())
    assert (code, out) == (2, "")
    assert "out = loop.nc: cannot be written" in one_line(err)
    assert sorted(path.name for path in place.iterdir()) == ["loop.nc", "other.nc"]
    assert (place / "loop.nc").is_symlink()


def test_what_a_link_leads_to_is_written(command, place):
    (place / "data").mkdir()
    for target in ("old.nc", "new.nc"):
        link = place / f"to-{target}"
        link.symlink_to(place / "data" / target)
        if target == "old.nc":
            (place / "data" / target).write_bytes(b"older")
        answer(command, "sweep", "exp", "--gamma", 1, "--out", link.name)
        assert link.is_symlink()
        with xarray.open_dataset(place / "data" / target) as data:
            assert data.attrs["kernel"] == "exp"
    assert sorted(path.name for path in (place / "data").iterdir()) == ["new.nc", "old.nc"]
    gone = place / "gone.nc"
    gone.symlink_to(place / "no-folder" / "x.nc")
    code, out, err = command("sweep", "exp", "--gamma", 1, "--out", gone.name)
    assert (code, out) == (2, "")
    assert "choose another place" in one_line(err)
    assert gone.is_symlink()


# Completion in a shell.


def completed(command, monkeypatch, capsys, words, index):
    monkeypatch.setenv("_SPARSITY_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", words)
    monkeypatch.setenv("COMP_CWORD", str(index))
    code, out, err = command()
    assert (code, err) == (0, "")
    return [line.removeprefix("plain,") for line in out.splitlines()]


@pytest.mark.parametrize(
    ("words", "index", "offered"),
    [
        ("sparsity de", 1, ["derive", "design", "describe"]),
        ("sparsity eval r", 2, [name for name in LISTED if name.startswith("r")]),
        ("sparsity eval ", 2, LISTED),
        ("sparsity derive ", 2, KNOWN),
        ("sparsity verify exp de", 3, [name for name in KNOWN if name.startswith("de")]),
        ("sparsity design --kernel i", 3, [name for name in KNOWN if name.startswith("i")]),
        ("sparsity eval exp --gam", 3, ["--gamma", "--gamma2"]),
        ("sparsity eval nonnegative --query u", 4, ["uniform"]),
        ("sparsity exact exp --step sink", 4, [f"{x}:" for x in STEPS if x.startswith("sink")]),
        ("sparsity exact exp --of ", 4, OFFERED),
        ("sparsity sweep exp --of S,n_", 4, ["S,n_eff"]),
        ("sparsity exact exp --of S,n_", 4, [""]),
        ("sparsity completion ", 2, ["bash", "zsh", "fish"]),
        ("sparsity design exp --free s", 4, ["slope", "scale"]),
        ("sparsity design exp --free t", 4, ["trained"]),
        ("sparsity estimate exp --dtype float", 4, ["float64", "float32"]),
    ],
)
def test_the_shell_completes(command, monkeypatch, capsys, words, index, offered):
    assert completed(command, monkeypatch, capsys, words, index) == offered


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_for_the_shell(command, monkeypatch, shell):
    monkeypatch.setenv("_SPARSITY_COMPLETE", f"{shell}_source")
    code, out, err = command()
    assert (code, err) == (0, "")
    assert f"_SPARSITY_COMPLETE={shell}_complete" in out


def test_an_unknown_shell_is_bad_input(command, monkeypatch):
    monkeypatch.setenv("_SPARSITY_COMPLETE", "csh_source")
    code, out, err = command()
    assert (code, out) == (2, "")
    assert "_SPARSITY_COMPLETE = csh_source" in one_line(err)
    monkeypatch.setenv("_SPARSITY_COMPLETE", "")  # not asked for
    assert command("list")[0] == 0


# As processes.


def test_the_module_runs_as_a_process_and_evaluation_does_not_wait_for_jax(place):
    """Python itself tells on stderr what is imported; the command has nothing to say there."""
    line = ["eval", "relu2", "--beta", "-1", "--gamma", "0.5", "--json"]
    found = process(*line, options=["-X", "importtime"])
    assert found.returncode == 0
    told = found.stderr.splitlines()
    assert [each for each in told if not each.startswith("import time:")] == []
    assert value_of(found.stdout)["S"] == pytest.approx(0.07200634266702317, rel=1e-13)
    loaded = {each.rpartition("|")[2].strip() for each in told}
    assert not loaded & {"jax", "matplotlib", "xarray"}
    assert {"numpy", "sympy"} <= loaded  # the same look does see what is loaded on use
    found = process("eval", "relu2", "--beta", "-1", "--temperature", "3", "--json")
    assert (found.returncode, found.stdout) == (2, "")
    assert "--temperature" in one_line(found.stderr)  # read before anything heavy is loaded
    assert list(place.iterdir()) == []


def test_a_closed_pipe_is_not_an_error():
    running = subprocess.Popen(
        [sys.executable, "-m", "sparsity", "completion", "fish"],  # which loads nothing heavy
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    err = running.stderr.read().decode()
    running.stderr.close()
    assert running.wait(timeout=120) == 0
    assert err == ""


HEAVY = {"jax", "sympy", "numpy", "scipy", "matplotlib", "xarray", "click", "tqdm", "mpmath"}


def imported(code):
    """The heavy packages that a fresh interpreter has loaded after `code`."""
    script = f"import sys\n{code}\nprint(*sys.modules)"
    found = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )
    assert "Traceback" not in found.stderr
    return HEAVY & set(found.stdout.split())


def test_import_loads_nothing_heavy():
    assert imported("import sparsity; dir(sparsity)") == set()
    assert imported("import sparsity.cli") == {"click"}


def test_a_terminal_without_greek_is_served(monkeypatch):
    """Its stream is as Python makes it with PYTHONIOENCODING=ascii; nothing is lost on the way."""
    shown = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    line = "sparsity eval exp --gamma 1 --length 9"
    monkeypatch.setattr(sys, "argv", line.split())
    cli.main()
    lines = shown.buffer.getvalue().decode().splitlines()
    assert any(line.startswith("S      = 0.606530659713") for line in lines), lines
    assert "Δ" in "".join(lines)


def test_several_quantities_by_repeating_or_by_a_list(command, tmp_path):
    line = ("sweep", "exp", "--gamma", "1", "--length", "8", "--out", tmp_path / "a.nc", "--json")
    for of in (("--of", "S", "--of", "n_eff"), ("--of", "S,n_eff")):
        code, out, _ = command(*line, *of)
        assert code == 0
        assert {"S", "n_eff"} <= set(json.loads(out)["variables"])
    code, _, err = command("exact", "exp", "--gamma", "1", "--length", "8", "--of", "")
    assert code == 2
    assert err.startswith("sparsity: of is empty: ")


def test_the_definition_of_a_limit_names_the_law_of_the_scores_and_the_steps(command):
    """Of the S of long rows, and of another quantity of them, which needs no length."""
    typed = "exp --gamma 0.5 --scores uniform --step sink-logit:1"
    code, text, _ = command("eval", *typed.split(), "--of", "hoyer")
    assert code == 0
    assert "x uniform on [−√3, √3], steps uniform sink-logit:1" in text
    asked = read_request("exp", {"gamma": "0.5"}, ["uniform", "sink-logit:1"])
    assert "x uniform on [−√3, √3], steps uniform sink-logit:1" in asked.definition
