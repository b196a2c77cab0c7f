"""The report: well-formed, self-contained, accessible, complete, and the same every time."""

import base64
import itertools
import json
import re
import threading
from collections import Counter
from dataclasses import replace
from html import escape
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparsity import InputError, derive, figures, kernels, report
from sparsity import claims_ledger as ledger
from sparsity.claims_ledger.findings import VERDICTS, Finding
from sparsity.claims_ledger.judging import Claim, Legend
from sparsity.figures import Plate
from sparsity.output import json_text, write
from sparsity.report import answer, claims, formulas, parts, reproduction
from sparsity.report.parts import inline_svg

FIGURES = Path(__file__).resolve().parents[1] / "figures"
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
    role = "reported" if verdict == "reported" else "core"
    findings = [
        Finding(role, f"{role} of {verdict} x^2 < y_(p−1)", verdict != "refuted"),
        Finding("letter", "letter", verdict in ("confirmed", "reported")),
        Finding("instead", "instead", True),
    ]
    numbers = {"n": 3, "rows": [{"gamma": 1.0, "S": 1e-9}], "ok": True, "list": [1, 2.5]}
    judge = lambda routes, seed: (findings, numbers)  # noqa: E731
    return Claim(verdict, "A source", f"Claim {verdict}", "S = 1", "Proof.", judge).record()


CLAIMS = [claim(v) for v in VERDICTS]


def rendered():
    """A page of two figures, two cells and four claims."""
    plates = [plate("first"), plate("second")]
    return report.render(plates, crosscheck(cell(), cell(log=-5000.0)), CLAIMS, META)


@pytest.fixture(scope="module")
def whole():
    return rendered()


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
def checked(whole):
    return Checker(whole)


_OUTSIDE = r"url\((?!#|\"data:)"


SCRIPT = f"<script>\n{Path(report.__file__).with_name('hover.js').read_text('utf-8')}</script>"
BESIDE = {"a": ("first.svg", "first.png", "second.svg", "second.png")}  # links to files beside it


def problems(page):
    """What in a page would reach outside it, or run but for the one script."""
    found = []
    assert page.count(SCRIPT) <= 1
    for tag, attributes in Checker(page.replace(SCRIPT, "")).seen:
        for name, value in attributes.items():
            value = value or ""
            if name.split(":")[-1] in {"href", "src", "srcset", "data", "action", "poster"}:
                beside = value in BESIDE.get(tag, ()) or (tag, value) == ("a", reproduction.EXPLORE)
                if not value.startswith(("#", "data:")) and not beside:
                    found.append((tag, name, value))
            elif "//" in value or re.search(_OUTSIDE, value):
                found.append((tag, name, value))
        if tag in {"script", "iframe", "object", "embed"}:
            found.append((tag, "", ""))
    if re.search(rf"@import|{_OUTSIDE}", page):
        found.append(("style", "", ""))
    return found


def test_page_is_balanced_and_reaches_nothing_outside(checked, whole):
    assert problems(whole) == []
    assert "http://" not in whole
    assert "https://" not in whole
    assert len(checked.seen) > 300


@pytest.mark.parametrize(
    "planted",
    [
        '<img src="https://a.org/x.png">',
        '<link href="//fonts.org/f.css" rel="stylesheet">',
        "<script>1</script>",
        '<script src="first.svg"></script>',
        '<img src="first.png">',
        '<p style="background: url(https://a.org/x)"></p>',
        "<style>@import 'x.css';</style>",
        '<style>@font-face { src: url("https://a.org/x.woff2"); }</style>',
    ],
)
def test_a_planted_request_is_seen(planted, whole):
    assert problems(whole.replace("</body>", planted + "</body>"))


def test_planted_imbalance_is_seen(whole):
    with pytest.raises(AssertionError):
        Checker(whole.replace("</section>", "", 1))


def test_ids_are_unique_and_links_lead_somewhere(checked, whole):
    ids = Counter(a["id"] for _, a in checked.seen if "id" in a)
    assert [name for name, count in ids.items() if count > 1] == []
    targets = [a["href"][1:] for _, a in checked.seen if a.get("href", "").startswith("#")]
    labels = [a["aria-labelledby"] for _, a in checked.seen if "aria-labelledby" in a]
    assert len(targets) >= 15
    assert set(targets + labels) <= set(ids)
    inside = re.findall(r"url\(#([^)]+)\)", whole)
    assert inside == ["svg-first-clip", "svg-second-clip"]
    assert set(inside) <= set(ids)


def test_every_figure_has_words_and_data(checked):
    drawings = [a for tag, a in checked.seen if tag == "svg"]
    assert [a["role"] for a in drawings] == ["img", "img"]
    assert [a["aria-label"] for a in drawings] == ['Alt "first"', 'Alt "second"']
    assert sum(tag == "figcaption" for tag, _ in checked.seen) == 2
    saved = [a["download"] for tag, a in checked.seen if tag == "a" and "download" in a]
    assert saved == ["first.csv", "second.csv"]
    links = [a["href"] for tag, a in checked.seen if tag == "a"]
    beside = [link for link in links if link[0] != "#" and ":" not in link]
    assert beside == [reproduction.EXPLORE, *BESIDE["a"]]


def test_the_page_leads_to_the_files_beside_it():
    page = (FIGURES / "index.html").read_text("utf-8")
    links = re.findall(r'<a href="([^#][^"]*)"', page)
    assert len(links) == len(set(links)) == 2 * len(figures.ALL) + 1  # and the page to explore
    assert [link for link in links if not (FIGURES / link).is_file()] == []
    assert page.count(" data-places=") == len(figures.ALL)
    assert page.count(SCRIPT) == 1
    described = parts.described((FIGURES / "relu2.svg").read_text("utf-8"))
    assert f'data-places="{escape(described)}"' in page


def test_where_colour_is_a_value_it_is_not_turned_over():
    """A heat map on a dark page: 0 stays dark."""
    mapped = replace(plate("map"), colours=True)
    page = report.figures_section([plate("lines"), mapped])
    kinds = [a["class"] for tag, a in Checker(page).seen if a.get("role") == "region"]
    assert kinds == ["plate", "plate colours"]


def test_styles_of_a_drawing_stay_inside_it(whole):
    assert "#svg-first *{stroke-linejoin" in whole
    assert re.search(r"<style[^>]*>\s*\*", whole) is None


def test_headings_descend_one_level_at_a_time(checked):
    levels = [level for level, _ in checked.headings]
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(levels))


def test_language_title_and_viewport(checked, whole):
    tags = dict(checked.seen)
    assert tags["html"]["lang"] == "en"
    assert ("meta", {"charset": "utf-8"}) in checked.seen
    assert "width=device-width" in whole
    assert "prefers-color-scheme: dark" in whole
    assert "@media print" in whole


def test_everything_is_there(checked, whole):
    text = " ".join("".join(checked.text).split())
    for record in CLAIMS:
        assert record["claim"] in text
        assert record["verdict"] in text
    assert "1 confirmed, 1 refined, 1 reported, 1 refuted" in text
    for name, value in META.items():
        assert name in text
        assert str(value) in text
    for kernel in kernels.ALL:
        assert f'id="kernel-{kernel.name}"' in whole
    assert "sparsity reproduce --seed 7" in text
    assert "β\u202f=\u202f−2, γ\u202f=\u202f1\u2009×\u200910−6" in "".join(checked.text)
    assert "e<sup>−5\u202f000</sup>" in whole  # where the value itself underflows
    assert "−0.70" in text


def test_disagreement_is_shown_outside_the_fold(whole):
    page = report.render([], crosscheck(cell(), cell("disagree", z=9.0)), [], META)
    Checker(page)
    assert "Theory and sampling agree in 1 of 2 cells" in page
    assert 'class="badge disagree"' in page.split("<details>")[0]
    assert "Cells that do not agree" in page
    assert "Cells that do not agree" not in whole


def test_an_error_bar_that_underflows_is_shown_in_relative_terms():
    far = cell(log=-5000.0)
    far.estimate.stderr = 0.0
    page = report.render([], crosscheck(far), [], META)
    assert "e<sup>−5\u202f000</sup> × (1 ± 0.0003)" in page


def test_the_same_arguments_give_the_same_page(whole):
    assert rendered() == whole


def order(page):
    """Where the parts of the answer stand, then what must come after it."""
    return [
        page.index(part)
        for part in ('id="svg-overview"', 'id="who"', 'id="refuted"', "<nav", "<math")
    ]


def test_the_answer_comes_before_any_formula():
    plates = [plate("first"), plate("overview")]
    page = report.render(plates, crosscheck(cell()), CLAIMS, META)
    assert order(page) == sorted(order(page))
    text = " ".join("".join(Checker(page).text).split())
    assert "Figure 1: Title of overview" in text
    assert "Figure 2: Title of first" in text
    planted = page.replace("</h1>", "</h1><math><mi>S</mi></math>")
    assert order(planted) != sorted(order(planted))


def test_the_table_of_who_can_focus():
    """Each row against what is known of the kernel."""
    rows = re.findall(r"<tr>(.*?)</tr>", answer.who_can_focus(), re.DOTALL)[1:]
    found = [re.sub("<[^>]+>", "", row).replace("\u202f", "") for row in rows]
    assert len(found) == len(kernels.ALL)
    softmax, relu2, signed, nonnegative, decayed = found
    assert all("✓ yes" in row for row in (softmax, relu2, nonnegative, decayed))
    assert "✗ no" in signed
    assert "at least 652 tokens" in signed  # of 1024: 2/π of them
    assert "larger spread γ" in softmax
    assert "γ = 3.64" in softmax
    assert "lower bias β" in relu2
    assert "λ = 0.778" in decayed  # (1+λ)/(1−λ) = 8


def test_nothing_is_called_refuted_where_nothing_is():
    page = report.render([], crosscheck(cell()), CLAIMS[:2], META)
    Checker(page)
    assert 'id="refuted"' not in page
    assert "refuted-claim" not in page.split("</style>")[1]


def unlinked(page, claims):
    """Claims that the contents do not link to."""
    contents = page[page.index("<nav") : page.index("</nav>")]
    return [r["key"] for i, r in enumerate(claims, 1) if f'href="#claim-{i}"' not in contents]


def test_the_contents_link_to_every_claim(whole):
    assert unlinked(whole, CLAIMS) == []
    assert unlinked(whole.replace('<a href="#claim-2">', "<a>"), CLAIMS) == ["refined"]


def test_the_font_is_small_free_and_inside(whole):
    home = resources.files("sparsity.report") / "fonts"
    font = (home / "math.woff2").read_bytes()
    assert font[:4] == b"wOF2"
    assert len(font) <= 60 * 1024
    assert "SIL OPEN FONT LICENSE Version 1.1" in (home / "OFL.txt").read_text("utf-8")
    assert base64.b64encode(font).decode() in whole


def unnamed(claims):
    """Numbers that the page would call by a raw key."""

    def names(value):
        if isinstance(value, dict):
            for key, inside in value.items():
                yield key
                yield from names(inside)
        elif isinstance(value, list):
            for inside in value:
                yield from names(inside)

    legends = {claim.key: claim.legend for claim in ledger.ALL}
    return {
        name
        for record in claims
        for name in names(record["evidence"]["numbers"])
        if "_" in name and not legends[record["key"]].knows(name)
    }


def test_every_number_has_words():
    claims = json.loads((FIGURES / "claims.json").read_text("utf-8"))
    assert unnamed(claims) == set()
    claims[0]["evidence"]["numbers"]["cells"][0]["a_raw_key"] = 1.0
    assert unnamed(claims) == {"a_raw_key"}


def test_numbers_are_tables():
    numbers = {
        "n": 3,
        "ok": True,
        "lengths": [10, 100],
        "gammas": [0.5],
        "half_logit": [[1.5, 2.5]],
        "first_rise": [3.0, -1.0],
        "due": [3.1, 41.0],
        "cells": [{"kernel": "exp", "real": {"S": 0.5}}, {"kernel": "relu2", "z": -1.25}],
        "distances": {"none": [0.1, 0.2]},
        "at": {"n": 4096},
    }
    grids = {"half_logit": ("gammas", "lengths")}
    legend = Legend({"due": "π/θ_i"}, columns=(("first_rise", "due"),), grids=grids)
    html = claims.tables(numbers, legend)
    Checker(html)
    rows = [
        re.sub(r"<[^>]+>", " ", row).split() for row in re.findall("<tr>.*?</tr>", html, re.DOTALL)
    ]
    for row in (
        ["row", "length", "n", "3"],
        ["ok", "yes"],
        ["0.5", "1.5", "2.5"],
        ["3", "3.1"],
        ["exp", "0.5", "—"],
        ["relu2", "—", "−1.25"],
        ["none", "0.1", "0.2"],
        ["row", "length", "n", "4", "096"],
    ):
        assert row in rows, row
    apart = claims.tables({"first_rise": [1.0], "due": [1.0, 2.0]}, legend)  # not the same planes
    assert "<td>1, 2</td>" in apart


def test_a_run_is_read_back_as_it_was():
    path = FIGURES / "crosscheck.json"
    found = reproduction.crosscheck(json.loads(path.read_text("utf-8")))
    recorded = reproduction.record(found)
    assert len(recorded["cells"]) > 300
    assert json_text(recorded) == path.read_text("utf-8")
    assert "seconds" not in path.read_text("utf-8")  # they differ from run to run
    plates = reproduction.plates(FIGURES)
    assert plates[0].files["svg"] == (FIGURES / f"{plates[0].name}.svg").read_bytes()


def test_a_page_without_its_files_is_refused(tmp_path):
    with pytest.raises(InputError, match=r"relu2\.svg.*sparsity reproduce"):
        reproduction.page(tmp_path)
    assert not list(tmp_path.iterdir())


def damaged(folder, name, change):
    """A run of which one file is another."""
    folder.mkdir()
    for path in FIGURES.iterdir():
        (folder / path.name).symlink_to(path)
    (folder / name).unlink()
    content = change((FIGURES / name).read_text("utf-8"))
    if content is not None:
        (folder / name).write_text(content, "utf-8")
    return folder


@pytest.mark.parametrize(
    ("name", "change", "said"),
    [
        ("claims.json", lambda text: None, "cannot be read"),
        ("claims.json", lambda text: "{", "is not JSON"),
        ("claims.json", lambda text: "[]", "not of one whole run"),
        ("claims.json", lambda text: json_text(json.loads(text)[1:]), "not of one whole run"),
        ("crosscheck.json", lambda text: "{}", "KeyError"),
        ("crosscheck.json", lambda text: "[]", "TypeError"),
        ("environment.json", lambda text: "[]", "TypeError"),
        ("environment.json", lambda text: text.replace('"0"', '"5"'), "not of one whole run"),
        ("index.html", lambda text: "Not finished: run it\n", "did not finish"),
    ],
)
def test_a_page_of_a_run_that_is_not_whole_is_refused(tmp_path, name, change, said):
    folder = damaged(tmp_path / "run", name, change)
    before = (folder / "index.html").read_bytes()
    with pytest.raises(InputError, match=said) as error:
        reproduction.page(folder)
    assert "\n" not in str(error.value)
    assert (folder / "index.html").read_bytes() == before


def test_write_is_whole_or_not_at_all(tmp_path):
    path, page = tmp_path / "index.html", report.render([], crosscheck(cell()), CLAIMS, META)
    write(path, page)
    assert path.read_text("utf-8").endswith("</html>\n")
    assert [p.name for p in tmp_path.iterdir()] == ["index.html"]
    with pytest.raises(InputError, match="cannot be written"):
        write(tmp_path / "absent" / "index.html", page)


def test_a_part_that_fails_ends_those_under_way_and_the_others_never_begin(monkeypatch):
    monkeypatch.setattr(reproduction, "cores", lambda: 2)
    begun, seen = threading.Event(), []

    def long(step):
        begun.set()
        while True:
            step(0, 1)

    def fails(step):
        assert begun.wait(10)
        raise InputError("out", "gone", "give another")

    with pytest.raises(InputError, match="gone"):
        reproduction.run_side_by_side((long, fails, seen.append), None)
    assert not seen
    done, seconds = reproduction.run_side_by_side([lambda step, i=i: i for i in range(3)], None)
    assert done == [0, 1, 2]
    assert set(seconds) == set(reproduction._PARTS)


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
        ("∫₀^∞ (E e^(−t e^(γε)))ⁿ", "∫₀<sup>∞</sup> (E e<sup>−t e<sup>γε</sup></sup>)ⁿ"),
        ("Π_{i<d}(1 − σ_i)", "Π<sub>i&lt;d</sub>(1 − σ<sub>i</sub>)"),
        ("the row's own n", "the row's own n"),
        ("v_j^(L) & x", "v<sub>j</sub><sup>L</sup> &amp; x"),
        ("a ^ b_", "a ^ b_"),
    ],
)
def test_prose(plain, html):
    assert parts.prose(plain) == html


def test_a_transpose_is_raised_alone():
    assert parts.mathematics("11ᵀV") == "11<sup><i>T</i></sup><i>V</i>"


@pytest.mark.parametrize(
    ("plain", "italic"),
    [
        ("S = E|f(β+γε)|", "Sfβγε"),  # not E
        ("a sink of mass m & value 0 < x", "mx"),  # the article stays upright
        ("a = Σ_(r≤p) s^r/r!", "arpsrr"),  # not Σ
        ("E max(q, 0)^p at n", "qpn"),
        ("n_eff of the row's own n", "nn"),
    ],
)
def test_variables_of_a_formula_are_italic(plain, italic):
    html = parts.mathematics(plain)
    Checker(html)
    assert "".join(re.findall(r"<i>(.)</i>", html)) == italic
    assert re.sub("</?i>", "", html) == parts.prose(plain)


def test_an_svg_without_a_viewbox_is_refused():
    with pytest.raises(ValueError, match="viewBox"):
        inline_svg("<svg></svg>", "a", "b")
