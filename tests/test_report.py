"""The report: well-formed, without a network, complete, and the same every time."""

import base64
import hashlib
import itertools
import json
import re
import threading
from collections import Counter
from html.parser import HTMLParser
from importlib import resources
from pathlib import Path
from types import SimpleNamespace

import pytest

from sparsity import InputError, derive, kernels, report
from sparsity import claims_ledger as ledger
from sparsity.claims_ledger import judging
from sparsity.claims_ledger.findings import VERDICTS, Finding
from sparsity.claims_ledger.judging import Claim
from sparsity.derivation import mathml
from sparsity.report import page, reproduction
from sparsity.report.figures import Plate

FIGURES = Path(__file__).resolve().parents[1] / "figures"
VOID = {"meta", "link", "br", "hr", "img", "input"}
META = {"python": "3.11", "jax": "0.10", "seed": 7}
PAYLOAD = '"><script src=//x.example></script><img src=x onerror="a()">\'<!--'


def plate(name):
    places = "<dc:description>[{&quot;box&quot;:1}]</dc:description>"
    files = {"svg": f"<svg>{places}</svg>".encode(), "csv": b"x,y\n1,2\n"}
    return Plate(name, f"Title of {name} <&>", "Caption", f'Alt "{name}"', files)


def cell(verdict="agree", log=-1.0, stderr=1e-4, z=-0.7):
    return SimpleNamespace(
        kernel="relu2",
        quantity="n_eff",
        parameters={"beta": -2.0, "gamma": 1e-6},
        route="rows",
        theory=log,
        estimate=SimpleNamespace(log_value=log, stderr=stderr, rel_stderr=3e-4),
        z=z,
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
    )


def claim(verdict, said="Claim"):
    role = "reported" if verdict == "reported" else "core"
    findings = [
        Finding(role, f"{role} of {verdict} x^2 < y_(p−1)", verdict != "refuted"),
        Finding("letter", "letter", verdict in ("confirmed", "reported")),
        Finding("instead", "instead", True),
    ]
    numbers = {
        "n": 3,
        "ok": True,
        "list": [1, 2.5],
        "rows": [{"gamma": 1.0, "S": 1e-9}, {"gamma": 2.0, "z": None}],
        "grid": [[1.0, 2.0], [3.0, 4096]],
        "inside": {"at": {"n": 8}},
    }
    judge = lambda routes, seed: (findings, numbers)  # noqa: E731
    return Claim("exp", "A source", f"{said} {verdict}", "S = 1", "Proof.", judge).record()


CLAIMS = [claim(v) for v in VERDICTS]


@pytest.fixture(scope="module", autouse=True)
def derived_once():
    """One derivation for all pages here."""
    with pytest.MonkeyPatch.context() as patch:
        derived = {kernel: derive(kernel) for kernel in kernels.ALL}
        patch.setattr(page, "derive", derived.__getitem__)
        focus = page.who_can_focus(list(derived.values()))
        patch.setattr(page, "who_can_focus", lambda derivations: focus)
        yield focus


def render(plates=(), cells=(), claims=(), meta=META):
    return report.render(plates, crosscheck(*cells), claims, meta)


@pytest.fixture(scope="module")
def whole(derived_once):
    cells = cell(), cell(log=-5000.0, stderr=0.0)
    return render([plate("first"), plate("overview")], cells, CLAIMS)


class Checker(HTMLParser):
    """Balanced tags, every tag with its attributes, and the text."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.seen, self.headings, self.text = [], [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.seen.append((tag, dict(attrs)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open, f"</{tag}> without a start"
        assert self.open.pop() == tag

    def handle_data(self, data):
        if self.open and re.fullmatch("h[1-6]", self.open[-1]):
            self.headings.append(int(self.open[-1][1]))
        self.text.append(data)

    def words(self):
        return " ".join("".join(self.text).split())


@pytest.fixture(scope="module")
def checked(whole):
    return Checker(whole)


def outside(text):
    """What in a page would reach outside its folder, or run."""
    found = [tag for tag in ("@import", "url(http", 'url("http', "url(//") if tag in text]
    scripts = 0
    for tag, attributes in Checker(text).seen:
        scripts += tag == "script"
        found += [name for name in attributes if name.startswith("on")]
        found += [
            value
            for name, value in attributes.items()
            if name in ("href", "src", "srcset", "action")
            and re.match(r"\w+://|//|javascript:", value)
        ]
    return found + ["script"] * (scripts - 1)  # one, that shows values


@pytest.mark.thorough
@pytest.mark.parametrize(
    "planted", ['<img src="https://a.org/x">', "<script>1</script>", "<p onclick=1>a</p>"]
)
def test_the_page_asks_for_nothing(whole, planted):
    assert outside(whole) == []
    assert outside(whole.replace("</body>", f"{planted}</body>")) != []


def test_its_policy_allows_its_own_script_alone(whole, checked):
    (script,) = re.findall(r"<script>(.*?)</script>", whole, re.S)
    policies = [x["content"] for tag, x in checked.seen if tag == "meta" and "http-equiv" in x]
    digest = hashlib.sha256(script.encode()).digest()
    allowed = f"script-src 'sha256-{base64.b64encode(digest).decode()}'"
    assert [allowed in each and "default-src 'none'" in each for each in policies] == [True]
    assert "unsafe-inline" not in re.search("script-src[^;]*", policies[0])[0]
    assert whole.index("Content-Security-Policy") < whole.index("<style")


def test_ids_are_unique_and_links_lead_somewhere(checked):
    ids = Counter(a["id"] for _, a in checked.seen if "id" in a)
    assert set(ids.values()) == {1}
    targets = [a["href"][1:] for _, a in checked.seen if a.get("href", "").startswith("#")]
    labels = [a["aria-labelledby"] for _, a in checked.seen if "aria-labelledby" in a]
    assert len(targets) >= 15
    assert {*targets, *labels} <= {*ids}
    assert {f"claim-{i}" for i in range(1, 5)} <= {*targets}


def test_every_figure_has_words_and_data(checked):
    pictures = [(a["src"], a["alt"]) for tag, a in checked.seen if tag == "img"]
    assert pictures == [("overview.svg", 'Alt "overview"'), ("first.svg", 'Alt "first"')]
    assert [a["download"] for _, a in checked.seen if "download" in a] == [
        "overview.csv",
        "first.csv",
    ]
    assert [a["data-places"] for _, a in checked.seen if "data-places" in a] == ['[{"box":1}]'] * 2
    beside = [a["href"] for tag, a in checked.seen if tag == "a" and a["href"][0] != "#"]
    beside = [link for link in beside if not link.startswith("data:")]
    assert [*beside] == [
        "overview.svg",
        "overview.png",
        reproduction.EXPLORE,
        "first.svg",
        "first.png",
    ]


def test_headings_descend_one_level_at_a_time(checked):
    assert checked.headings[0] == 1
    assert checked.headings.count(1) == 1
    assert all(after <= before + 1 for before, after in itertools.pairwise(checked.headings))


def test_everything_is_there(checked, whole):
    text = checked.words()
    for record in CLAIMS:
        assert f"{record['claim']} {ledger_mark(record['verdict'])}" in text
    assert "1 confirmed, 1 refined, 1 reported, 1 refuted" in text
    assert "sparsity reproduce --seed 7" in text
    assert "β = −2, γ = 1\u202f×\u202f10⁻⁶" in "".join(checked.text)
    assert "e^(−5,000) × (1 ± 0.0003)" in re.sub("<sup>(.*?)</sup>", r"^(\1)", whole)
    assert "−0.70" in text
    for kernel in kernels.ALL:
        assert f'id="kernel-{kernel.name}"' in whole
    assert "dark" in whole
    assert 'lang="en"' in whole


def ledger_mark(verdict):
    return {"confirmed": "✓", "refined": "±", "reported": "“", "refuted": "✗"}[
        verdict
    ] + f" {verdict}"


def test_the_answer_comes_before_any_formula(whole):
    parts = ('id="figure-overview"', 'id="who"', 'id="refuted"', "<nav", "<math")
    places = [whole.index(part) for part in parts]
    assert places == sorted(places)
    refuted = whole.split('id="refuted"')[1].split("</article>")[0]
    assert refuted.count("<li>") == 2  # what fails, and what holds instead; the letter is below
    assert 'id="refuted"' not in render(claims=CLAIMS[:2])


def test_the_table_of_who_can_focus(derived_once):
    """Each line against what is known of the kernel."""
    softmax, relu2, signed, nonnegative, decayed = derived_once
    assert [line.verdict for line in derived_once] == ["yes", "yes", "no", "yes", "yes"]
    assert "at least 652 tokens" in signed.takes  # of 1024: 2/π of them
    assert (softmax.sharper, softmax.takes) == ("larger spread γ", "γ = 3.64")
    assert "lower bias β" in relu2.sharper
    assert "one feature" in nonnegative.takes
    assert "λ = 0.778" in decayed.takes  # (1+λ)/(1−λ) = 8


def test_disagreement_is_shown_outside_the_fold(whole):
    text = render(cells=(cell(), cell("disagree", z=9.0)))
    Checker(text)
    assert "agree in 1 of 2 cells" in text
    after = text.split("<h3>Cells that do not agree</h3>")[1]
    assert 'class="badge disagree"' in after.split("<details>")[0]
    assert "Cells that do not agree" not in whole


def test_numbers_of_a_claim_are_tables(whole):
    rows = [
        " ".join(re.sub("<[^>]+>", " ", row).split())
        for row in re.findall("<tr>.*?</tr>", whole.split('id="claim-1"')[1], re.DOTALL)
    ]
    for row in ("row length n 3", "ok yes", "list 1, 2.5", "1 1\u202f×\u202f10⁻⁹ —", "2 — —"):
        assert " ".join(row.split()) in rows, row
    assert "3 4,096" in rows


def test_text_of_a_record_is_text():
    record = claim("confirmed", PAYLOAD)
    record["evidence"]["numbers"] = {PAYLOAD: [{PAYLOAD: PAYLOAD}]}
    odd = cell()
    odd.kernel = PAYLOAD
    named = Plate(PAYLOAD, PAYLOAD, PAYLOAD, PAYLOAD, plate("x").files)
    text = render([named], (odd,), [record | {"source": PAYLOAD}], META | {PAYLOAD: PAYLOAD})
    assert outside(text) == []
    assert PAYLOAD not in text


def test_the_same_arguments_give_the_same_page(whole):
    cells = cell(), cell(log=-5000.0, stderr=0.0)
    assert render([plate("first"), plate("overview")], cells, CLAIMS) == whole


def test_the_font_is_small_and_free():
    home = resources.files("sparsity.report") / "fonts"
    assert len((home / "math.woff2").read_bytes()) <= 60 * 1024
    assert "SIL OPEN FONT LICENSE Version 1.1" in (home / "OFL.txt").read_text("utf-8")


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

    legends = {claim.key: claim for claim in ledger.ALL}
    return {
        name
        for record in claims
        if record["key"] in legends
        for name in names(record["evidence"]["numbers"])
        if "_" in name and name not in judging._COMMON_LABELS | dict(legends[record["key"]].labels)
    }


def test_every_number_has_words():
    claims = json.loads((FIGURES / "claims.json").read_text("utf-8"))
    assert unnamed(claims) == set()
    claims[0]["evidence"]["numbers"]["cells"][0]["a_raw_key"] = 1.0
    assert unnamed(claims) == {"a_raw_key"}


def test_a_part_that_fails_ends_those_under_way():
    begun, steps = threading.Event(), []

    def long(step):
        begun.set()
        while True:
            step(0, 1)

    def fails(step):
        assert begun.wait(600)
        raise InputError("out", "gone", "give another")

    with pytest.raises(InputError, match="gone"):
        reproduction.run_side_by_side((long, fails, long), None)

    def short(step):
        step(1, 1)
        return 5

    done, seconds = reproduction.run_side_by_side([short] * 3, lambda *told: steps.append(told))
    assert done == [5, 5, 5]
    assert max(steps) == (100, 100)
    assert set(seconds) == set(reproduction._PARTS)


def test_environment_names_what_a_reader_needs():
    found = report.environment(seed=3)
    assert {"python", "jax", "numpy", "scipy", "sympy", "device", "seed"} <= set(found)
    assert found["seed"] == "3"


@pytest.mark.parametrize("kernel", kernels.ALL, ids=lambda kernel: kernel.name)
def test_formulas_are_mathml(kernel, derived_once):
    lines, limits = mathml.derivation(page.derive(kernel))
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
        (12345, "12,345"),
        (1e-6, "1\u202f×\u202f10⁻⁶"),
        (-2.5e7, "−2.5\u202f×\u202f10⁷"),
        (float("inf"), "∞"),
        ("one-hot", "one-hot"),
        ([1, None], "1, —"),
        (True, "yes"),
    ],
)
def test_numbers_are_written_for_reading(value, text):
    assert page.number(value) == text


@pytest.mark.parametrize(
    ("plain", "html"),
    [
        ("s^p/p!", "s<sup>p</sup>/p!"),
        ("e^(−z²/2)", "e<sup>−z²/2</sup>"),
        ("m_(p−1) < m_p", "m<sub>p−1</sub> &lt; m<sub>p</sub>"),
        ("Π_{i<d}(1 − σ_i)", "Π<sub>i&lt;d</sub>(1 − σ<sub>i</sub>)"),
        ("a ^ b_", "a ^ b_"),
    ],
)
def test_prose(plain, html):
    assert page.prose(plain) == html
