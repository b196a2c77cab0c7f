"""The documentation, built as CONTRIBUTING says: whole, offline, and fit for a phone."""

import io
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from urllib.parse import unquote, urldefrag

import numpy as np
import pytest
from PIL import Image

pytestmark = pytest.mark.browser

HOME = Path(__file__).resolve().parents[2]
# Wider than the window, and in no box that scrolls by itself or is out of sight.
CUT = """() => {
  const wide = document.documentElement.clientWidth + 1;
  const boxed = (e) => {
    for (let x = e; x && x !== document.body; x = x.parentElement) {
      const style = getComputedStyle(x);
      if (style.overflowX !== 'visible' || style.visibility === 'hidden') return true;
      if (style.position === 'fixed') return true;
    }
    return false;
  };
  return [...document.querySelectorAll('body *')]
    .filter((e) => e.getBoundingClientRect().right > wide && !boxed(e))
    .map((e) => e.outerHTML.slice(0, 120));
}"""
SCROLLS = "() => document.scrollingElement.scrollWidth - document.documentElement.clientWidth"
# Source whose lines do not fit their box. What a notebook printed may be wider: it scrolls.
CODE_CUT = """() => [...document.querySelectorAll('div.highlight pre')]
  .filter((e) => !e.closest('.cell_output') && e.scrollWidth > e.clientWidth + 1)
  .map((e) => e.innerText.slice(0, 120))"""
READY = "() => window.MathJax?.startup?.promise"


def command():
    """What builds the site, from CONTRIBUTING: the end of its line, without the folder."""
    (line,) = re.findall(r"`.*&& \.venv/bin/python (-m sphinx .*) out/docs`", _contributing())
    return [sys.executable, *shlex.split(line)]


def _contributing():
    return " ".join((HOME / "CONTRIBUTING.md").read_text("utf-8").split())


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built here, or where `SPARSITY_SITE` says that it was built a moment ago."""
    if built := os.environ.get("SPARSITY_SITE"):
        return Path(built).resolve()
    out = tmp_path_factory.mktemp("site")
    done = subprocess.run([*command(), str(out)], cwd=HOME, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "WARNING" not in done.stderr
    return out


def html(site):
    """Every page but the first, which leads to the one after the title."""
    every = [path for path in site.rglob("*.html") if "_static" not in path.parts]
    return [path for path in every if path != site / "index.html"]  # leads on to docs/index.html


def test_every_page_is_built(site):
    names = {path.relative_to(site).with_suffix("").as_posix() for path in html(site)}
    assert {f"notebooks/{path.stem}" for path in (HOME / "notebooks").glob("*.ipynb")} < names
    assert {f"docs/{path.stem}" for path in (HOME / "docs").glob("*.md")} < names
    results = (HOME / "benchmarks/results").glob("*.md")
    assert {f"benchmarks/results/{path.stem}" for path in results} < names
    generated = {"plots", "catalogue", "api-instruments", "experiments"}
    assert {f"docs/generated/{name}" for name in generated} < names
    assert {"figures/index", "figures/explore"} < names


def test_every_public_name_is_in_the_reference(site):
    import sparsity

    text = "".join(path.read_text("utf-8") for path in site.glob("docs/generated/api-*.html"))
    told = set(re.findall(r'id="(?:module-)?sparsity\.([\w.]+)"', text))
    assert set(sparsity.__all__) - told == set()
    assert "no_such_name" not in told
    assert "&lt;function" not in text  # a default whose address would stand there


def links(path):
    """(file, anchor) of every link of a page inside the site; the addresses of those outside."""
    text = path.read_text("utf-8")
    inside, outside = [], []
    for address in re.findall(r'<(?:a|img|link|script)\b[^>]*?\s(?:href|src)="([^"]*)"', text):
        if address.startswith("data:"):
            continue  # in the page itself
        target, anchor = urldefrag(address)
        if re.match(r"[a-z]+:", target):
            outside.append(target)
        else:
            to = (path.parent / unquote(target.split("?")[0])).resolve() if target else path
            inside.append((to, unquote(anchor)))
    return inside, outside


def broken(site):
    """Every link inside the site that leads nowhere."""
    anchors = {}
    found = []
    for path in html(site):
        for to, anchor in links(path)[0]:
            if to not in anchors:
                known = to.suffix == ".html" and to.is_file()
                text = to.read_text("utf-8") if known else ""
                anchors[to] = set(re.findall(r'\sid="([^"]*)"', text)) if known else set()
            if not to.is_file() or (anchor and anchor not in anchors[to]):
                found.append(f"{path.relative_to(site)}: {to.name}#{anchor}")
    return found


def test_no_link_inside_is_broken(site):
    assert broken(site) == []
    extra = site / "docs/planted.html"
    extra.write_text('<a href="index.html">a</a><a href="index.html#none">b</a>')
    try:
        assert broken(site) == ["docs/planted.html: index.html#none"]
    finally:
        extra.unlink()


def look(page, path):
    """Open a page at 400 and at 1280 pixels: what is cut, and whether the page scrolls sideways."""
    found = []
    page.set_viewport_size({"width": 400, "height": 800})
    page.goto(path.as_uri())
    page.evaluate(READY)
    for width in (400, 1280):
        page.set_viewport_size({"width": width, "height": 800})
        found += page.evaluate(CUT)
        if page.evaluate(SCROLLS) > 0:
            found.append(f"scrolls at {width}")
    return found + page.evaluate(CODE_CUT)


@pytest.mark.wide
def test_every_page_asks_nothing_of_the_world_and_is_whole(site, guarded):
    page = guarded([site.as_uri()])
    cut = {path.relative_to(site).as_posix(): look(page, path) for path in html(site)}
    assert {name: found for name, found in cut.items() if found} == {}
    assert len(cut) > 40
    page.goto((site / "docs/generated/catalogue.html").as_uri())
    page.evaluate(READY)
    assert page.locator("mjx-container svg").count() > 20
    assert page.locator("[data-mjx-error]").count() == 0


def test_the_front_page_has_three_doors_and_one_search(site, guarded):
    page = guarded([site.as_uri()])
    page.goto((site / "docs/index.html").as_uri())
    page.set_viewport_size({"width": 1280, "height": 800})
    assert page.locator(".door > p:first-child").all_inner_texts() == [
        "I read the article",
        "I extend or train a model",
        "I add a kernel",
    ]
    assert all(page.locator(".door").nth(i).locator("a").count() >= 3 for i in range(3))
    search = page.locator("button[aria-label='Search'], input[type='search']")
    assert search.locator("visible=true").count() == 1
    picture = page.locator(".bd-article img").first
    assert picture.bounding_box()["y"] < 800
    assert picture.get_attribute("alt")


def test_a_page_that_is_cut_or_asks_is_seen(site, chromium, guarded):
    from browser.guard import Guard

    text = (site / "docs/start.html").read_text("utf-8")
    wide = '<img src="https://example.org/a.png"><p style="width: 700px">a</p></article>'
    code = '<div class="highlight"><pre>'
    assert code in text
    assert "</article>" in text
    planted = site / "docs/planted.html"
    planted.write_text(text.replace(code, f"{code}{'x' * 200}", 1), "utf-8")
    (found,) = look(guarded([site.as_uri()]), planted)
    assert found.startswith("x" * 120)
    planted.write_text(text.replace("</article>", wide), "utf-8")
    guard = Guard(chromium, [site.as_uri()])
    try:
        guard.context.route("https://**", lambda route: route.abort())
        assert look(guard.page, planted) != []
        assert guard.outside == ["https://example.org/a.png"]
    finally:
        planted.unlink()
        guard.context.close()


def edge(picture):
    """The lightness of a picture along its left edge, as it is seen."""
    picture.scroll_into_view_if_needed()
    seen = np.asarray(Image.open(io.BytesIO(picture.screenshot())).convert("L"), float)
    return np.median(seen[10:-10, 3:8])


@pytest.mark.wide
def test_dark_and_light(site, guarded):
    """Figures follow the scheme; where a colour is a value they stay on white."""
    for scheme in ("light", "dark"):
        page = guarded([site.as_uri()], color_scheme=scheme)
        page.goto((site / "docs/generated/plots.html").as_uri())
        ground = page.evaluate("() => getComputedStyle(document.body).backgroundColor")
        light = sum(map(int, re.findall(r"\d+", ground)[:3])) > 3 * 128
        assert light == (scheme == "light")
        plate = page.locator(".bd-article img").first
        assert plate.evaluate("(e) => e.naturalWidth > 0")
        assert edge(plate) > 250 if scheme == "light" else edge(plate) < 40
        page.goto((site / "docs/models.html").as_uri())
        assert edge(page.locator(".bd-article img").first) > 250
