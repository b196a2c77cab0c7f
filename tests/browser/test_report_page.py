"""The page that `sparsity reproduce` writes, as a reader finds it."""

import csv
import io
import json
import re
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from browser.guard import Guard
from sparsity.plots.colors import contrast

pytestmark = pytest.mark.browser

PAGE = Path(__file__).resolve().parents[2] / "figures" / "index.html"
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 400, "height": 800}


@pytest.fixture(scope="module")
def loaded(chromium):
    """The page, alone with itself; loaded once, for that is most of what a test would take."""
    guard = Guard(chromium, [PAGE.parent.as_uri()])
    guard.page.goto(PAGE.as_uri())
    yield guard
    guard.close()


@pytest.fixture
def opened(loaded):
    """(viewport, colour scheme) -> that page from its top, judged at the end."""

    def make(viewport, color_scheme="light"):
        loaded.page.set_viewport_size(viewport)
        loaded.page.emulate_media(color_scheme=color_scheme)
        loaded.page.evaluate("scrollTo(0, 0)")
        return loaded.page

    yield make
    loaded.check()


@contextmanager
def styled(page, css):
    """The page with one more style while the block runs: to load it anew would take longer."""
    tag = page.add_style_tag(content=css)
    yield
    tag.evaluate("tag => tag.remove()")


def figures(page):
    return page.locator("figure .plate > img")


_FIGURES = """all => all.map((figure) => {
  const { width, height } = figure.getBoundingClientRect();
  return [figure.naturalWidth, width, height, figure.alt];
})"""


def test_every_figure_is_seen_and_described(opened):
    seen = figures(opened(viewport=WIDE)).evaluate_all(_FIGURES)
    assert len(seen) >= 8
    for natural, width, height, words in seen:
        assert natural > 400  # the file was there
        assert width > 400
        assert height > 200
        assert len(words) > 60
    assert len({words for *_, words in seen}) == len(seen)


@pytest.mark.wide
def test_formulas_and_headings(opened):
    page = opened(viewport=WIDE)
    assert page.locator("math").count() >= 10
    assert page.locator("h1").count() == 1
    assert page.title()
    assert page.locator("html[lang]").count() == 1
    targets = page.locator("a[href^='#']").evaluate_all(
        "all => all.map((a) => document.querySelectorAll(a.getAttribute('href')).length)"
    )
    assert set(targets) == {1}


@pytest.mark.wide
def test_readable_on_a_telephone(opened):
    page = opened(viewport=NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    sizes = page.locator("p, li, td, figcaption, dd").evaluate_all(
        """all => all.filter((e) => e.offsetParent && e.textContent.trim())
          .map((e) => parseFloat(getComputedStyle(e).fontSize))"""
    )
    assert len(sizes) > 50
    assert min(sizes) >= 12
    heights = figures(page).evaluate_all("all => all.map((e) => e.getBoundingClientRect().height)")
    assert min(heights) > 150


def _rgb(text):
    return [float(x) / 255 for x in re.findall(r"[\d.]+", text)[:3]]


@pytest.mark.wide
@pytest.mark.parametrize(("viewport", "scheme"), [(WIDE, "light"), (NARROW, "dark")])
def test_text_stands_out_in_light_and_dark(opened, scheme, viewport):
    page = opened(viewport=viewport, color_scheme=scheme)
    ground = (
        _rgb(page.evaluate("getComputedStyle(document.documentElement).backgroundColor")) or None
    )
    body = page.evaluate("getComputedStyle(document.body).backgroundColor")
    if "0, 0, 0, 0" not in body:
        ground = _rgb(body)
    assert (sum(ground) < 0.8) == (scheme == "dark")
    colours = set(
        page.locator("p, li, td, th, figcaption, h1, h2, h3, a, .badge").evaluate_all(
            "all => all.filter((e) => e.offsetParent).map((e) => getComputedStyle(e).color)"
        )
    )
    assert len(colours) >= 3
    for colour in colours:
        assert contrast(_rgb(colour), ground) >= 4.5, colour


@pytest.mark.wide
def test_the_answer_is_on_top(opened):
    page = opened(viewport=WIDE)

    def tops():
        parts = ["h1", "#figure-overview img", "#who", ".stacks", "#refuted", "math"]
        first = "(part) => document.querySelector(part).getBoundingClientRect().y"
        return page.evaluate(f"(parts) => parts.map({first})", parts)

    assert tops() == sorted(tops())
    assert tops()[1] < WIDE["height"] / 2
    with styled(page, "#who { position: relative; top: 1000rem }"):
        assert tops() != sorted(tops())


WHOLE = ".plate, #answer .scroll"  # what shows without scrolling
CUT = f"""() => [
  ...[...document.querySelectorAll('{WHOLE}')].filter((e) => e.scrollWidth > e.clientWidth),
  ...[...document.querySelectorAll('body *')].filter((e) =>
    e.checkVisibility() && !e.closest('.scroll, .plate, .lines dd, pre, .hidden') &&
    e.getBoundingClientRect().right > innerWidth + 1),
].map((e) => e.tagName + ' ' + e.className + ' ' + e.textContent.slice(0, 40))"""


@pytest.mark.wide
def test_nothing_is_cut_on_a_telephone(opened):
    page = opened(viewport=NARROW)
    shut = page.evaluate_handle("[...document.querySelectorAll('details:not([open])')]")
    shut.evaluate("all => all.forEach((e) => { e.open = true })")
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
    assert page.evaluate(CUT) == []
    wide = ".stacks table, .plate img { min-width: 45rem !important } h1 { width: 30rem }"
    with styled(page, wide):
        cut = page.evaluate(CUT)
        assert {text.split()[0] for text in cut} == {"DIV", "H1"}
        assert page.evaluate("document.documentElement.scrollWidth") > NARROW["width"]
    shut.evaluate("all => all.forEach((e) => { e.open = false })")


@pytest.mark.wide
def test_a_figure_is_enlarged_where_it_is_small(opened):
    page = opened(viewport=NARROW)
    plate = page.locator("figure .plate").first
    assert plate.locator("img").first.bounding_box()["width"] < NARROW["width"]
    plate.focus()
    assert plate.locator("img").first.bounding_box()["width"] > 1.5 * NARROW["width"]
    assert page.evaluate("document.documentElement.scrollWidth") == NARROW["width"]
    plate.blur()
    assert plate.locator("img").first.bounding_box()["width"] < NARROW["width"]


def fonts(page, selector):
    """(family, embedded) of every font that a browser took for the elements."""
    session = page.context.new_cdp_session(page)
    session.send("DOM.enable")
    session.send("CSS.enable")
    root = session.send("DOM.getDocument", {"depth": 0})["root"]["nodeId"]
    found = session.send("DOM.querySelectorAll", {"nodeId": root, "selector": selector})
    used = set()
    for node in found["nodeIds"]:
        told = session.send("CSS.getPlatformFontsForNode", {"nodeId": node})["fonts"]
        used |= {(font["familyName"], font["isCustomFont"]) for font in told}
    return used


@pytest.mark.wide
def test_mathematics_is_in_its_own_font(guarded):
    page = guarded([], viewport=WIDE)  # to be told of fonts a browser asks for a file once more
    page.set_content(PAGE.read_text("utf-8"))
    own = {("Report Math", True)}
    assert fonts(page, "math") == own
    page.locator("math mi").first.evaluate("e => { e.textContent = 'ᵀ' }")
    assert fonts(page, "math") != own


def grounds(page):
    """Of every fourth figure: the lightness of its edge, its darkest and its brightest spot."""
    from PIL import Image

    for plate in page.locator(".plate").all()[::4]:
        picture = Image.open(io.BytesIO(plate.screenshot())).convert("L")
        grey = np.asarray(picture, float)
        yield np.median(grey[20:-20, 20]), grey[8:-8, 8:-8].min(), grey[8:-8, 8:-8].max()


@pytest.mark.wide
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_figures_follow_the_scheme(opened, scheme):
    page = opened(viewport=WIDE, color_scheme=scheme)
    seen = list(grounds(page))
    assert len(seen) >= 4
    for edge, darkest, brightest in seen:
        assert edge < 40 if scheme == "dark" else edge > 250
        assert brightest - darkest > 150  # ink on its ground
    wrong = {"light": "filter: invert(1)", "dark": "filter: none; mix-blend-mode: normal"}[scheme]
    with styled(page, f".plate img {{ {wrong} }}"):
        assert abs(next(grounds(page))[0] - seen[0][0]) > 150


def rows_of(name):
    with (PAGE.parent / f"{name}.csv").open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def told(page, name):
    """What the page says at the pointer, line by line."""
    return page.locator(f"#figure-{name} .values > div").all_text_contents()


def test_a_figure_shows_its_values_on_hover(opened):
    """At a sampled point of squared ReLU: the numbers of its row in the CSV."""
    page = opened(viewport=WIDE)
    row = next(
        r
        for r in rows_of("relu2")
        if r["series"] == "β = 1" and 1 < float(r["x"]) < 2 and r["seed"]
    )
    places = json.loads(page.locator("#figure-relu2").get_attribute("data-places"))
    (left, top, width, height), (_, low, high) = places[0]["box"], places[0]["x"]
    (_, bottom, most), u = places[0]["y"], np.log(float(row["x"]) / low) / np.log(high / low)
    v = (float(row["estimate"]) - bottom) / (most - bottom)
    drawing = page.locator("#figure-relu2 .plate > img")
    drawing.scroll_into_view_if_needed()
    box = drawing.bounding_box()
    k = box["width"] / (7.2 * 72)  # pixels a point: the figure is 7.2 inches wide
    page.mouse.move(box["x"] + k * (left + u * width), box["y"] + k * (top + (1 - v) * height))
    series, x, theory, sample = told(page, "relu2")
    assert series == "β = 1"
    assert float(x.rsplit(" ", 1)[1]) == pytest.approx(float(row["x"]), rel=1e-4)
    assert float(theory.rsplit(" ", 1)[1]) == pytest.approx(float(row["theory"]), rel=1e-4)
    ((value, half),) = re.findall(r"^Monte Carlo: (\S+) ± (\S+) \(95 %\)$", sample)
    assert float(value) == pytest.approx(float(row["estimate"]), rel=1e-4)
    assert float(half) == pytest.approx(1.96 * float(row["stderr"]), rel=0.05)
    spot = page.locator("#figure-relu2 .spot").bounding_box()
    near = [spot["x"] + spot["width"] / 2, spot["y"] + spot["height"] / 2]
    assert near == pytest.approx(
        [box["x"] + k * (left + u * width), box["y"] + k * (top + (1 - v) * height)], abs=2
    )
    page.mouse.move(box["x"] + 5, box["y"] + 5)  # no curve is near
    assert page.locator("#figure-relu2 .values").is_hidden()


@pytest.mark.wide
def test_values_are_read_by_the_keyboard(opened):
    page = opened(viewport=WIDE)
    page.locator("#figure-bias .plate").focus()
    seen = []
    for key in ("ArrowRight", "ArrowRight", "ArrowDown"):
        page.keyboard.press(key)
        seen.append(told(page, "bias"))
    rows = rows_of("bias")
    assert [lines[0] for lines in seen] == [rows[0]["series"]] * 2 + [seen[2][0]]
    assert seen[0][1] != seen[1][1] == seen[2][1]
    assert seen[2][0] != seen[1][0]
    page.keyboard.press("Escape")
    assert page.locator("#figure-bias .values").is_hidden()


_FIRST_VALUES = """all => all.map((plate) => {
  plate.dispatchEvent(new KeyboardEvent('keydown', { key: 'ArrowRight' }));
  return [...plate.querySelectorAll('.values > div')].map((line) => line.textContent);
})"""


def test_every_figure_has_values(opened):
    found = opened(viewport=WIDE).locator("figure[data-places] .plate").evaluate_all(_FIRST_VALUES)
    assert len(found) == len(list(PAGE.parent.glob("*.svg")))
    for lines in found:
        assert len(lines) >= 3
        assert not [line for line in lines if re.search("NaN|undefined", line)], lines
