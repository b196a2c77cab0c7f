"""The page that `sparsity reproduce` writes, as a reader finds it."""

import re
from pathlib import Path

import pytest

pytestmark = pytest.mark.browser

PAGE = Path(__file__).resolve().parents[2] / "figures" / "index.html"
WIDE, NARROW = {"width": 1280, "height": 900}, {"width": 400, "height": 800}


@pytest.fixture
def opened(guarded):
    """(options) -> the page, alone with itself."""

    def make(**options):
        page = guarded([PAGE.as_uri()], **options)
        page.goto(PAGE.as_uri())
        return page

    return make


def figures(page):
    return page.locator("figure .plate > svg")


def test_every_figure_is_seen_and_described(opened):
    page = opened(viewport=WIDE)
    assert figures(page).count() >= 8
    for figure in figures(page).all():
        figure.scroll_into_view_if_needed()
        box = figure.bounding_box()
        assert box["width"] > 400
        assert box["height"] > 200
        words = figure.get_attribute("aria-label")
        assert len(words) > 60
        lines = figure.locator("path").evaluate_all(
            "all => all.filter((p) => p.getBBox().width > 50 && p.getTotalLength() > 100).length"
        )
        assert lines >= 3
    assert (
        len({f.get_attribute("aria-label") for f in figures(page).all()}) == figures(page).count()
    )
    assert page.locator("img:not([alt])").count() == 0


def test_formulas_and_headings(opened):
    page = opened(viewport=WIDE)
    assert page.locator("math").count() >= 10
    assert page.locator("h1").count() == 1
    assert page.title()
    assert page.locator("html[lang]").count() == 1
    for anchor in page.locator("a[href^='#']").all():
        assert page.locator(anchor.get_attribute("href")).count() == 1


def test_readable_on_a_telephone(opened):
    page = opened(viewport=NARROW)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    sizes = page.locator("p, li, td, figcaption, dd").evaluate_all(
        """all => all.filter((e) => e.offsetParent && e.textContent.trim())
          .map((e) => parseFloat(getComputedStyle(e).fontSize))"""
    )
    assert len(sizes) > 50
    assert min(sizes) >= 12
    for figure in figures(page).all():
        assert figure.bounding_box()["height"] > 150


def _contrast(a, b):
    def light(rgb):
        parts = [x / 255 for x in rgb]
        linear = [x / 12.92 if x <= 0.04045 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((light(a), light(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def _rgb(text):
    return [float(x) for x in re.findall(r"[\d.]+", text)[:3]]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("viewport", [WIDE, NARROW], ids=["wide", "narrow"])
def test_text_stands_out_in_light_and_dark(opened, scheme, viewport):
    page = opened(viewport=viewport, color_scheme=scheme)
    ground = (
        _rgb(page.evaluate("getComputedStyle(document.documentElement).backgroundColor")) or None
    )
    body = page.evaluate("getComputedStyle(document.body).backgroundColor")
    if "0, 0, 0, 0" not in body:
        ground = _rgb(body)
    assert (sum(ground) < 200) == (scheme == "dark")
    colours = set(
        page.locator("p, li, td, th, figcaption, h1, h2, h3, a, .badge").evaluate_all(
            "all => all.filter((e) => e.offsetParent).map((e) => getComputedStyle(e).color)"
        )
    )
    assert len(colours) >= 3
    for colour in colours:
        assert _contrast(_rgb(colour), ground) >= 4.5, colour
    for plate in page.locator(".plate").all():  # figures are drawn in ink: they keep a white ground
        assert _rgb(plate.evaluate("e => getComputedStyle(e).backgroundColor")) == [255, 255, 255]
