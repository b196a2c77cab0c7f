"""The experiments: their questions, what came of them, and the claims that they judge."""

import json
import re
from pathlib import Path

from pages.claims import FILE, plain
from sparsity.claims_ledger import sinks

RESULTS = Path(__file__).resolve().parents[2] / "experiments/results"
_ROOT = "../../experiments/results"  # from the folder of this page

_WORDS = """# Experiments

Theory says how sharply a mechanism can focus. These experiments ask what comes of it: small models
trained here, and real ones measured, beside the laws of this library. They stand in the folder
`experiments/`, outside the package, each one module that uses the library as a user would.

What was expected of each was committed before its results, with what would refute it, and is not
changed after them (that of CoCA was changed twice before): what did not come so is told as failed,
and what was to refute a prediction and was met is named. The rules by which a page reads its
prediction were in part written after the results, as it says. Each is of one task, or of one model,
and has a negative control and several seeds or texts.
`python -m experiments` runs all of them, or those that are named. A run that is cut short goes on
where it was, and the same seeds give the same numbers on the same processor. On another one sums
round otherwise, in the last digit, which training may amplify: of two processors the tables of
recall, sinks and temperature were equal, those of the real model and of RoPE differed in the last
of five digits, and the means of trained CoCA by less than the spread of its seeds. Claims that an
experiment judges are marked *trained here* or *measured here*; `sparsity claims` and `sparsity
reproduce` take their numbers as they are recorded, and run no experiment.

Notebook 8, [Does focus matter?](../../notebooks/08_does_focus_matter.ipynb), trains a part of that
on recall from start to end. How to add an experiment: [Contributing](../../CONTRIBUTING.md).
"""


# The claims of the same source that no experiment speaks of.
_OTHERS = ", ".join(claim.key for claim in sinks.CLAIMS if not claim.recorded)
_NOT_MEASURED = (
    f"\nNothing was measured of {_OTHERS}: what is said of these is computed, of a toy or "
    "published, as each finding states.\n"
)


def page() -> str:
    """The page in Markdown."""
    records = json.loads(FILE.read_text("utf-8"))
    return "\n".join([_WORDS, *(_section(path, records) for path in sorted(RESULTS.glob("*.md")))])


def _section(path: Path, records) -> str:
    text, name = path.read_text("utf-8"), path.stem
    title = re.search(r"^# (.*)$", text, re.MULTILINE)
    minutes = re.search(r"^[\d.]+ minutes on .*$", text, re.MULTILINE)
    came = re.findall(r"^- (Held|\*\*Failed\*\*): (.*)$", text, re.MULTILINE)
    assert title, path
    assert minutes, path
    assert came, path
    held = sum(verdict == "Held" for verdict, _ in came)
    failed = [words.rstrip(".") for verdict, words in came if verdict != "Held"]
    missed = f" Not so: {plain('; '.join(failed))}." if failed else ""
    met = re.findall(r"^Refuted by its own rule: (.*)$", text, re.MULTILINE)
    missed += "".join(f" Refuted by its own rule: {plain(words)}" for words in met)
    beside = _NOT_MEASURED if name == "real_sinks" else ""
    claims = "".join(
        f"- [{record['key']}](claims.md), **{record['verdict']}**: {plain(record['claim'])} "
        f"{plain(_seen(record, told['basis']))}\n"
        for record in records
        for told in record["evidence"]["experiments"]
        if told["name"] == name
    )
    return f"""## {title[1]}

{claims}{beside}
Of {len(came)} predictions {held} held.{missed}
[Prediction, outcome and settings]({_ROOT}/{name}.md); `python -m experiments {name}`; {minutes[0]}

![The figure of the experiment {name}]({_ROOT}/{name}.png)
"""


def _seen(record, basis: str) -> str:
    """The first thing that an experiment found for a claim, and all that did not come so."""
    found = [each for each in record["evidence"]["findings"] if each["basis"] == basis]
    failed = [each["statement"] for each in found if not each["holds"]]
    missed = f" Not so: {'; '.join(failed)}." if failed else ""
    return f"Seen: {found[0]['statement']}.{missed}"
