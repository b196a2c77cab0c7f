"""Files of a run that were in other hands: the page shows them as text, or refuses them."""

import copy
import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from sparsity import InputError, report
from sparsity.report import answer, reproduction
from sparsity.report.parts import inline_svg

FIGURES = Path(__file__).parents[1] / "figures"
HONEST = (FIGURES / "relu2.svg").read_text("utf-8")

INSIDE = [  # what is put before the end of a drawing
    "<script>alert(1)</script>",
    '<script href="https://x.example/a.js"/>',
    "<SCRIPT>alert(1)</SCRIPT>",
    "<svg:script xmlns:svg='http://www.w3.org/2000/svg'>alert(1)</svg:script>",
    '<g onload="alert(1)"/>',
    '<path d="M 0 0" onclick="alert(1)"/>',
    "<g onmouseover='alert(1)'/>",
    '<rect OnFocus="alert(1)" tabindex="0"/>',
    "<foreignObject><body xmlns='http://www.w3.org/1999/xhtml'/></foreignObject>",
    "<foreignobject><iframe src='https://x.example'/></foreignobject>",
    '<image href="https://x.example/a.png"/>',
    '<image xlink:href="http://x.example/a.png"/>',
    '<image href="//x.example/a.png"/>',
    '<image href="data:image/svg+xml;base64,PHN2Zz4="/>',
    '<image href="data:text/html,x"/>',
    '<use href="https://x.example/a.svg#a"/>',
    '<use xlink:href="other.svg#a"/>',
    "<use href='#answer'/>",
    '<a href="javascript:alert(1)"><path d="M 0 0"/></a>',
    '<a xlink:href="&#106;avascript:alert(1)"><path d="M 0 0"/></a>',
    "<style>@import url(https://x.example/a.css);</style>",
    '<style>@import "https://x.example/a.css";</style>',
    "<style>* {fill: url(https://x.example/a)}</style>",
    "<style>body{display:none}</style>",
    "<style>@font-face{font-family:a;src:url(//x.example/a)}</style>",
    "<style>a{}</style><style><img src='x' onerror='alert(1)'/></style>",
    '<g style="fill: url(https://x.example/a#b)"/>',
    '<g style="background: url(https://x.example/a)"/>',
    '<g style="fill: u\\72l(https://x.example/a)"/>',
    '<g style="fill: red; behavior: url(#default)"/>',
    '<g style="fill: url(#answer) , url(//x.example)"/>',
    '<g clip-path="url(https://x.example/a#b)"/>',
    '<rect fill="url(https://x.example/a#b)"/>',
    '<set attributeName="href" to="javascript:alert(1)"/>',
    '<animate attributeName="href" values="javascript:alert(1)"/>',
    "<![CDATA[<script>alert(1)</script>]]>",
    "<?xml-stylesheet href='https://x.example/a.css'?>",
    "<title><img src='x' onerror='alert(1)'/></title>",
    "<desc><script>alert(1)</script></desc>",
    "<text>words</text>",
    "words",
    "<iframe src='https://x.example'/>",
    "<p>out of the drawing</p>",
    "&unknown;",
    "<filter id='a'><feImage href='https://x.example/a'/></filter>",
    "<g transform=\"translate(0);x\"/>",
    "<path d=\"M 0 0 url(x)\"/>",
    "<g id='answer'/>",
    "<!-- a --><script>1</script><!-- b -->",
    "</svg><script>alert(1)</script><svg>",
]  # fmt: skip
AROUND = [  # (what is replaced, by what)
    ("<svg ", '<!DOCTYPE svg [<!ENTITY a "b">]><svg ><g/></svg><svg '),
    ('viewBox="', 'viewBox="0 0 1 1&quot; onload=&quot;alert(1) '),
    ("</svg>", "</svg><script>alert(1)</script>"),
    ("</svg>", "</svg>words"),
    ("</svg>", ""),
    ('<style type="text/css">*', '<style type="text/css">@import "a"; *'),
    ('<style type="text/css">*', '<style type="text/css">* {} body *'),
]


def test_an_honest_drawing_passes():
    drawn = inline_svg(HONEST, "svg-relu2", "words")
    assert drawn.startswith('<svg id="svg-relu2" viewBox="')
    assert drawn.count("<path") == HONEST.count("<path") > 50


@pytest.mark.parametrize("payload", INSIDE)
def test_a_drawing_that_does_something_is_refused(payload):
    svg = HONEST.replace("</svg>", f"{payload}</svg>")
    with pytest.raises(InputError, match=r"^svg = relu2: ") as caught:
        inline_svg(svg, "svg-relu2", "words")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(("old", "new"), AROUND)
def test_a_drawing_with_more_around_it_is_refused(old, new):
    assert old in HONEST
    with pytest.raises(InputError, match=r"^svg = relu2: "):
        inline_svg(HONEST.replace(old, new), "svg-relu2", "words")


def test_the_list_of_drawings_is_complete():
    assert len(INSIDE) + len(AROUND) == 57


def test_what_a_drawing_says_of_itself_is_text():
    """Its description becomes an attribute, whatever it holds; the drawing is without it."""
    from sparsity.figures import Plate

    said = "\"'><script>alert(1)</script><img src=x onerror='a()'>"
    escaped = said.replace("<", "&lt;").replace(">", "&gt;").replace('"', "&quot;")
    svg = re.sub("<dc:description>.*?<", f"<dc:description>{escaped}<", HONEST, flags=re.DOTALL)
    assert svg != HONEST
    files = {"svg": svg.encode(), "csv": b"series,x\n"}
    block = report.figure_block(Plate("relu2", "Title", "Caption", "Alt", files), 1)
    honest = report.figure_block(
        Plate("relu2", "Title", "Caption", "Alt", files | {"svg": HONEST.encode()}), 1
    )
    assert Tags(block).found == Tags(honest).found
    assert "<script" not in block


class Tags(HTMLParser):
    """Every element with the names of its attributes, and every address."""

    def __init__(self, page):
        super().__init__()
        self.found, self.addresses = [], []
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, tuple(name for name, _ in attrs)))
        self.addresses += [v for k, v in attrs if k in ("href", "src") and v and v[:1] != "#"]

    handle_startendtag = handle_starttag


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    place = tmp_path_factory.mktemp("figures") / "run"
    shutil.copytree(FIGURES, place)
    return place


def test_an_honest_run_gives_the_same_page(folder):
    page = (folder / "index.html").read_bytes()
    reproduction.page(folder)
    assert (folder / "index.html").read_bytes() == page


PAYLOAD = '"><script src=//x.example></script><img src=x onerror="a()">\'<!--'


def changed(value, path=()):
    """(where, the record with one text or name in it replaced), one for each kind of place."""
    if isinstance(value, dict):
        for key, item in value.items():
            yield (*path, f"{key}?"), {PAYLOAD if k == key else k: v for k, v in value.items()}
            for where, other in changed(item, (*path, key)):
                yield where, {**value, key: other}
    elif isinstance(value, list) and value:
        for where, other in changed(value[0], (*path, "[]")):
            yield where, [other, *value[1:]]
    else:
        yield path, PAYLOAD
        if not isinstance(value, str):
            yield (*path, "[]"), [PAYLOAD]
            yield (*path, "{}"), {PAYLOAD: PAYLOAD}


def cut(records):
    """Little of every kind: as long as it takes to have each key once."""
    crosscheck, claims, environment = records
    cells = crosscheck["cells"]
    one = next(x for x in cells if "estimate" in x), next(x for x in cells if "estimate" not in x)
    return {**crosscheck, "cells": list(one)}, claims[:2], environment


def test_no_text_of_a_record_becomes_markup(monkeypatch):
    """The parts of the page that no record reaches are left out, for time."""
    monkeypatch.setattr(report, "_formulas", lambda: "")
    monkeypatch.setattr(answer, "who_can_focus", lambda: "")
    names = (reproduction.CROSSCHECK, reproduction.CLAIMS, reproduction.ENVIRONMENT)
    honest = cut([json.loads((FIGURES / name).read_text("utf-8")) for name in names])

    def page(records):
        check, claims, meta = copy.deepcopy(records)
        return report.render([], reproduction.crosscheck(check), claims, meta)

    elements = {tag for tag, _ in Tags(page(honest)).found} | {"li", "table"}
    shown = refused = 0
    for i in range(len(honest)):
        for where, other in changed(honest[i]):
            records = [*honest[:i], other, *honest[i + 1 :]]
            try:
                text = page(records)
            except Exception:  # noqa: BLE001  which `reproduction.page` tells in one line
                refused += 1
                continue
            tags = Tags(text)
            assert {tag for tag, _ in tags.found} <= elements, where
            assert not [n for _, names in tags.found for n in names if n.startswith("on")], where
            addresses = {x for x in tags.addresses if not x.startswith("data:,")}
            assert addresses == {reproduction.EXPLORE}, where
            shown += PAYLOAD not in text and "script src" in text
    assert shown >= 90
    assert refused >= 60


def test_markup_that_is_not_escaped_would_be_seen():
    assert ("script", ("src",)) in Tags(f"<p>{PAYLOAD}</p>").found
