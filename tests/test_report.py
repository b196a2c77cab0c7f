"""The report: well-formed, self-contained, accessible, complete, and the same every time."""

import itertools
import re
from collections import Counter
from html.parser import HTMLParser
from types import SimpleNamespace

import pytest

from sparsity import kernels, report
from sparsity.errors import InputError
from sparsity.figures import Plate
from sparsity.ledger.judging import Claim, Finding
from sparsity.output import write
from sparsity.report import formulas, parts
from sparsity.symbolic import derive

SVG = """<?xml version="1.0"?>
<!DOCTYPE svg PUBLIC "-//W3C//DTD SVG 1.1//EN" "http://www.w3.org/Graphics/SVG/1.1/DTD/svg11.dtd">
<svg xmlns:xlink="http://www.w3.org/1999/xlink" width="9pt" height="9pt" viewBox="0 0 9 9"
 xmlns="http://www.w3.org/2000/svg">
 <metadata><a rdf:resource="http://purl.org/dc/dcmitype/StillImage"/></metadata>
 <defs><style type="text/css">*{stroke-linejoin: round}</style>
 <clipPath id="clip"><rect width="9" height="9"/></clipPath><path id="m" d="M 0 0"/></defs>
 <g id="axes_1"><use xlink:href="#m" clip-path="url(#clip)"/></g>
</svg>
"""
VOID = {"meta", "link", "br", "hr", "img", "input"}
META = {
    "python": "3.11",
    "jax": "0.10",
    "numpy": "2.4",
    "scipy": "1.17",
    "sympy": "1.14",
    "seed": 7,
}


def plate(name):
    files = {"svg": SVG.encode(), "csv": b"x,y\n1,2\n"}
    return Plate(name, f"Title of {name} <&>", "Caption", f'Alt "{name}"', files)


def cell(verdict="agree", log=-1.0, z=-0.7, **parameters):
    estimate = SimpleNamespace(value=0.37, log_value=log, stderr=1e-4, rel_stderr=3e-4)
    return SimpleNamespace(
        kernel="relu2",
        quantity="n_eff",
        parameters=parameters or {"beta": -2.0, "gamma": 1e-6},
        route="rows",
        theory=log,
        estimate=estimate,
        z=z,
        detectable=9e-4,
        verdict=verdict,
        instruments=("exact law", "whole rows"),
    )


def crosscheck(*cells):
    return SimpleNamespace(
        agree=all(c.verdict == "agree" for c in cells),
        cells=cells,
        exact=(),
        false_alarm_rate=1e-4,
        smallest_detectable=9.3e-4,
        seed=0,
    )


def claim(verdict):
    roles = {"confirmed": True, "refined": True, "refuted": False}
    findings = [
        Finding("core", f"core of {verdict} x^2 < y_(p−1)", roles[verdict]),
        Finding("letter", "letter", verdict == "confirmed"),
        Finding("instead", "instead", True),
    ]
    numbers = {"n": 3, "rows": [{"gamma": 1.0, "S": 1e-9}], "ok": True, "list": [1, 2.5]}
    judge = lambda routes, seed: (findings, numbers)  # noqa: E731
    return Claim(verdict, "A source", f"Claim {verdict}", "S = 1", "Proof.", judge).record()


CLAIMS = [claim(v) for v in ("confirmed", "refined", "refuted")]
PAGE = report.render(
    [plate("first"), plate("second")], crosscheck(cell(), cell(log=-5000.0)), CLAIMS, META
)


class Checker(HTMLParser):
    """Balanced tags, and every tag with its attributes."""

    def __init__(self, page):
        super().__init__(convert_charrefs=True)
        self.open, self.seen, self.headings, self.text = [], [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        assert len(attrs) == len(dict(attrs)), f"an attribute twice on {tag}"
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> without a start"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and re.fullmatch("h[1-6]", self.open[-1]):
            self.headings.append((int(self.open[-1][1]), data))
        self.text.append(data)


@pytest.fixture(scope="module")
def checked():
    return Checker(PAGE)


def problems(page):
    """What in a page would reach outside it."""
    found = []
    for tag, attributes in Checker(page).seen:
        for name, value in attributes.items():
            value = value or ""
            if name.split(":")[-1] in {"href", "src", "srcset", "data", "action", "poster"}:
                if not value.startswith(("#", "data:")):
                    found.append((tag, name, value))
            elif "//" in value or re.search(r"url\((?!#)", value):
                found.append((tag, name, value))
        if tag in {"script", "iframe", "object", "embed"}:
            found.append((tag, "", ""))
    if re.search(r"@import|url\((?!#)", page):
        found.append(("style", "", ""))
    return found


def test_page_is_balanced_and_reaches_nothing_outside(checked):
    assert problems(PAGE) == []
    assert "http://" not in PAGE
    assert "https://" not in PAGE
    assert len(checked.seen) > 300


@pytest.mark.parametrize(
    "planted",
    [
        '<img src="https://a.org/x.png">',
        '<link href="//fonts.org/f.css" rel="stylesheet">',
        "<script>1</script>",
        '<p style="background: url(https://a.org/x)"></p>',
        "<style>@import 'x.css';</style>",
    ],
)
def test_a_planted_request_is_seen(planted):
    assert problems(PAGE.replace("</body>", planted + "</body>"))


def test_planted_imbalance_is_seen():
    with pytest.raises(AssertionError):
        Checker(PAGE.replace("</section>", "", 1))


def test_ids_are_unique_and_links_lead_somewhere(checked):
    ids = Counter(a["id"] for _, a in checked.seen if "id" in a)
    assert [name for name, count in ids.items() if count > 1] == []
    targets = [a["href"][1:] for _, a in checked.seen if a.get("href", "").startswith("#")]
    labels = [a["aria-labelledby"] for _, a in checked.seen if "aria-labelledby" in a]
    assert len(targets) >= 15
    assert set(targets + labels) <= set(ids)
    inside = re.findall(r"url\(#([^)]+)\)", PAGE)
    assert inside == ["svg-first-clip", "svg-second-clip"]
    assert set(inside) <= set(ids)


def test_every_figure_has_words_and_data(checked):
    drawings = [a for tag, a in checked.seen if tag == "svg"]
    assert [a["role"] for a in drawings] == ["img", "img"]
    assert [a["aria-label"] for a in drawings] == ['Alt "first"', 'Alt "second"']
    assert sum(tag == "figcaption" for tag, _ in checked.seen) == 2
    saved = [a["download"] for tag, a in checked.seen if tag == "a" and "download" in a]
    assert saved == ["first.csv", "second.csv"]


def test_styles_of_a_drawing_stay_inside_it():
    assert "#svg-first *{stroke-linejoin" in PAGE
    assert re.search(r"<style[^>]*>\s*\*", PAGE) is None


def test_headings_descend_one_level_at_a_time(checked):
    levels = [level for level, _ in checked.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_language_title_and_viewport(checked):
    tags = dict(checked.seen)
    assert tags["html"]["lang"] == "en"
    assert ("meta", {"charset": "utf-8"}) in checked.seen
    assert "width=device-width" in PAGE
    assert "prefers-color-scheme: dark" in PAGE
    assert "@media print" in PAGE


def test_everything_is_there(checked):
    text = " ".join("".join(checked.text).split())
    for record in CLAIMS:
        assert record["claim"] in text
        assert record["verdict"] in text
    assert "1 confirmed, 1 refined, 1 refuted" in text
    for name, value in META.items():
        assert name in text
        assert str(value) in text
    for kernel in kernels.ALL:
        assert f'id="kernel-{kernel.name}"' in PAGE
    assert "sparsity reproduce --seed 7" in text
    assert "β\u202f=\u202f−2, γ\u202f=\u202f1\u2009×\u200910−6" in "".join(checked.text)
    assert "e<sup>−5\u202f000</sup>" in PAGE  # where the value itself underflows
    assert "−0.70" in text


def test_disagreement_is_shown_outside_the_fold():
    page = report.render([], crosscheck(cell(), cell("disagree", z=9.0)), [], META)
    Checker(page)
    assert "Theory and sampling agree in 1 of 2 cells" in page
    assert 'class="badge disagree"' in page.split("<details>")[0]
    assert "Cells that do not agree" in page
    assert "Cells that do not agree" not in PAGE


def test_an_error_bar_that_underflows_is_shown_in_relative_terms():
    far = cell(log=-5000.0)
    far.estimate.stderr = 0.0
    page = report.render([], crosscheck(far), [], META)
    assert "e<sup>−5\u202f000</sup> × (1 ± 0.0003)" in page


def test_the_same_arguments_give_the_same_page():
    plates = [plate("first"), plate("second")]
    again = report.render(plates, crosscheck(cell(), cell(log=-5000.0)), CLAIMS, META)
    assert again == PAGE


def test_write_is_whole_or_not_at_all(tmp_path):
    path, page = tmp_path / "index.html", report.render([], crosscheck(cell()), CLAIMS, META)
    write(path, page)
    assert path.read_text("utf-8").endswith("</html>\n")
    assert [p.name for p in tmp_path.iterdir()] == ["index.html"]
    with pytest.raises(InputError, match="cannot be written"):
        write(tmp_path / "absent" / "index.html", page)


def test_environment_names_what_a_reader_needs():
    found = report.environment(seed=3)
    assert {"python", "jax", "numpy", "scipy", "sympy", "device", "seed"} <= set(found)
    assert found["seed"] == "3"


@pytest.mark.parametrize("kernel", kernels.ALL, ids=lambda kernel: kernel.name)
def test_formulas_are_mathml(kernel):
    lines, limits = formulas.derivation(derive(kernel))
    assert [label for label, _ in lines][:4] == [
        "Weight",
        "First moment",
        "Second moment",
        "Sparsity",
    ]
    assert len(limits) >= 2
    for part in (*(math for _, math in lines), *(x for limit in limits for x in limit)):
        assert "piecewise" not in part
        assert "idx" not in part
        Checker(part)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0.5, "0.5"),
        (-2.0, "−2"),
        (12345, "12\u202f345"),
        (1e-6, "1\u2009×\u200910<sup>−6</sup>"),
        (float("inf"), "∞"),
        ("one-hot", "one-hot"),
    ],
)
def test_numbers_are_written_for_reading(value, text):
    assert parts.number(value) == text


@pytest.mark.parametrize(
    ("plain", "html"),
    [
        ("s^p/p!", "s<sup>p</sup>/p!"),
        ("e^(−z²/2)", "e<sup>−z²/2</sup>"),
        ("m_(p−1) < m_p", "m<sub>p−1</sub> &lt; m<sub>p</sub>"),
        ("n^(−1/2)", "n<sup>−1/2</sup>"),
        ("Σ_(r≤p) s^r/r!", "Σ<sub>r≤p</sub> s<sup>r</sup>/r!"),
        ("max(β+γε, 0)^p", "max(β+γε, 0)<sup>p</sup>"),
    ],
)
def test_prose(plain, html):
    assert parts.prose(plain) == html


def test_an_svg_without_a_viewbox_is_refused():
    with pytest.raises(ValueError, match="viewBox"):
        parts.inline_svg("<svg></svg>", "a", "b")
