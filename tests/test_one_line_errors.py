"""Arguments of a wrong kind, in Python, are one line that names them, in notebooks too."""

import functools
import inspect
import io
import re
from contextlib import redirect_stderr, redirect_stdout

import jax
import numpy as np
import pytest

import sparsity
from sparsity import InputError, kernels, monitor


def test_when_that_is_taken():
    x = np.ones((1, 4, 8), np.float32)
    for when in (np.bool_(True), jax.numpy.array(1) == 1, 1):
        assert np.isfinite(monitor(x, x, "n_eff", when=when)["n_eff"]).all()


def test_an_option_that_torch_penalty_does_not_take():
    with pytest.raises(InputError, match=r"^window = 4: torch_penalty does not take it; it"):
        sparsity.monitoring.torch_penalty(None, None, low=2, window=4)


LARGE = (  # whole constants beyond JAX's integers, NumPy's, and what float64 holds apart
    "max(s, 0) + 3000000000", "10**200*s", "s**4294967296", "exp(-s*10**10)",
)  # fmt: skip


@pytest.mark.thorough
@pytest.mark.parametrize(
    "formula", [pytest.param(x, marks=[pytest.mark.slow] * (i > 1)) for i, x in enumerate(LARGE)]
)
def test_large_whole_constants(formula):
    """Each instrument gives a number, the same as of the constant as a float, or one line."""
    asked = {"beta": 0.0, "gamma": 1.0}
    told = 0
    for ask in (
        lambda f: sparsity.evaluate(f, **asked).log_S,
        lambda f: sparsity.estimate(f, **asked, rel_error=0.1).log_value,
        lambda f: sparsity.exact(f, **asked, length=4).log_value,
        lambda f: sparsity.estimate(f, **asked, length=4, rel_error=0.1).log_value,
    ):
        try:
            found = float(ask(formula))
        except InputError as error:
            told += str(error).count("\n") == 0
        else:
            told += not np.isnan(found)
    assert told == 4


@pytest.mark.thorough
def test_large_whole_numbers_of_steps_and_bounds():
    value = 10**30
    x = np.ones((1, 4, 8), np.float32)
    penalty = sparsity.monitoring.penalty
    assert float(penalty(x, x, high=value)) == 0  # n_eff is never above
    row = sparsity.Row("exp", gamma=1, steps=(sparsity.SoftCap(value),))
    plain = float(sparsity.exact("exp", gamma=1, length=4))
    found = sparsity.estimate(row, length=4, rel_error=0.02)
    assert abs(found.value - plain) < 4.5 * found.stderr


# What a notebook shows of bad calls: a line, and no frame of the package.


@functools.cache
def scope():
    queries, keys = np.random.default_rng(0).normal(size=(2, 2, 32, 8))
    return {
        "sparsity": sparsity, "np": np, "q": queries, "k": keys,
        "law": sparsity.exact("exp", gamma=2, length=[8, 64]),
        "limit": sparsity.evaluate("exp", gamma=2),
        "drawn": sparsity.estimate("exp", gamma=1, rel_error=0.05),
        "wanted": sparsity.design("exp", length=64, sink_mass=0.5, gamma=1),
        "swept": sparsity.sweep("exp", gamma=[1, 2]),
    }  # fmt: skip


BAD = """
sparsity.evaluate("exp")
sparsity.evaluate()
sparsity.exact("exp", gamma=2, length="a")
sparsity.plot("exp", gamma=2, x="nope")
sparsity.design("exp", length=8, n_eff=99)
sparsity.derive("nope")
sparsity.verify(3)
sparsity.claims(seed=-1)
sparsity.measure(queries=q)
sparsity.measure(queries=q, keys=k, of="nope")
sparsity.describe("nofile")
sparsity.explore(beta="x")
sparsity.stream(q, 3)
sparsity.Row("exp", gamma=2, steps=3)
sparsity.score_kernel("x", "foo(s)")
sparsity.largest_logit(8, gamma="x")
sparsity.sink_logit(2, "exp", length=3, gamma=1)
sparsity.S("x")
sparsity.Empirical("nofile.npy")
sparsity.figures.draw("nope")
law.S
float(law)
limit.S_rms
drawn.beside(3)
wanted.n_eff
""".strip().splitlines()


@pytest.mark.parametrize("call", BAD)
def test_a_bad_call_is_one_line_or_ends_at_the_call(call):
    """Either the error says itself in one line, or Python found it before the package ran."""
    with pytest.raises(Exception) as caught:  # noqa: PT011
        eval(call, dict(scope()))
    error = caught.value
    if hasattr(error, "_render_traceback_"):
        (line,) = error._render_traceback_()
        assert "\n" not in line
        assert len(line) < 1100
    else:
        assert not any("sparsity/" in str(each.path) for each in caught.traceback), call


@pytest.mark.notebook
def test_ipython_shows_these_lines():
    shell = pytest.importorskip("IPython.core.interactiveshell").InteractiveShell()
    shell.user_ns.update(scope())
    shown = 0
    for call in (*BAD, *MEANT):
        said = io.StringIO()
        with redirect_stdout(said), redirect_stderr(said):
            error = shell.run_cell(call).error_in_exec
        ours = hasattr(error, "_render_traceback_")
        lines = re.sub(r"\x1b\[[\d;]*m", "", said.getvalue()).strip().splitlines()
        assert len(lines) == 1 if ours else not any("/sparsity/" in x for x in lines), call
        shown += ours
    assert shown > 30


# Which keyword was meant.

MEANT = {
    'sparsity.evaluate("exp", gama=2)': "did you mean gamma?",
    'sparsity.evaluate("exp", sigma=2)': "did you mean gamma?",
    'sparsity.evaluate("exp", gamma=2, quantity="entropy")': "did you mean of?",
    'sparsity.evaluate(lambda s: s**2, gamma=1)': "as text, such as 's**2'",
    'sparsity.exact("exp", gamma=2, n=64)': "did you mean length?",
    'sparsity.exact("exp", gamma=2, length=64, T=0.5)': "did you mean gamma/T",
    'sparsity.exact("exp", gamma=2, length=64, window=4)': "did you mean steps, such as",
    'sparsity.exact("exp", gamma=2, length=64, of="Gini")': "did you mean gini?",
    'sparsity.estimate("exp", gamma=2, samples=9)': "did you mean max_samples?",
    'sparsity.design("exp", length=64, neff=8)': "did you mean n_eff?",
    'sparsity.design("exp", n=64, n_eff=8)': "did you mean length?",
    'sparsity.design("exp", 64, 8)': "by name it takes kernel, length, n_eff",
    "sparsity.describe({}, only=None)": "only = None: describe does not take it",
    'sparsity.plot("exp", gamma=2, save="a.png")': "did you mean plot(…).figure.savefig(…)?",
    'sparsity.plot("exp", gamma=2, log=True)': 'did you mean xscale="log"?',
    'sparsity.plot("exp", gamma=2, x="n")': "did you mean length?",
    'sparsity.Row("exp", gamma=2, step=())': "did you mean steps?",
    'sparsity.Row("exp", gamma=2, length=64)': "did you mean exact(…, length=…)?",
    'sparsity.sweep("exp", gammas=[1, 2])': "did you mean gamma?",
    'sparsity.verify("relu2", gamma=1, n=64)': "did you mean length?",
    'sparsity.measure(queries=q[0], keys=k[0])': "array of shape (32, 8): give an array [heads",
    'sparsity.measure(queries=q, key=k)': "did you mean keys?",
    'sparsity.stream(q, k, windw=4)': "did you mean window?",
    'sparsity.n_eff(q, dim=1)': "did you mean axis?",
    'sparsity.n_eff("exp")': "of a kernel, exact(",
    'sparsity.S("exp", gamma=2)': "did you mean exact(kernel",
    'sparsity.plot(sparsity.Row("exp", gamma=2), sparsity.Row("exp", gamma=3))': "as a list",
    'sparsity.design("exp", length=64)': "n_eff is missing",
    'sparsity.explore(gama=2)': "did you mean gamma?",
    'sparsity.Temperature(0.5)': "give gamma/T",
    'sparsity.score_kernel("x", lambda s: s)': "as text, such as 's**2'",
    'sparsity.Softcap': "did you mean SoftCap?",
}  # fmt: skip


@pytest.mark.parametrize("call", MEANT)
def test_a_mistaken_call_says_what_was_meant(call):
    with pytest.raises(Exception, match=re.escape(MEANT[call])) as caught:
        eval(call, dict(scope()))
    (line,) = caught.value._render_traceback_()
    assert len(line) < 300


def test_a_function_of_the_user_fails_as_itself():
    def fails(done, total):
        return done.nothing

    with pytest.raises(AttributeError, match="nothing"):
        sparsity.estimate("exp", gamma=1, progress=fails)
    with pytest.raises(TypeError, match="unhashable"):
        sparsity.estimate("exp", gamma=1, progress=lambda done, total: {[]: 1})


def test_beta_left_out_is_zero_everywhere_and_said():
    of_rows = [functools.partial(f, length=8) for f in (sparsity.exact, sparsity.estimate)]
    for ask in (sparsity.evaluate, *of_rows):
        left_out, given = (ask("softplus", gamma=1, **beta) for beta in ({}, {"beta": 0}))
        assert float(left_out) == float(given) != float(ask("softplus", gamma=1, beta=0.5))
        assert "at β = 0" in repr(left_out)
        assert "at β = 0" in left_out._repr_html_()
        assert "β" not in repr(given)
    assert sparsity.Row("softplus", gamma=1).beta == 0
    assert sparsity.sweep("softplus", gamma=[1, 2])["beta"] == 0
    assert sparsity.verify("softplus", gamma=1, detectable=0.1).cells[0].parameters["beta"] == 0
    drawn = sparsity.plot("softplus", gamma=1, length=[4, 8])
    assert "β = 0" in drawn.figure.texts[0].get_text() + drawn.figure.texts[1].get_text()
    assert "at gamma = 1.0" in repr(sparsity.design("relu2", length=64, n_eff=8))


# What completion and `help` know.

NAMED = ("evaluate", "exact", "estimate", "sweep", "plot", "verify", "sink_logit", "explore", "Row")


def test_signatures_name_the_parameters_of_all_kernels():
    every = {p.name for k in (*kernels.known(), *kernels.MAPS) for p in k.parameters}
    assert len(every) >= 14
    for name in NAMED:
        parameters = inspect.signature(getattr(sparsity, name)).parameters
        assert every - {*parameters} <= ({"length"} if name == "Row" else set()), name
        assert all(parameters[x].kind is x_kind for x in ("beta", "gamma")
                   for x_kind in [inspect.Parameter.KEYWORD_ONLY])  # fmt: skip
    assert {"beta", "gamma"} <= {*inspect.signature(sparsity.design).parameters}
    assert "gamma" not in inspect.signature(sparsity.measure).parameters  # which takes none


SHOWN = (
    'sparsity.kernels.exp', 'sparsity.kernels.sparsemax',
    'sparsity.derive("exp")', 'wanted', 'law', 'limit', 'drawn', 'sparsity.regime(64, 2.0)',
    'sparsity.largest_logit(64, 2.0)', 'sparsity.qk_clip(64, 2.0, 3.0)', 'sparsity.Alibi(0.1)',
    'sparsity.Row("exp", gamma=2, steps=(sparsity.Alibi(0.1),))', 'sparsity.QKNorm(16)',
    'sparsity.needle_capacity("exp", dim=16)', 'sparsity.kernels.exp.parameters[0]',
    'sparsity.figures.ALL[0]', 'sparsity.ledger.ALL[0]', 'drawn.beside(sparsity.evaluate("exp", '
    'gamma=1))', 'sparsity.Empirical([1.0, 2.0, 3.0])', 'sparsity.InputError("a", 1, "b")',
)  # fmt: skip


@pytest.mark.parametrize("what", SHOWN)
def test_what_a_call_gives_is_shown_in_a_line(what):
    shown = repr(eval(what, dict(scope())))
    assert "\n" not in shown
    assert len(shown) <= 350
    assert " at 0x" not in shown


def test_a_row_with_long_vectors_is_cut_in_a_notebook_alone():
    said = []
    page = type("Page", (), {"text": staticmethod(said.append)})
    rope = sparsity.Rope(query=np.ones(128), mean=np.zeros(128), spread=1.0)
    for each in (rope, sparsity.Row("exp", steps=(rope,))):
        each._repr_pretty_(page, False)
        assert len(said[-1]) < 320 < len(repr(each))
