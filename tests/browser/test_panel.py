"""The panel in JupyterLab, by keyboard and mouse: what is drawn is what `evaluate` says."""

import csv
import functools
import io
import math
import time
import xml.etree.ElementTree as ElementTree
from contextlib import contextmanager

import numpy as np
import pytest

from browser.guard import HANG
from browser.hand import burst, every_kernel
from sparsity import Row, Sink, evaluate, exact

pytestmark = pytest.mark.browser

N, BETA, GAMMA, DECAY, DIM = 1024, -1.0, 1.0, 0.99, 64
FEW = 500  # tokens of rows that are sampled: each length is compiled anew


def limit_of(step):
    """Log S of softmax rows under a step, at a few x: the slow law, not the panel's own."""

    def log_S(x):
        rows = [Row("exp", beta=BETA, gamma=GAMMA, steps=(step(float(value)),)) for value in x]
        return np.array([float(evaluate(row, length=N).log_S) for row in rows])

    return log_S


# control -> (kernel, row law, drawn line, scale, log S along the control)
CASES = {
    "beta": ("relu2", "iid", "limit", "linear", lambda x: evaluate("relu2", beta=x, gamma=1).log_S),
    "gamma": ("exp", "iid", "limit", "log", lambda x: evaluate("exp", gamma=x).log_S),
    "length": (
        "decayed",
        "iid",
        "exact",
        "log",
        lambda x: evaluate("decayed", decay=DECAY, length=np.round(x)).log_S,
    ),
    "decay": (
        "decayed",
        "iid",
        "exact",
        "nines",
        lambda x: evaluate("decayed", decay=x, length=N).log_S,
    ),
    "ratio": (
        "nonnegative",
        "iid",
        "limit",
        "log",
        lambda x: evaluate("nonnegative", ratio=x, dim=DIM, query="uniform").log_S,
    ),
    "logit": ("exp", "sink", "limit", "linear", limit_of(Sink)),
}
MOVED = ("gamma", "length", "decay", "logit")
POINTS = {"length": 300, "logit": 65}  # whole numbers; filled in
SCALES = {
    "linear": (lambda x: x, lambda t: t),
    "log": (np.log, np.exp),
    "nines": (lambda x: -np.log1p(-x), lambda t: -np.expm1(-t)),
}


def values_at(panel, u, scale):
    """x at places along the axis, read off its first and last label."""
    to, back = SCALES[scale]
    (u0, x0), *_, (u1, x1) = panel.ticks()
    t0, t1 = to(np.array([x0, x1]))
    return back(t0 + (np.asarray(u) - u0) * (t1 - t0) / (u1 - u0))


def misfit(panel, path, scale, log_S, points=12):
    """How far a drawn path is from S, in hundredths of a pixel that its rounding explains."""
    pick = np.unique(np.linspace(1, len(path) - 2, points).astype(int))
    box = panel.box()
    u, v = path[pick].T
    du, dv = 0.006 / box["width"], 0.006 / box["height"]
    low, mid, high = (np.exp(log_S(values_at(panel, u + k * du, scale))) for k in (-1, 0, 1))
    slack = dv + np.maximum(abs(high - mid), abs(low - mid))
    return float(np.max(np.abs(v - mid) / slack))


def curve(kernel):
    return f"live {kernel}"


def set_up(panel, name):
    kernel, rows, kind, scale, log_S = CASES[name]
    panel.kernels(kernel)
    panel.choose("rows", rows)
    return kernel, kind, scale, log_S


@pytest.mark.parametrize(
    "name", [pytest.param(x, marks=[pytest.mark.wide] * (x != "gamma")) for x in CASES]
)
def test_the_drawn_path_is_what_the_theory_says(panel, name):
    kernel, kind, scale, log_S = set_up(panel, name)
    panel.choose("x", name)
    panel.wait_for(f"return root.querySelector('path.{kind}:not([opacity])')")
    path = panel.path(curve(kernel), kind)
    assert len(path) >= POINTS.get(name, 400)
    assert misfit(panel, path, scale, log_S) < 2
    if name == "gamma":  # a theory that is off by half a percent is seen
        assert misfit(panel, path, scale, lambda x: 1.005 * log_S(x)) > 2


@pytest.mark.wide
@pytest.mark.parametrize("name", MOVED)
def test_a_slider_moves_by_keyboard_and_by_mouse(panel, name):
    set_up(panel, name)
    slider, field = panel.slider(name), panel.field(name)
    start = float(field.input_value())
    slider.focus()
    for _ in range(3):
        panel.page.keyboard.press("ArrowRight")
    panel.settled()
    right = float(field.input_value())
    assert right > start
    panel.page.keyboard.press("ArrowLeft")
    panel.settled()
    assert start < float(field.input_value()) < right
    panel.page.keyboard.press("Home")
    panel.settled()
    lowest = float(field.input_value())
    assert lowest < start
    panel.page.keyboard.press("End")
    panel.settled()
    assert float(field.input_value()) > right
    box = panel.place(f"input[type=range][data-name={name}]")
    middle = box["y"] + box["height"] / 2
    panel.page.mouse.move(box["x"] + box["width"] - 8, middle)
    panel.page.mouse.down()
    panel.page.mouse.move(box["x"] + box["width"] * 0.15, middle, steps=4)
    panel.page.mouse.up()
    panel.settled()
    assert lowest < float(field.input_value()) < right
    assert slider.get_attribute("aria-valuetext")
    assert repr(float(field.input_value())).removesuffix(".0") in panel.python()
    panel.wait_for("return root.querySelector('td[data-value]:not([data-value=\"\"])')")


@pytest.mark.wide
def test_a_typed_formula_is_drawn_as_evaluate_says(panel):
    """Enter draws it; a mistake is named with its place; Reset takes it away."""
    text = "log(2 + exp(s))"
    panel.type("formula", text)
    assert panel.field("formula").input_value() == ""
    panel.kernels(text)
    path = f"""path.limit[data-curve="{curve(text)}"]:not([opacity])"""
    panel.wait_for(f"return root.querySelector('{path}')")

    def log_S(gamma):
        return evaluate(text, beta=BETA, gamma=gamma).log_S

    assert misfit(panel, panel.path(curve(text)), "log", log_S) < 2
    assert misfit(panel, panel.path(curve(text)), "log", lambda x: 1.005 * log_S(x)) > 2
    panel.type("formula", "log(1 + exp(q))")
    assert "exp(^q)" in panel.root.locator(".formula-field .message").inner_text()
    assert panel.field("formula").input_value() == "log(1 + exp(q))"
    panel.reset()
    assert panel.field("formula").input_value() == ""
    assert panel.field("formula").get_attribute("aria-invalid") == "false"
    assert panel.root.get_by_label(text, exact=True).count() == 0


@pytest.mark.wide
def test_a_quantity_is_chosen_with_its_number(panel):
    """Entropy and top-8 mass are drawn as the instruments say; a bad number is named."""
    panel.kernels("exp")
    panel.type("length", "256")
    panel.choose("y", "entropy")
    limit = f"""path.limit[data-curve="{curve("exp")}"]:not([opacity])"""
    panel.wait_for(f"return root.querySelector('{limit}')")

    @functools.cache
    def entropy(gamma):
        return float(evaluate(Row("exp", gamma=gamma), of="entropy", length=256).value)

    def height(gamma, scale=1.0):
        of = [entropy(float(each)) for each in gamma]
        return np.log(np.clip(np.array(of) * scale / 14, 1e-9, None))

    path = panel.path(curve("exp"))
    path = path[path[:, 0] < 0.6]  # as far as it is on the chart
    assert misfit(panel, path, "log", height, 6) < 3
    assert misfit(panel, path, "log", lambda x: height(x, 1.01), 6) > 3
    panel.wait_for("return root.querySelector('[data-of=exact]').dataset.value !== ''")
    wanted = float(exact("exp", gamma=1, length=256, of="entropy").value)
    assert panel.number(curve("exp"), "exact") == pytest.approx(wanted, rel=1e-9)
    panel.choose("y", "top_k_mass")
    panel.type("argument", "8")
    assert "of='top_k_mass:8'" in panel.python()
    panel.type("argument", "1.5")
    message = panel.root.locator(".argument .message")
    assert "k must be a whole number" in message.inner_text()
    assert "of='top_k_mass:8'" in panel.python()
    panel.choose("y", "gini")
    assert panel.field("argument").is_hidden()
    assert message.inner_text() == ""


@pytest.mark.wide
def test_what_cannot_be_had_is_disabled_and_says_why(panel):
    panel.kernels("exp")
    option = panel.root.locator("select[data-name=y] option[value=sink_mass]")
    assert option.get_attribute("disabled") is not None
    assert "choose a row law with one" in option.get_attribute("title")
    panel.choose("rows", "sink")
    assert option.get_attribute("disabled") is None
    panel.choose("y", "sink_mass")
    panel.wait_for("return root.querySelector('[data-of=exact]').dataset.value !== ''")
    panel.choose("rows", "iid")  # nothing is changed behind one's back
    assert panel.root.locator("select[data-name=y]").input_value() == "sink_mass"
    assert "choose a row law with one" in panel.root.locator("tr.notes").inner_text()


@pytest.mark.wide
def test_what_is_being_typed_is_left_alone(panel):
    """Pictures arrive all the time while the panel fills in; none may touch a field in use."""
    panel.sampling(True)
    panel.type("length", "300")
    field = panel.field("gamma")
    field.fill("2.")
    panel.page.evaluate("""() => {
      const root = document.querySelector('.sparsity-panel');
      const field = root.querySelector('input[type=text][data-name=gamma]');
      window.typed = [];
      new MutationObserver(() => window.typed.push(field.value))
        .observe(root, { attributeFilter: ['data-number'] });
    }""")
    panel.wait_for("return window.typed.length >= 6")
    assert set(panel.page.evaluate("window.typed")) == {field.input_value()} == {"2."}
    field.press("Enter")
    panel.settled()
    assert float(field.input_value()) == 2
    assert "gamma=2.0" in panel.python()


@pytest.mark.wide
def test_points_appear_at_rest_tighten_and_go_grey(panel):
    panel.kernels("exp")
    panel.type("length", str(FEW))  # nobody has sampled it so far
    panel.type("gamma", "2")
    panel.sampling(True)
    panel.page.evaluate("""() => {
      const plot = document.querySelector('.sparsity-panel .plot');
      const look = () => window.heights.push([...plot.querySelectorAll('g.point:not(.stale)')]
        .map((g) => g.querySelector('path').getBBox().height));
      window.heights = [];
      look();
      new MutationObserver(look).observe(plot, { childList: true });
    }""")
    panel.wait_for(
        """const all = window.heights.filter((each) => each.length === 7);
      const sum = (each) => each.reduce((a, b) => a + b, 0);
      return all.length && sum(all.at(-1)) < 0.9 * sum(all[0]);""",
    )
    S = [float(g.get_attribute("data-value")) for g in panel.root.locator("g.point").all()]
    law = float(exact("exp", length=FEW, gamma=2).S_rms)
    assert min(abs(s / law - 1) for s in S) < 0.01
    panel.slider("length").focus()
    panel.page.keyboard.press("ArrowRight")
    panel.settled()
    assert panel.root.locator("g.point.stale").count() >= 1
    panel.wait_for("return root.querySelectorAll('g.point.stale').length === 0")
    panel.choose("x", "decay")  # on which nothing here depends: one point, which is soon at its end
    panel.wait_for("return root.querySelector('.status').textContent === ''")
    assert panel.root.locator("g.point:not(.stale)").count() == 1


_STALE = ".stale"
_POINTS = "g.point"


def _sampled(panel, count=3):
    panel.wait_for(f"return root.querySelectorAll('{_POINTS}:not({_STALE})').length >= {count}")


@pytest.mark.wide
@pytest.mark.parametrize(
    ("name", "value", "beta"),  # a bias each: what was found once is not forgotten
    [("rows", "window", "-1.2"), ("x", "beta", "-1.5")],
)
def test_old_points_vanish_when_the_question_is_another(panel, name, value, beta):
    """A slider leaves them grey, as a guess; another law, axis or quantity leaves none."""
    panel.kernels("relu2")
    panel.type("length", str(FEW))
    panel.type("beta", beta)
    panel.sampling(True)
    panel.wait_for("return root.querySelector('path.exact:not(.stale)')")
    _sampled(panel)
    stale = f"root.querySelectorAll('{_STALE}').length"
    assert panel.root.locator(_STALE).count() == 0
    panel.slider("beta").press("ArrowRight")
    panel.wait_for(f"return {stale} > 0")  # of the same question: this is what is seen below
    _sampled(panel)
    panel.page.evaluate(_EVERY_CHART, _STALE)
    panel.choose(name, value)
    panel.wait_for("return new Set(window.charts.map(([asked]) => asked)).size > 1")
    _sampled(panel)  # of the new question: nothing is kept from here on
    (before, _), *charts = panel.page.evaluate("window.charts")
    after = [count for asked, count in charts if asked != before]
    assert after
    assert set(after) == {0}


# Keeps, of each chart that is drawn from now on, what it asks and how much is left of old ones.
_EVERY_CHART = """(selector) => {
  const root = document.querySelector('.sparsity-panel'), plot = root.querySelector('.plot');
  const words = () => [...root.querySelectorAll('.title-x, .title-y, pre.code:first-child')]
    .map((part) => part.textContent).join();
  const look = () => window.charts.push([words(), plot.querySelectorAll(selector).length]);
  window.charts = [];
  look();
  new MutationObserver(look).observe(plot, { childList: true });
}"""


@contextmanager
def held(panel, place):
    """The kernel's interpreter, held while the block runs.

    A cell that sleeps would not do: newer kernels answer widgets beside it. `PyDLL` keeps the
    interpreter's lock for the whole of a call, here of a shell that waits for a file.
    """
    place.mkdir()
    wait = (
        f"cd {place} && touch begun && for k in $(seq 3000); do test -e go && exit; sleep 0.1; done"
    )
    code = f"import ctypes; ctypes.PyDLL(None).system({wait.encode()!r})"
    run = """(code) => { window.jupyterapp.shell.currentWidget.sessionContext.session.kernel
      .requestExecute({ code }); }"""
    panel.page.evaluate(run, code)
    deadline = time.monotonic() + HANG / 1000
    while not (place / "begun").exists():
        assert time.monotonic() < deadline
        panel.page.wait_for_timeout(20)
    try:
        yield
    finally:
        (place / "go").touch()


@pytest.mark.wide
def test_while_the_kernel_is_busy_the_former_question_is_hidden(panel, tmp_path):
    """The law is chosen, no answer comes: nothing of the former law stands beside it."""
    panel.kernels("exp")
    panel.sampling(True)
    _sampled(panel)
    seen = """(parts) => [...document.querySelectorAll(parts)]
      .filter((part) => getComputedStyle(part).visibility === 'visible').length"""
    points = ".sparsity-panel g.point"
    parts = f"{points}, .sparsity-panel :is(.plot svg, .numbers)"
    assert panel.page.evaluate(seen, points) >= 3
    both = f"() => [document.querySelector('.sparsity-panel').dataset.waiting, ({seen})('{parts}')]"
    with held(panel, tmp_path / "law"):
        panel.root.locator("select[data-name=rows]").select_option("window")
        assert panel.page.evaluate(seen, points) == 0  # at once
        panel.wait_for(f"return ({seen})('{parts}') === 0")
        assert panel.page.evaluate(both) == ["true", 0]
    panel.settled()
    assert panel.page.evaluate(seen, parts) >= 2
    with held(panel, tmp_path / "value"):
        panel.slider("gamma").press("ArrowRight")  # no other question: what is known stays
        panel.page.wait_for_timeout(600)
        waiting, visible = panel.page.evaluate(both)
        assert waiting
        assert visible >= 2
    panel.settled()


@pytest.mark.wide
def test_a_marker_is_a_sample(panel):
    """Shapes of points stand at sampled points, and in the table at curves that have some."""

    def shapes():
        closed = "all => all.map((e) => e.getAttribute('d')).filter((d) => /Z$/.test(d))"
        return panel.root.locator("path").evaluate_all(closed)

    panel.sampling(False)
    panel.settled()
    panel.wait_for("return root.querySelectorAll('g.point').length === 0")
    assert shapes() == []
    panel.sampling(True)
    panel.wait_for("return root.querySelectorAll('g.point:not(.stale)').length >= 1")
    assert len(shapes()) >= 2


@pytest.mark.wide
def test_a_bad_formula_changes_nothing(panel):
    """One line with a caret; endless texts are answered soon. test_text.py: nothing is run."""
    panel.kernels("exp")
    before, curves = panel.python(), panel.curves()
    message = panel.root.locator(".formula-field .message")
    for text, says in (
        ("log(1 + exp(s)", "^"),
        ("exp(s))", "^"),
        ("__import__('os').mkdir('run')", ""),
        ("open('run', 'w')", ""),
        ("s + 9**9**9**9", ""),
        ("(" * 200 + "s" + ")" * 200, ""),
        ("exp(" * 95 + "s" + ")" * 95, ""),
    ):
        panel.type("formula", text)  # `type` waits for the answer: a hang is an error
        words = message.inner_text()
        assert words.startswith("formula")
        assert "\n" not in words
        assert says in words
        assert len(words) < 400
        assert panel.field("formula").input_value() == text
        assert panel.field("formula").get_attribute("aria-invalid") == "true"
        assert (panel.python(), panel.curves()) == (before, curves)
    panel.type("formula", "log(3 + exp(s))")
    assert message.inner_text() == ""
    assert panel.curves() == [*curves, "live log(3 + exp(s))"]
    assert panel.root.locator('path.limit[data-curve="live log(3 + exp(s))"]').count() == 1


@pytest.mark.wide
def test_pin_and_unpin(panel):
    panel.kernels("exp")
    panel.button("Pin these curves").click()
    panel.settled()
    panel.slider("length").focus()
    panel.page.keyboard.press("PageUp")
    panel.choose("rows", "window")
    (kept,) = [name for name in panel.curves() if name.startswith("pin")]
    assert len(panel.curves()) == 2
    panel.choose("x", "gamma")
    path = panel.path(kept)
    assert misfit(panel, path, "log", lambda x: evaluate("exp", gamma=x).log_S) < 2
    assert panel.number(kept, "S") == pytest.approx(math.exp(-0.5))
    panel.root.get_by_role("button", name="Unpin").press("Enter")
    panel.settled()
    assert panel.curves() == ["live exp"]
    for _ in range(7):  # more than are kept: a message, no more
        panel.slider("gamma").press("ArrowRight")
        panel.settled()
        panel.button("Pin these curves").click()
        panel.settled()
    assert "at most 6" in panel.root.locator(".controls > .message").inner_text()
    assert len(panel.curves()) == 7


@pytest.mark.wide
def test_reset(panel):
    read = """e => [...e.querySelectorAll('input, select')]
      .map((x) => x.type === 'checkbox' ? x.checked : x.value)"""
    fresh = panel.root.locator(".controls").evaluate(read)
    panel.kernels("identity")
    panel.choose("rows", "decay")
    panel.choose("x", "length")
    panel.choose("y", "n_eff")
    panel.type("gamma", "nonsense")
    panel.button("Pin these curves").click()
    panel.reset()
    assert panel.root.locator(".controls").evaluate(read) == fresh
    assert panel.curves() == ["live exp", "live relu2"]
    assert panel.root.locator(".message:visible").count() == 0


@pytest.mark.wide
def test_copy_the_python_call(panel):
    for rows in ("iid", "rope"):  # tests/test_panel_rows.py has the calls of every row law
        panel.kernels("exp")
        panel.choose("rows", rows)
        panel.type("length", "128")
        panel.wait_for("return root.querySelector('[data-of=n_eff]').dataset.value !== ''")
        panel.wait_for("return root.querySelector('[data-of=S]').dataset.value !== ''")
        panel.page.evaluate("navigator.clipboard.writeText('')")
        panel.button("Copy the Python call").click()
        panel.wait_for("return navigator.clipboard.readText().then((text) => text !== '')")
        panel.wait_for(
            "return root.querySelector('.stage .buttons .soft').textContent === 'copied'"
        )
        text = panel.page.evaluate("navigator.clipboard.readText()")
        numbers, chart = text.split("\n\n")  # tests/test_panel_chart_call.py draws the chart
        assert ("plot(\n    [Row(" in chart) == (rows == "iid")  # RoPE has no curve against γ
        *setup, limit, rows_of_n = numbers.splitlines()
        names = {}
        exec("\n".join(setup), names)
        assert float(eval(limit, names)) == pytest.approx(panel.number("live exp", "S"), rel=1e-9)
        assert float(eval(rows_of_n, names)) == pytest.approx(
            panel.number("live exp", "n_eff"), rel=1e-9
        )


@pytest.mark.wide
def test_save_svg(panel):
    panel.kernels("exp", "relu2")
    with panel.page.expect_download() as found:
        panel.button("Save SVG").click()
    root = ElementTree.parse(found.value.path()).getroot()
    space = "{http://www.w3.org/2000/svg}"
    assert found.value.suggested_filename == "sparsity.svg"
    kinds = [path.get("class") for path in root.iter(f"{space}path")]
    assert kinds.count("limit") == 2
    words = " ".join(text.text or "" for text in root.iter(f"{space}text"))
    assert "A  exp" in words
    assert "B  relu2" in words
    assert "1/√n" in words


@pytest.mark.wide
def test_save_csv(panel):
    panel.kernels("exp", "nonnegative")
    panel.type("length", "100")
    line = f'path.exact[data-curve="{curve("exp")}"]:not(.stale):not([opacity])'
    panel.wait_for(f"return root.querySelector('{line}')")
    with panel.page.expect_download() as found:
        panel.button("Save CSV").click()
    text = found.value.path().read_text("utf-8")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert found.value.suggested_filename == "sparsity.csv"
    assert {row["kernel"] for row in rows} == {"exp", "nonnegative"}
    own = [row for row in rows if row["kernel"] == "exp"]
    assert len(own) >= 400
    gammas = np.array([float(row["gamma"]) for row in own])
    S = np.array([float(row["S_limit"]) for row in own])
    np.testing.assert_allclose(S, evaluate("exp", gamma=gammas).S, rtol=1e-12)
    known = [row for row in own if row["S_rms"]]
    assert len(known) >= 65
    row = known[len(known) // 2]
    law = exact("exp", length=100, gamma=float(row["gamma"]))
    assert float(row["n_eff"]) == pytest.approx(float(law.value), rel=1e-9)
    panel.slider("gamma").press("ArrowRight")  # and the panel goes on
    panel.settled()


NONSENSE = (
    ("gamma", "abc", "give a number"),
    ("length", "1.5", "whole number"),
    ("decay", "1.5", "in (0, 1]"),
)


@pytest.mark.wide
@pytest.mark.parametrize(("name", "text", "says"), NONSENSE)
def test_nonsense_meets_a_message_and_a_living_panel(panel, name, text, says):
    before = panel.python()
    panel.type(name, text)
    assert says in panel.message(name)
    assert panel.field(name).get_attribute("aria-invalid") == "true"
    assert panel.field(name).input_value() == text[:40]
    assert panel.python() == before
    panel.slider(name).press("ArrowRight")
    panel.settled()
    assert panel.message(name) == ""
    assert panel.field(name).get_attribute("aria-invalid") == "false"
    panel.slider("gamma").press("ArrowRight")
    panel.settled()
    assert panel.python() != before


@pytest.mark.wide
def test_thirty_presses_end_on_the_right_curve_without_a_queue(panel):
    every_kernel(panel)
    panel.type("gamma", "0.5")
    panel.settled()
    found = burst(panel)
    assert found["steps"] == 30
    assert 1 <= found["drawn"] < 30  # what was passed over was not drawn
    path = panel.path("live relu2")
    wanted = evaluate("relu2", beta=-6 + 12 * path[:, 0], gamma=found["gamma"]).S
    wrong = evaluate("relu2", beta=-6 + 12 * path[:, 0], gamma=1.03 * found["gamma"]).S
    assert np.max(np.abs(path[:, 1] - wanted)) < 2e-3
    assert np.max(np.abs(path[:, 1] - wrong)) > 2e-3


@pytest.mark.wide
def test_a_click_on_the_chart_moves_the_marker(panel):
    panel.root.locator(".plot").scroll_into_view_if_needed()
    box = panel.place("svg.chart")
    panel.page.mouse.click(box["x"] + box["width"] * 0.8, box["y"] + box["height"] * 0.5)
    panel.settled()
    assert 5 < float(panel.field("gamma").input_value()) < 15


def told(panel):
    """What is said of the curve at the pointer: the curve, x, the value, of what, its bound."""
    return panel.root.locator(".told > div").all_text_contents()


@pytest.mark.wide
def test_a_curve_shows_its_values_on_hover(panel):
    """At a node of the exact law: x, √(n_eff/n) and its bound; of the limit; then nothing."""
    panel.kernels("exp")
    panel.wait_for("return root.querySelector('path.exact:not(.stale):not([opacity])')")
    panel.root.locator(".plot").scroll_into_view_if_needed()
    chart, box = panel.place("svg.chart"), panel.box()

    def point(u, v):
        x, y = box["left"] + u * box["width"], box["top"] + (1 - v) * box["height"]
        panel.page.mouse.move(chart["x"] + x, chart["y"] + y)
        return told(panel)

    path = panel.path("live exp", "exact")
    u, v = path[np.argmin(np.abs(path[:, 0] - 0.6))]
    curve, x, value, of, bound = point(u, v)
    gamma, shown = (float(text.split(" = ")[1]) for text in (x, value))
    law = exact("exp", gamma=gamma, length=N)
    assert curve == f"A  exp, n = {N}"
    assert gamma == pytest.approx(0.05 * 400**u, rel=1e-3)
    assert shown == pytest.approx(float(law.S_rms), rel=1e-4)  # of a node, not of a pixel
    assert (of, bound[:15]) == ("rows of n, exact law", "relative error ")
    assert bound.endswith(", estimated")
    u, v = panel.path("live exp")[280]  # where the limit is far below
    _, x, value, of, bound = point(u, v)
    gamma, shown = (float(text.split(" = ")[1]) for text in (x, value))
    assert shown == pytest.approx(math.exp(-(gamma**2) / 2), rel=1e-3)
    assert (of, bound[:16]) == ("long rows, the limit", "relative error ≤")
    point(0.5, 0.99)
    assert panel.root.locator(".told").is_hidden()


@pytest.mark.wide
def test_values_are_read_by_the_keyboard(panel):
    panel.kernels("exp", "relu2")
    panel.wait_for(
        "return root.querySelectorAll('path.exact:not(.stale):not([opacity])').length > 1"
    )
    panel.root.locator(".plot").focus()
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown", "ArrowLeft"):
        panel.page.keyboard.press(key)
        seen.append(told(panel))
    assert [lines[0][0] for lines in seen] == list("AABB")
    x = [float(lines[1].split(" = ")[1]) for lines in seen]
    assert x[0] < x[1] > x[3]
    assert seen[-1][2] in panel.root.locator("[role=status]").inner_text()
    panel.page.keyboard.press("Escape")
    assert panel.root.locator(".told").is_hidden()


@pytest.mark.wide
def test_everything_has_a_name_and_can_be_reached(panel):
    panel.kernels("exp", "nonnegative")
    controls = panel.root.locator("input:visible, select:visible, button:visible")
    names = controls.evaluate_all(
        """all => all.map((e) => e.getAttribute('aria-label') || e.textContent.trim()
          || [...(e.labels ?? [])].map((l) => l.textContent.trim()).join())"""
    )
    assert len(names) >= 25
    assert all(names), names
    assert len(set(names)) == len(names)
    panel.root.locator("input:visible").first.focus()
    seen = set()
    for _ in range(len(names) + 12):
        seen.add(panel.page.evaluate("document.activeElement.outerHTML.slice(0, 200)"))
        panel.page.keyboard.press("Tab")
    reached = controls.evaluate_all("all => all.map((e) => e.outerHTML.slice(0, 200))")
    assert set(reached) <= seen
    chart = panel.root.locator("svg.chart")
    assert chart.get_attribute("role") == "img"
    assert "exp" in chart.get_attribute("aria-label")
    panel.wait_for("return root.querySelector('[role=status]').textContent.includes('nonneg')")
    assert "S = " in panel.root.locator("[role=status]").inner_text()


# The panel and its visible parts, all at one moment.
_PLACES = """(root) => {
  const boxes = [...root.querySelectorAll("input, select, button, svg.chart")]
    .map((part) => part.getBoundingClientRect()).filter((box) => box.width > 0);
  return [root.getBoundingClientRect().toJSON(), boxes.map((box) => box.toJSON())];
}"""


LIGHT, DARK = "JupyterLab Light", "JupyterLab Dark"


@pytest.mark.wide
@pytest.mark.parametrize(("width", "theme"), [(1280, DARK), (640, LIGHT), (400, DARK)])
def test_it_fits_and_suits_the_theme(panel, width, theme):
    panel.page.set_viewport_size({"width": width, "height": 1000})
    change = "(theme) => window.jupyterapp.commands.execute('apputils:change-theme', { theme })"
    panel.page.evaluate(change, theme)
    dark = theme.endswith("Dark")
    panel.wait_for(f"return root.dataset.theme === '{'dark' if dark else 'light'}'")
    panel.kernels("exp", "relu2", "identity", "nonnegative", "decayed")
    panel.settled()
    root, parts = panel.root.evaluate(_PLACES)
    assert panel.root.locator(".numbers").evaluate("e => e.scrollWidth <= e.clientWidth")
    assert panel.root.evaluate("e => e.scrollWidth <= e.clientWidth")
    assert len(parts) > 10
    for box in parts:
        assert root["left"] <= box["left"]
        assert box["right"] <= root["right"] + 1
    chart, gamma = panel.place("svg.chart"), panel.place("input[type=range][data-name=gamma]")
    assert max(chart["bottom"], gamma["y"]) - min(chart["y"], gamma["y"]) < 900
    panel.page.evaluate(change, LIGHT)
