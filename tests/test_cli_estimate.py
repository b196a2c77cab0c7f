"""The commands estimate, verify and claims: what is sampled, beside its theory."""

import math

import numpy as np
import pytest
from command_line import LAWS, TOKENS, answer, stepped, value_of

import sparsity
from sparsity import kernels
from sparsity.crosscheck import verify as crosscheck
from sparsity.limit import closed_form

pytestmark = pytest.mark.usefixtures("place")

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
    ("relu2 --beta -1 --gamma 0.5", "S", "E|a| / √(E a²), a = max(s, 0)²", "closed form",
     0.07200634266702317),
    ("decayed --decay 0.5 --length 2", "S", "position", "closed form", 0.9**0.5),
    ("nonnegative --ratio 1 --dim 4 --query uniform", "S", "features", "closed form", 1.25**-0.5),
    ("identity --beta 0.5 --gamma 1 --length 64", "E S_n", "a_j = f(s_j), f = s,", "exact law",
     None),
    ("relu2 --beta 0 --gamma 1 --length 64 --decay 0.5", "E S_n", "λ^(n−j) f(s_j)",
     "exact law", None),
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
    assert head.startswith((f"{name} (", f"{name} at "))  # a title that says no more is left out
    assert f"{shown} = {found['S']:.8g} ±" in line
    assert words in definition
    assert theory.startswith(f"theory: {shown} = {found['theory']['value']:.8g} ({method}")
    assert "z = " in theory


BOTH = ["exp --gamma 1", "relu2 --beta -1 --gamma 1", "identity --beta 0.5 --gamma 1"]


@pytest.mark.parametrize("arguments", [*BOTH, f"{BOTH[1]} --step window:50"])
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


# Of no other rows, sinks or limits than n_eff, or than needle_mass.
LIKE_OTHERS = (
    *("entropy", "gini", "max_weight", "hoyer", "participation"),
    *("needle_largest", "needle_signal"),
)


@pytest.mark.parametrize("of", [of for of in LAWS if of not in LIKE_OTHERS])
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


@pytest.mark.thorough
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
    assert found["smallest_detectable"] <= 2e-3
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


@pytest.mark.thorough
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


@pytest.mark.parametrize("length", [2**17, 2**20])
def test_long_rows_say_at_once_what_they_take(length, capsys, monkeypatch):
    """The first look is what `batches` draws; short rows, and sums of weights, are silent."""
    from types import SimpleNamespace

    from sparsity.cli import checks
    from sparsity.sampling.batches import CHUNK, batch_size

    for n, of in ((length, "n_eff"), (64, "top_k_mass:8"), (length, "top_k_mass:8")):
        assert not capsys.readouterr().err
        asked = SimpleNamespace(length=n, quantity=sparsity.quantities.named(of))
        checks._say_what_it_takes(asked, None)
    assert f": {CHUNK * batch_size(length)} at first, some " in capsys.readouterr().err
