"""The page's section on the texts: figures and sinks of each, and what they vary by."""

from __future__ import annotations

from html import escape
from typing import TYPE_CHECKING, Any

from sparsity.attention.measurement import sinks, tables
from sparsity.attention.measurement.texts import texts_of_windows
from sparsity.report.parts import details, number, section, table

if TYPE_CHECKING:
    import xarray

_SHOWN = 3  # sinks of a text beside its figures; all are in the list below
COLUMNS = (  # of `tables.summarise_context` and the loss: key, title, format
    ("loss", "loss, nats", ".3f"),
    ("n_eff", "n_eff", ".2f"),
    ("n_eff_without_sinks", "without sinks", ".2f"),
    ("ratio_exact_without_sinks", "S/exact", ".3f"),
    ("sinks_rate_0.3", "sinks > 0.3", ".1%"),
    ("late_rate_0.3", "first token", ".1%"),
    ("sink_rate_0.3", "published", ".1%"),
    ("ratio_exact_without_sink_key", "S/exact", ".3f"),
)


def _sinks(data: xarray.Dataset) -> list[list[dict[str, Any]]]:
    """The sinks of each text, those of most heads first."""
    found = []
    for i in range(data.sizes["text"]):
        run = data.isel(text=i, bos=0)
        words = [str(x) for x in run["token"].values] if "token" in run else [""] * run.sizes["key"]
        listed = sinks.list_sinks(run["key_importance"].values, words)
        found.append(sorted(listed, key=lambda sink: -sink["heads"]))
    return found


def _named(sink: dict[str, Any]) -> str:
    word = f" “{escape(sinks.spell_token(sink['token']))}”" if sink["token"] else ""
    return f"{sink['position']}{word}"


def section_of(data: xarray.Dataset) -> str:
    """Each text at the longest context, the mean with its interval, and where the sinks are."""
    texts = tables.by_text(data)
    columns = [column for column in COLUMNS if column[0] in texts[0]]
    listed = _sinks(data)
    cells, places = [], []
    for row, own in zip(texts, listed, strict=True):
        few = ", ".join(f"{_named(x)} ({x['heads']})" for x in own[:_SHOWN]) or "none"
        more = f", {len(own) - _SHOWN} more" if len(own) > _SHOWN else ""
        values = [f"{row[key]:{form}}" for key, _, form in columns]
        cells.append([escape(row["text"]), *values])
        places.append([escape(row["text"]), few + more])
    names = texts_of_windows([row["text"] for row in texts], data.attrs.get("stride"))
    means = tables.bootstrap_over_texts(texts, [key for key, *_ in columns], names)
    cells.append(["mean", *(f"{means[key]['value']:{form}}" for key, _, form in columns)])
    if len(set(names)) > 1:
        for i, word in enumerate(("95 % from", "to")):
            ends = [f"{means[key]['ci95'][i]:{form}}" for key, _, form in columns]
            cells.append([word, *ends])
    head = ["text", *(title for _, title, _ in columns)]
    T = int(data["context"][-1])
    words = (
        f"<p>Rows T/2 &lt; n ≤ T = {number(T)}, the first way of running each text. Medians over "
        "rows, and shares of heads, as above; S/exact first without all sinks, last without the "
        "first token alone. The interval is that of the mean over other such texts "
        f"({means['n_eff']['method']}); windows of one text are drawn together.</p>"
    )
    every = [
        [escape(row["text"]), str(x["position"]), escape(sinks.spell_token(x["token"])),
         str(x["heads"]), number(x["importance"], 3)]
        for row, own in zip(texts, listed, strict=True) for x in own
    ]  # fmt: skip
    titles = ["text", "position", "token", "heads", "mean weight there"]
    whole = table(titles, every, "All sinks", [1, 3, 4]).replace("scroll", "scroll tall", 1)
    content = words + table(head, cells, "By text", list(range(1, len(head))))
    content += table(["text", "sinks: position, token (heads)"], places, "Sinks by text")
    return section("texts", "By text", content + details(f"All {len(every)} sinks", whole))
