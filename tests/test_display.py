"""Results in a notebook: short lines, tables whose text is escaped, frames."""

import functools
import inspect
import json
import re
from dataclasses import replace

import numpy as np
import pytest

import sparsity
from sparsity import InputError, tables
from sparsity import claims_ledger as ledger
from sparsity.claims_ledger import Records
from sparsity.crosscheck.outcome import Cell, CrossCheck

LENGTHS = [2, 8, 32]


@functools.cache
def drawn():
    return sparsity.estimate("exp", gamma=1, rel_error=0.01)


RESULTS = {
    "evaluation": lambda: sparsity.evaluate("exp", gamma=np.linspace(0.1, 3, 500)),
    "exact": lambda: sparsity.exact("exp", gamma=2, length=np.arange(1, 300)),
    "estimate": drawn,
    "derivation": lambda: sparsity.derive("exp"),
}
CLAIM = {
    "key": "k",
    "source": "a <b>source</b>",
    "claim": "S < 1 & <script>alert(1)</script>",
    "formula": "where(s<1, 1, 0)",
    "verdict": "refuted",
    "explanation": "why",
    "evidence": {"findings": []},
}


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_is_one_short_line(name):
    shown = repr(RESULTS[name]())
    assert "\n" not in shown
    assert len(shown) < 200
    assert "array" not in shown


def test_frames_have_the_numbers():
    law = sparsity.exact("exp", gamma=2, length=LENGTHS)
    found = law.to_dataframe()
    assert list(found.columns) == ["length", "n_eff", "error_bound", "p_nonzero"]
    np.testing.assert_array_equal(found["n_eff"], law.value)
    assert not np.array_equal(
        found["n_eff"], sparsity.exact("exp", gamma=2.1, length=LENGTHS).value
    )
    limit = sparsity.evaluate("relu2", beta=[[-1.0], [1.0]], gamma=[1.0, 2.0])
    np.testing.assert_array_equal(limit.to_dataframe()["S"], limit.S.ravel())


def test_an_estimate_stands_beside_its_theory():
    found = drawn()
    table = found.to_dataframe()
    assert tuple(table.loc[0, ["ci95_low", "ci95_high"]]) == found.ci95
    beside = found.beside(sparsity.evaluate("exp", gamma=1))
    assert abs(beside.z) < 5
    assert repr(beside) == f"z = {beside.z:+.2f}: {found!r} beside {beside.theory!r}"
    assert "95 % interval" in beside._repr_html_()
    np.testing.assert_allclose(beside.to_dataframe()["theory"], np.exp(-0.5))
    assert abs(found.beside(sparsity.evaluate("exp", gamma=1.1)).z) > 5  # a wrong theory is seen
    with pytest.raises(InputError, match="one value of S"):
        found.beside(sparsity.exact("exp", gamma=1, length=8))
    with pytest.raises(InputError, match="of long rows; give the same"):
        found.beside(sparsity.exact("exp", gamma=1, length=8, of="S"))


def test_a_derivation_is_displayed_mathematics():
    shown = sparsity.derive("exp")._repr_latex_()
    assert shown.startswith("$$")
    assert shown.endswith("$$")
    assert r"\begin{aligned}" in shown
    assert "align*" not in shown  # which may not stand within $$


def test_text_of_a_user_is_escaped():
    shown = tables.html_table(["<i>"], [["s<1"], ["a & b"], [2.0]], "<caption>")
    assert "s&lt;1" in shown
    assert "a &amp; b" in shown
    assert "&lt;i&gt;" in shown
    assert "<i>" not in shown
    assert "s<1" not in shown
    claims = Records([CLAIM])._repr_html_()
    assert "<script>" not in claims
    assert "where(s&lt;1, 1, 0)" in claims


def test_claims_are_a_list_shown_as_a_table():
    records = Records([CLAIM, CLAIM | {"verdict": "confirmed"}])
    assert isinstance(records, list)
    assert json.loads(json.dumps(records)) == list(records)
    assert repr(records) == "<2 claims: 1 confirmed, 0 refined, 1 refuted>"
    assert repr(Records([CLAIM])) == "<1 claim: 0 confirmed, 0 refined, 1 refuted>"
    assert list(records.to_dataframe()["verdict"]) == ["refuted", "confirmed"]
    assert records._repr_html_().count("<tr>") == 3
    assert ledger.claims.__annotations__["return"] == "Records"


def test_one_claim_is_shown_with_its_findings():
    findings = [{"statement": f"T < {k}", "holds": k == 2} for k in (1, 2)]
    shown = Records([CLAIM | {"evidence": {"findings": findings}}])._repr_html_()
    assert CLAIM["verdict"] in shown
    assert shown.index("fails") < shown.index("T &lt; 1") < shown.index("T &lt; 2")
    assert shown.count("holds") == shown.count("fails") == 1


def test_a_run_of_the_cross_check_is_a_table_what_disagrees_first():
    rest = ("scalar", -0.5, drawn(), 0.1, 4.0, 1e-3)
    cells = tuple(
        Cell(name, "S", {"gamma": 1.0}, *rest, verdict, ("evaluate", "estimate"))
        for name, verdict in (("exp", "agree"), ("where(s<1, 1, 0)", "disagree"))
    )
    found = CrossCheck(False, cells, (), 1e-4, 1e-3, 0)
    assert repr(found).startswith("CrossCheck(NOT IN AGREEMENT")
    short = CrossCheck(False, (replace(cells[1], verdict="not enough evidence"),), (), 1e-4, 9, 0)
    assert repr(short).startswith("CrossCheck(NOT ENOUGH EVIDENCE in 1 cells, no disagreement")
    assert list(found.to_dataframe()["verdict"]) == ["agree", "disagree"]
    shown = found._repr_html_()
    assert "where(s&lt;1, 1, 0)" in shown
    assert shown.index("disagree") < shown.index(">agree<")


def test_a_row_and_its_regime_are_tables():
    """Kernel, parameters and steps in their order, escaped; the limit law beside the exact one."""
    row = sparsity.Row("where(s<1, 1, 0)", beta=0, gamma=2, steps=(sparsity.Window(8),))
    shown = row._repr_html_()
    assert re.findall(r"<td[^>]*>([^<]*)</td>", shown)[::2] == [
        "where(s&lt;1, 1, 0)", "beta", "gamma", "window",
    ]  # fmt: skip
    at = sparsity.regime(1024, 3.0)
    assert f"{at.n_eff:.6g}" in at._repr_html_()
    assert "fails here" in at._repr_html_()
    assert "holds here" in sparsity.regime(1024, 1.0)._repr_html_()


def test_only_public_names_are_listed():
    names = dir(sparsity)
    assert set(names) == {"__version__", *sparsity.__all__}
    assert not {"Any", "TYPE_CHECKING", "annotations", "importlib"} & set(names)
    assert all(hasattr(sparsity, name) for name in ("plot", "sweep", "Row"))


def test_public_modules_list_their_own_names_alone():
    public = [
        x for x in (getattr(sparsity, name) for name in sparsity.__all__) if inspect.ismodule(x)
    ]
    foreign = {"Any", "annotations", "difflib", "functools", "math", "np", "os", "sympy"}
    for package in public:
        names = {name for name in dir(package) if not name.startswith("_")}
        assert not foreign & names, package
        assert all(hasattr(package, name) for name in names), package
    assert len(public) == 8


def test_results_are_numbers_when_asked_to_be():
    found = sparsity.exact("exp", length=[8, 64], gamma=1.0)
    np.testing.assert_array_equal(np.asarray(found), found.value)
    np.testing.assert_allclose(found.error, found.value * found.error_bound)
    assert found.error_kind == "estimated"
    assert sparsity.evaluate("exp", gamma=1.0).error_kind == "proven"
    with pytest.raises(TypeError, match=r"2 values of n_eff: read \.value"):
        float(found)
    one = sparsity.exact("exp", length=8, gamma=1.0)
    assert float(one) == one.value
    drawn = sparsity.estimate("exp", gamma=1.0)
    assert (float(drawn), drawn.error) == (drawn.value, drawn.stderr)


def test_an_error_is_one_line_in_a_notebook():
    for error in (InputError("gamma", -1, "must be > 0"), sparsity.NoClosedForm("it", "why")):
        assert error._render_traceback_() == [f"{type(error).__name__}: {error}"]
