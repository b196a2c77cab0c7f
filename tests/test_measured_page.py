"""The page of a measurement: three pictures, a table that is the summary, and nothing unescaped."""

import html
import re

import numpy as np
import pytest
import xarray

from sparsity import InputError, measure
from sparsity.attention import report
from sparsity.attention.measurement import tables

HEADS, T = 4, 64
STRANGE = "<b>a & b</b>"


@pytest.fixture(scope="module")
def data():
    """Two layers whose first key is a sink of every second head."""
    rng = np.random.default_rng(0)
    q, k = rng.normal(size=(2, 2, HEADS, T, 16))
    q[:, ::2, :, 0], k[:, :, 0] = 6, 0
    k[:, :, 0, 0] = 6
    words = ["Ġ" + STRANGE] * T
    found = measure(queries=q, keys=k).assign(token=("key", words))
    return found.assign_attrs(model=STRANGE)


def page_of(data, folder):
    files = report.write_report(data, folder, f"sparsity measure {STRANGE}")
    assert [path.name for path in files] == [*report.PICTURES, "index.html"]
    return files[-1].read_text("utf-8")


def cells(page):
    rows = re.findall(r"<tr>(.*?)</tr>", page, re.S)
    return [re.findall(r"<t[hd][^>]*>(.*?)</t[hd]>", row, re.S) for row in rows]


@pytest.mark.thorough
def test_the_page_shows_what_was_measured(data, tmp_path):
    page = page_of(data, tmp_path)
    assert [x.name for x in tmp_path.glob("*.svg")] != []
    for name in report.PICTURES:
        assert f'<img src="{name}" alt="' in page
        assert (tmp_path / name).read_bytes().startswith(b"<?xml")
    head, row = cells(page)
    (told,) = tables.summary(data)
    shown = dict(zip(map(html.unescape, head), row, strict=True))
    assert shown["n_eff"] == f"{told['n_eff']:.2f}"
    assert shown["S/exact"] == f"{told['ratio_exact_without_sinks']:.3g}"
    assert "Sinks take more than 0.3 of the weight in 50 % of the heads" in page
    late = data.sel(row=slice(T // 2 + 1, None))
    low, high = np.quantile(late.n_eff.median("row"), [0.1, 0.9])
    assert f"Four of five heads attend to {low:.1f} to {high:.1f} of {T} tokens" in page
    assert f"1 “{html.escape(STRANGE)}” ({HEADS})" in page  # the sink, in half of 2 × 4 heads
    assert STRANGE not in page
    assert "http:" not in page
    assert "https" not in page
    assert page_of(data, tmp_path) == page  # over the old one


@pytest.mark.thorough
def test_the_exact_law_stands_beside_rows_without_their_sinks(data):
    n, lines = report._medians_by_length(report._with_texts(data))
    assert list(lines) == ["whole row", "without sinks", "exact law"]
    assert np.all(np.diff(n) > 0)
    assert n[-1] <= T
    # Gaussian logits follow their law, and whole rows, with a sink in half of the heads, do not.
    off, gap = (np.log(lines["exact law"] / lines[x]) for x in ("without sinks", "whole row"))
    assert abs(np.median(off)) < 0.12 < 0.25 < np.median(gap)


@pytest.mark.thorough
def test_runs_weights_and_texts_have_a_page_too(data, tmp_path):
    begun = page_of(data.assign_attrs(bos=1), tmp_path)
    assert f"1 text of {T} tokens after the model&#39;s first token" in begun
    texts = xarray.concat([data, data], "text").assign_coords(text=["a", STRANGE])
    page = page_of(texts, tmp_path)
    assert f"2 texts of {T} tokens" in page
    assert f"<li><strong>{html.escape(STRANGE)}</strong>: 1 “" in page
    weights = np.tri(9) / np.arange(1, 10)[:, None]
    page = page_of(measure(weights[None]), tmp_path)  # no logits, and so no law
    assert "S/exact" not in page
    assert "exact law:" not in page
    whole = measure(queries=np.ones((1, 9, 2)), keys=np.ones((1, 9, 2)), causal=False)
    assert "attend to 9.0 to 9.0 of 9 tokens" in page_of(whole, tmp_path)


def test_nothing_is_written_where_the_folder_cannot_be(data, tmp_path):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(InputError, match="out"):
        report.write_report(data, tmp_path / "file", "x")
    assert (tmp_path / "file").read_text() == "mine"


def test_a_table_in_a_terminal():
    rows = [{"T": n, "S": 0.5, "below:-2": 0.25} for n in (8, 16)]
    lines = ["       T   mean S below:-2", "       8    0.500     0.25"]
    assert tables.text(rows).split("\n")[:3] == [*lines, lines[1].replace(" 8", "16")]
