"""The claims, with their verdicts, from the file that `sparsity reproduce` wrote."""

import json
import re
from collections import Counter
from pathlib import Path

from sparsity.claims_ledger.findings import with_basis

FILE = Path(__file__).resolve().parents[2] / "figures/claims.json"

_WORDS = """# Claims

Statements of published sources, each judged by computation. `confirmed`: every finding holds.
`refined`: it holds with a correction. `reported`: published numbers say so, and nothing here
recomputes them. `refuted`: it is wrong. The verdict follows from the findings. `sparsity claims`
computes this page anew. *Toy* is what random layers or a few tokens do, *published* what others
measured. Claims of other sources, and what trained models say of these:
[the experiments](experiments.md).
"""


def page() -> str:
    """The page in Markdown."""
    records = json.loads(FILE.read_text("utf-8"))
    counts = Counter(record["verdict"] for record in records)
    said = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    return "\n".join([_WORDS, f"Of {len(records)} claims: {said}.\n", *map(_claim, records)])


def plain(text: str) -> str:
    """Words as they stand: none of them is Markdown."""
    return re.sub(r"[\\`*_{}\[\]<>$|#]", r"\\\g<0>", text)


def _claim(record) -> str:
    findings = "\n".join(
        f"- {'holds' if each['holds'] else '**fails**'}: {plain(with_basis(each))}"
        for each in record["evidence"]["findings"]
    )
    return f"""## {record["key"]}: {record["verdict"]}

> {plain(record["claim"])}

`{record["formula"]}`

Source: {plain(record["source"])}.

{findings}
"""
