"""What `error_kind` says of a bound: proven ones are never exceeded, estimated ones counted."""

import json
import math

import mpmath
import numpy as np
import pytest

from sparsity import estimate, evaluate, exact

FORMULAS = {
    "relu2": (lambda s: s**2 if s > 0 else mpmath.mpf(0), (0,)),
    "softplus": (lambda s: mpmath.log1p(mpmath.exp(s)), ()),
}
PLACES = [(-1.0, 0.3), (0.5, 1.0), (0.0, 3.0)]


def log_sparsity(f, kinks, beta, gamma):
    """Return log S of long rows to 25 digits, by quadrature of the definition."""
    with mpmath.workdps(30):
        beta, gamma = mpmath.mpf(beta), mpmath.mpf(gamma)
        cuts = sorted(
            {(k - beta) / gamma for k in kinks} | {mpmath.mpf(x) for x in range(-20, 21, 4)}
        )

        def moment(power):
            integrand = lambda x: f(beta + gamma * x) ** power * mpmath.npdf(x)  # noqa: E731
            return mpmath.quad(integrand, cuts)

        return mpmath.log(moment(1)) - mpmath.log(moment(2)) / 2


@pytest.mark.parametrize("name", FORMULAS)
def test_a_proven_bound_is_never_exceeded(name):
    for beta, gamma in PLACES:
        found, reference = (
            evaluate(name, beta=beta, gamma=gamma),
            log_sparsity(*FORMULAS[name], beta, gamma),
        )
        assert found.error_kind == "proven"
        assert 0 < found.error_bound < 1e-11
        off = abs(float(mpmath.mpf(float(found.log_S)) - reference))
        assert off <= float(found.error_bound), (beta, gamma)
        # The reference would show an error of some bounds.
        assert (
            abs(float(found.log_S) + 3 * float(found.error_bound) - float(reference))
            > found.error_bound
        )


# Of two softmax weights all is in the difference of their scores, d = γ√2 x.
OF_TWO = {
    "n_eff": lambda d: 1 + 1 / np.cosh(d),
    "participation": lambda d: (1 + np.tanh(d / 2) ** 2) / 2,
    "S": lambda d: np.sqrt((1 + 1 / np.cosh(d)) / 2),
    "entropy": lambda d: np.logaddexp(0, d) - d / (1 + np.exp(-d)),
}
MOST_EXCEEDED = 0.05  # of cells, of a bound that is only estimated


def mean_of_two(of, gamma):
    """Return a mean over rows of two weights by the trapezoidal rule, which has all digits here."""
    x = np.linspace(-12, 12, 2**15 + 1)
    density = np.exp(-x * x / 2) / math.sqrt(2 * math.pi)
    return math.fsum((OF_TWO[of](gamma * math.sqrt(2) * x) * density).tolist()) * (x[1] - x[0])


def test_an_estimated_bound_is_seldom_exceeded():
    exceeded, planted, gammas = 0, 0, np.geomspace(0.1, 8, 5).tolist()
    for of in OF_TWO:
        for gamma in gammas:
            found = exact("exp", length=2, gamma=gamma, of=of)
            assert found.error_kind == "estimated"
            assert 0 < found.error_bound < 1e-9
            reference = mean_of_two(of, gamma)
            off = abs(float(found.value) / reference - 1)
            exceeded += off > found.error_bound
            planted += (
                abs(float(found.value) * (1 + 3 * float(found.error_bound)) / reference - 1)
                > found.error_bound
            )
    cells = len(OF_TWO) * len(gammas)
    assert exceeded <= MOST_EXCEEDED * cells
    assert planted >= 0.9 * cells  # errors of three bounds would be counted


def test_every_result_says_what_its_error_is(command):
    assert estimate("exp", gamma=1.0, rel_error=0.1).error_kind == "standard error"
    entropy = evaluate("exp", gamma=0.5, of="entropy", length=64)  # a derivative by differences
    assert (entropy.method, entropy.error_kind) == ("limit of long rows", "estimated")
    assert repr(exact("exp", length=8, gamma=1.0)).endswith(", estimated)")
    assert "relative error ≤ " in repr(evaluate("exp", gamma=1.0))
    for line, kind in (("eval", "proven"), ("exact", "estimated")):
        code, out, _ = command(
            line, "exp", "--gamma", "1", *["--length", "8"] * (line == "exact"), "--json"
        )
        assert (code, json.loads(out)["error_kind"]) == (0, kind)
