"""Pages to send: what is written, what is refused, and that ports are held against definitions."""

import json
import re
from pathlib import Path

import pytest
import sympy

import sparsity
from sparsity import kernels
from sparsity.errors import InputError
from sparsity.panel import opened
from sparsity.panel.export import as_page
from sparsity.plots import browser
from sparsity.plots.browser import ports

ELEMENTWISE = [each for each in kernels.known() if each.law is kernels.Law.SCORE]


def setting(text):
    return json.loads(re.findall(r'id="setting">(.*?)</script>', text)[0])


def test_a_page_is_the_same_twice_and_names_no_address():
    text = browser.html(browser.Start())
    assert text == browser.html(browser.Start())
    assert len(text.encode()) < 1.5e6
    assert set(re.findall(r"https?://[^\s\"']+", text)) == {"http://www.w3.org/2000/svg"}


def test_the_committed_page_is_that_of_this_version():
    page = Path(__file__).resolve().parents[1] / "figures" / "explore.html"
    current = page.read_text("utf-8") == browser.html(browser.Start())
    assert current, "run `sparsity reproduce`"


def test_every_named_function_of_a_score_has_a_port():
    seen = [ports.port(kernel).record["name"] for kernel in (*ELEMENTWISE, *kernels.ALL)]
    assert len(set(seen)) == len({*ELEMENTWISE, *kernels.ALL}) >= 21


@pytest.mark.parametrize(
    ("kernel", "why"),
    [
        ("sparsemax", "no function of one score"),
        ("topk:8", "no function of one score"),
        ("1 + tanh(s)", "loses digits in a browser, at s = -9"),
        ("cosh(s) - 1", "loses digits"),
        ("sin(s)", "zeros and kinks"),
        ("floor(s)", "more kinks"),
    ],
)
def test_what_has_no_port_is_refused_by_name(kernel, why, tmp_path):
    with pytest.raises(InputError, match=why) as refused:
        browser.save(tmp_path / "a.html", browser.Start([kernels.named(kernel)]))
    assert refused.value.argument == "kernel"
    assert list(tmp_path.iterdir()) == []


def test_a_port_that_is_not_the_definition_is_refused(monkeypatch):
    gelu = kernels.named("gelu")
    assert "erfcOfMinus" in ports.port(gelu).size
    monkeypatch.setattr(ports, "_keep_digits", lambda weight: weight)  # 1 + erf(x) cancels
    with pytest.raises(InputError, match="loses digits"):
        ports.port(gelu)
    monkeypatch.setattr(ports, "_keep_digits", lambda weight: weight * (1 + 1e-8))
    with pytest.raises(InputError, match="loses digits"):
        ports.port(kernels.relu2)


def test_zeros_are_found_where_the_definition_lists_none():
    kinks = [region[0] for region in ports.port(kernels.named("exp(s) - 2")).record["regions"]]
    assert any(abs(at - 0.6931471805599453) < 1e-12 for at in kinks)


def test_a_name_cannot_end_the_script():
    mine = sparsity.score_kernel("</script><b>", sympy.exp(2 * sympy.Symbol("s")))
    text = browser.html(browser.Start([mine], title="<i>"))
    assert "</script><b>" not in text
    assert "<i>" not in text
    assert setting(text)["start"]["shown"] == ["</script><b>"]


def test_files_are_replaced_whole_or_refused(tmp_path):
    path = tmp_path / "a.html"
    path.write_text("old")
    assert browser.save(path, browser.Start()) == path
    assert path.read_text("utf-8").startswith("<!DOCTYPE html>")
    for bad in (tmp_path, tmp_path / "a.txt", tmp_path / "none" / "a.html", 3):
        with pytest.raises(InputError) as refused:
            browser.save(bad, browser.Start())
        assert refused.value.argument == "out"
    assert [each.name for each in tmp_path.iterdir()] == ["a.html"]


def test_the_first_values_move_and_further_ones_stay():
    start = browser.page_of_request(
        ["relu2", "exp"], "gamma", "S", {"beta": "-2,0", "gamma": "0.1:5:41"}
    )
    assert [kernel.name for kernel in start.shown] == ["relu2", "exp"]
    assert [(pin.kernel.name, pin.values["beta"]) for pin in start.pins] == [
        ("relu2", 0.0),
        ("exp", 0.0),
    ]
    assert start.ends == {"gamma": (0.1, 5.0)}
    gamma = next(c for c in setting(browser.html(start))["controls"] if c["name"] == "gamma")
    assert (gamma["low"], gamma["high"], gamma["stops"][0]) == (0.1, 5.0, 0.1)
    grows = browser.page_of_request(["exp"], "dim", "n_eff", {"length": "64"})
    assert (grows.grows, [pin.grows for pin in grows.pins]) == (True, [False])


def test_the_panel_gives_what_it_shows():
    state = opened(sparsity.Row("relu2", beta=-1.5, gamma=0.5), "exp", x="length", y="n_eff")
    start = as_page(state)
    assert (start.x, start.y, start.values["beta"]) == ("length", "n_eff", -1.5)
    assert {kernel.name for kernel in start.shown} == {"relu2", "exp"}
    for shown, given, argument in (
        (["exp"], {"rows": "alibi"}, "rows"),
        (["exp"], {"y": "entropy"}, "y"),
        (["exp"], {"x": "slope"}, "x"),
        (["nonnegative"], {"query": "half-normal"}, "query"),
        (["sparsemax"], {}, "kernel"),
    ):
        with pytest.raises(InputError) as refused:
            browser.html(as_page(opened(*shown, **given)))
        assert refused.value.argument == argument


def test_explore_saves(tmp_path):
    pytest.importorskip("anywidget")
    panel = sparsity.explore("exp", gamma=2)
    saved = panel.save(tmp_path / "page.html")
    assert setting(saved.read_text("utf-8"))["start"]["values"]["gamma"] == 2
    panel.close()


def test_the_prompt_writes_a_page_or_says_why_not(command, tmp_path):
    out = tmp_path / "a.html"
    code, said, err = command("plot", "exp", "--x", "gamma", "--out", str(out), "--json")
    assert (code, err) == (0, "")
    assert json.loads(said)["kernels"] == ["exp"]
    out.unlink()
    for more, name in (
        (["--montecarlo"], "montecarlo"),
        (["--step", "alibi:0.1"], "step"),
        (["--of", "entropy"], "of"),
        (["--xlim", "0,1"], "xlim"),
        (["--x", "slope"], "x"),
        (["--length", "0"], "length"),
    ):
        code, said, err = command("plot", "exp", "--gamma", "1", *more, "--out", str(out))
        assert (code, said) == (2, "")
        assert err.startswith(f"sparsity: {name} = ")
        assert err.count("\n") == 1
        assert not out.exists()


def test_a_page_of_a_weight_without_a_mean_is_written(command, tmp_path):
    code, _, err = command("plot", "sinh(s**3)", "--x", "gamma", "--out", tmp_path / "p.html")
    assert (code, err) == (0, "")
