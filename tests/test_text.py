"""Kernels typed as text: what is a formula, what is not, and that nothing typed is ever run."""

import json
import sys
from pathlib import Path

import pytest
import sympy
from sympy import Abs, Max, Piecewise, Rational, erf, erfc, exp, floor, log, sqrt, tanh

import sparsity
from sparsity import InputError, Kernel, NoClosedForm, kernels, score_kernel
from sparsity.derivation import takes_seconds
from sparsity.kernels import text, typesetting
from sparsity.kernels.symbols import s

GOOD = {
    "s": s,
    "2": sympy.Integer(2),
    "s - 0.5": s - Rational(1, 2),
    "s/3": s / 3,
    "2**s": sympy.Integer(2) ** s,
    "0.5**-s": Rational(1, 2) ** -s,
    "1e-3 + s": s + Rational(1, 1000),
    ".25*s": s / 4,
    "exp(2*s - s**2)": exp(2 * s - s**2),
    "log(1 + exp(s))": log(1 + exp(s)),
    "abs(s)**(1/3)": Abs(s) ** Rational(1, 3),
    "sign(s) + 1": sympy.sign(s) + 1,
    "sinh(s)**2": sympy.sinh(s) ** 2,
    "erfc(-s)": erfc(-s),
    "cos(s)": sympy.cos(s),
    "atan(s) + 2": sympy.atan(s) + 2,
    "floor(s)": floor(s),
    "max(s, 0)**2": Max(s, 0) ** 2,
    "max(s, -s, 1)": Max(s, -s, 1),
    "where(s <= 0, exp(s), 1 + s)": Piecewise((exp(s), s <= 0), (1 + s, True)),
    "where(s >= 0, s, where(s < -1, 2, 1))": Piecewise(
        (s, s >= 0), (Piecewise((2, s < -1), (1, True)), True)
    ),
    "relu(s)**3": Max(s, 0) ** 3,
    "elu(s) + 1": Piecewise((s, s > 0), (exp(s) - 1, True)) + 1,
    "softplus(s)": log(1 + exp(s)),
    "sigmoid(s - 3)": 1 / (1 + exp(3 - s)),
    "gelu(s)": s * (1 + erf(s / sqrt(2))) / 2,
    "silu(s)": s / (1 + exp(-s)),
    "softmax": exp(s),
    "exp(s)*(1 + tanh(s))*softplus(s)": exp(s) * (1 + tanh(s)) * log(1 + exp(s)),
    # The last that is allowed; the next is in _BEYOND.
    "1e30*s": 10**30 * s,
    "1e-30*s": s / 10**30,
    "s**64": s**64,
    "s**(1/64)": s ** Rational(1, 64),
    "cosh(64)*s": sympy.cosh(64) * s,
    "max(s, 1, 2, 3, 4, 5, 6, 7)": Max(s, 7),
    "-" * 24 + "s": s,
}

_DUNDERS = ("class", "bases", "subclasses", "globals", "builtins", "dict", "mro", "init", "code")
_CALLS = (
    "__import__('os').system('touch CANARY')",
    'exec(\'open("CANARY", "w")\')',
    "open('CANARY', 'w')",
    "getattr(s, 'x')",
    "os.system('touch CANARY')",
    "sympy.exp(s)",
    "exp.__call__(s)",
    "exp(s).subs(s, 1)",
    "(exp)(s)(s)",
    "'x'.join(s)",
    "exp(*[s])",
    "exp(s, base=2)",
    "where(__import__('os'), 1, 2)",
    "max(open('CANARY', 'w'), 1)",
)
_SYNTAX = (
    "lambda s=open('CANARY', 'w'): s", "s if s > 0 else 0", "[s for s in (1,)]", "{s: s}", "(s, s)",
    "s[0]", "s.real", "'s'", "f'{open(1)}'", "...", "None", "(True)", "not s", "s and 1", "s == s",
    "1 < s < 2", "s @ s", "s // 2", "s ^ 2", "(s := 1)", "s = 1", "await s", "yield s", "*s", "s;s",
    "s # x", "import os", "while 1: pass", "def f(): pass", "s?", "`s`", "s\\", "(s", "()", "exp(",
    "exp(s,, s)", "2s", "s s", "s +", "s ***2",
)  # fmt: skip
_NUMBERS = (
    "9**9**9**9**9", "s**99999", "((s**8)**8)**8", "1e31*s", "1e99999999*s", "0x10*s", "1_000*s",
    "1j*s", "07*s", "s**s", "s/0", "0**-1", "(-1)**0.5", "exp(exp(99))", "log(0)", "s**(1/97)",
    "max()", "where(s, 1, 2)", "where(s > 0, 1)", "where(s == 0, 1, 2)", "exp(s, s)", "abs()",
)  # fmt: skip
_BEYOND = (
    *("1.1e30*s", "1e-31*s", "s**65", "s**(1/65)", "cosh(65)*s", "max(s, 1, 2, 3, 4, 5, 6, 7, 8)"),
    "-" * 25 + "s",
)
_LONG = (
    "exp(" * 60 + "s" + ")" * 60,
    "(" * 50_000 + "s" + ")" * 50_000,
    "-" * 390 + "s",
    "s" * 100_000,
    "s*" * 50_000 + "s",
    "lambda:" * 50 + "s",
    *(name + "(" + (name + "(") * 9 + "s" + ")" * 10 for name in ("elu", "gelu")),
    "where(where(s > 0, 1, s) > 0, s, 1)",
)
_CONSTANTS = (
    "floor(exp(exp(exp(64))))", "where(exp(exp(exp(64))) > exp(exp(exp(63))), 1, s)",
    "max(s, log(6) - log(2) - log(3))", "sign((-2)**(1/3))*s", "s + log(-1)", "cosh(exp(9))*s",
)  # fmt: skip
_UNICODE = (
    "ехр(s)", "ｓ", "s²", "s·2", "−s", "π*s", "s\u200b", "\u202es", "s\n+1", "\x00", "s\x1b[2J",
    "１", "s\ud800", "\ufeffs",
)  # fmt: skip
HOSTILE = (
    *(f"s.__{name}__" for name in _DUNDERS),
    *(f"__{name}__" for name in _DUNDERS),
    *_CALLS,
    *_SYNTAX,
    *(*_NUMBERS, *_BEYOND),
    *_LONG,
    *_UNICODE,
    *_CONSTANTS,
)


@pytest.mark.parametrize("formula", GOOD)
def test_a_formula_is_the_kernel_built_in_sympy(formula):
    found = Kernel.parse(formula)
    assert found.weight == score_kernel("same", GOOD[formula]).weight
    assert found.name == formula


def test_a_planted_wrong_reader_is_seen(monkeypatch):
    monkeypatch.setitem(text.FUNCTIONS, "silu", lambda x: x / (1 + exp(x)))
    with pytest.raises(AssertionError):
        test_a_formula_is_the_kernel_built_in_sympy("silu(s)")


def test_how_a_formula_is_printed():
    typed = "where(s >= 1, s**-2, min(1, s)*sqrt(s**2 + 1) - 1/s + abs(s)**(1/3) - 2)"
    shown = "s⁻² if s ≥ 1, else √(s² + 1)·min(s, 1) + |s|^(1/3) − 2 − 1/s"
    assert typesetting.typeset_name(kernels.named(typed)) == shown
    known = {x.name: typesetting.typeset_weight(x) for x in kernels.known()}
    assert (known["nonnegative"], known["decayed"]) == ("Σ k_i·q_i", "λ^(n − j)")


class _Watch:
    """Python's own record of code that is run and files that are opened."""

    def __init__(self):
        self.on, self.seen = False, []
        sys.addaudithook(self)

    def __call__(self, event, arguments):
        if self.on and event in ("exec", "open", "os.system", "subprocess.Popen", "import"):
            self.seen.append((event, arguments[:1]))


def test_hostile_text_gets_one_line_and_nothing_is_run(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    watch, lines = _Watch(), []
    for _ in range(2):  # once to have everything imported
        lines.clear()
        for formula in HOSTILE:
            try:
                text.parse(formula)
            except InputError as error:
                lines.append(str(error))
            else:
                pytest.fail(f"taken for a formula: {formula[:60]!r}")
        if not watch.on:
            watch.on = True
    watch.on = False
    assert len(lines) == len(HOSTILE)
    assert all("\n" not in line and line.isprintable() and len(line) < 400 for line in lines)
    assert watch.seen == []
    assert not list(Path(tmp_path).iterdir())


def test_the_watch_sees_what_is_run():
    watch = _Watch()
    watch.on = True
    eval("1 + 1")
    watch.on = False
    assert [event for event, _ in watch.seen] == ["exec"]


@pytest.mark.parametrize(
    ("formula", "shown"),
    [
        ("log(1 + epx(s))", '"log(1 + ^epx(s))"'),
        ("exp(s)*s.real", '"exp(s)*^s.real"'),
        ("s + where(s, 1, 2)", '"s + where(^s, 1, 2)"'),
        ("s**3**4", '"s**^3**4"'),
    ],
)
def test_the_caret_is_at_the_mistake(formula, shown):
    with pytest.raises(InputError, match="at \\^: ") as caught:
        text.parse(formula)
    assert shown in str(caught.value)


@pytest.mark.parametrize(
    ("formula", "right"),
    [
        ("max(s - 1, 0)^2", 'write ** for a power: "max(s - 1, 0)**2"'),
        ("np.exp(s)", "write exp, by its name"),
        ("exp(s) if s > 0 else 0", "where(condition, value, otherwise)"),
        ("top-k:8", "did you mean topk:8?"),
    ],
)
def test_what_other_languages_write_is_told_in_this_one(formula, right):
    with pytest.raises(InputError) as caught:
        kernels.named(formula)
    assert right in str(caught.value)


def test_names_stay_names():
    assert kernels.named("exp") is kernels.exp
    for same, kernel in {
        "softmax": kernels.exp,
        "exp(s)": kernels.exp,
        "max(0, s)**2": kernels.relu2,
        "s": kernels.identity,
    }.items():
        assert kernels.named(same) is kernel
    with pytest.raises(InputError, match="did you mean exp"):
        kernels.named("expp")
    with pytest.raises(InputError, match="did you mean softplus"):
        kernels.named("sofplus")


@pytest.mark.parametrize(
    "arguments",
    [("derive",), pytest.param(("sweep", "--beta", 0, "--gamma", 1), marks=pytest.mark.thorough)],
    ids=lambda arguments: arguments[0],
)
def test_every_command_takes_a_formula(command, arguments, tmp_path):
    name, *options = arguments
    if name == "sweep":
        options += ["--out", tmp_path / "out.nc"]
    formula = "s**2" if name == "derive" else "where(s > 0, s**3, 0)"
    code, out, err = command(name, formula, *options, "--json")
    assert code == 0, err
    assert formula.split(",")[0] in out
    code, out, err = command(name, "s**2 + open('x')", *options)
    assert (code, out) == (2, "")
    assert "kernel = \"s**2 + ^open('x')\": at ^: unknown name open" in err
    assert err.count("\n") == 1


def test_a_derivation_that_fails_says_where():
    with pytest.raises(NoClosedForm, match="cannot be solved for"):
        sparsity.derive("max(exp(s) - s**3, 0)")


@pytest.mark.parametrize(
    ("formula", "quick"), [("max(s, 0)**3 + 1", True), ("s*erf(s)", True), ("cosh(s)**10", False)]
)
def test_what_may_take_long_is_known_by_its_size(formula, quick):
    assert takes_seconds(kernels.named(formula)) == quick


@pytest.mark.parametrize(
    ("typed", "name"),
    [("Softmax", "exp"), ("relu^2", "relu2"), ("ELU+1", "elu+1"), ("TopK:8", "topk:8")],
)
def test_names_that_people_type(typed, name):
    assert kernels.named(typed).name == name


@pytest.mark.parametrize(("typed", "n"), [("128k", 131072), ("1M", 1048576)])
def test_lengths_that_people_type(typed, n, command):
    assert sparsity.exact("exp", gamma=1, length=typed).length == n
    assert sparsity.exact("exp", gamma=1, length=[typed, 5]).length.tolist() == [n, 5]
    code, out, _ = command("exact", "exp", "--gamma", "1", "--length", typed, "--json")
    assert (code, json.loads(out)["n"]) == (0, n)
    for wrong in ("12q", "k", "1kk", "1.5k", "-4k"):
        with pytest.raises(InputError, match="length"):
            sparsity.exact("exp", gamma=1, length=wrong)
