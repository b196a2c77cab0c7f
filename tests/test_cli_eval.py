"""The commands list, derive and eval: one JSON value on stdout, and the same as text."""

import math

import pytest
import sympy
from command_line import KNOWN, LISTED, NAMES, STEPPED, STEPPED_LINE, TOKENS, answer

import sparsity
from sparsity import Decay, Row, kernels
from sparsity.cli.request import read_request

pytestmark = pytest.mark.usefixtures("place")


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
    lines = out.partition("\n\n")[0].splitlines()
    typed = [line.partition("  ")[0].partition(" (")[0].split(", ") for line in lines]
    assert [names[-1] for names in typed] == LISTED
    assert typed[:3] == [["softmax", "exp"], ["linear", "identity"], ["relu^2", "relu2"]]


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


def test_eval_of_retention_rows(command):
    name = "relu2"
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


def test_eval_of_a_row_with_steps(command):
    row = Row("exp", gamma=2, steps=STEPPED)
    found = answer(command, "eval", "exp", "--gamma", 2, *STEPPED_LINE, "--length", 4096)
    assert found["log_S"] == pytest.approx(float(sparsity.evaluate(row, length=4096).log_S))
    assert found["n_eff"] == float(sparsity.exact(row, length=4096).value)
    assert found["S_n"] == float(sparsity.exact(row, length=4096, of="S").value)


def test_the_largest_exact_length_is_taken(command):
    found = answer(command, "eval", "exp", "--gamma", 1, "--length", 2**53)
    assert found["n"] == 2**53
    found = answer(command, "eval", "decayed", "--decay", 0.5, "--length", "9.007199254740992e15")
    assert found["n"] == 2**53


def test_the_definition_of_a_limit_names_the_law_of_the_scores_and_the_steps(command):
    """Of the S of long rows, and of another quantity of them, which needs no length."""
    typed = "exp --gamma 0.5 --scores uniform --step sink-logit:1"
    code, text, _ = command("eval", *typed.split(), "--of", "hoyer")
    assert code == 0
    assert "x uniform on [−√3, √3], steps uniform sink-logit:1" in text
    asked = read_request("exp", {"gamma": "0.5"}, ["uniform", "sink-logit:1"])
    assert "x uniform on [−√3, √3], steps uniform sink-logit:1" in asked.definition
