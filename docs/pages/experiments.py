"""The experiments: their questions, what came of them, and the claims that are judged there."""

import json
import re
from pathlib import Path

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
of five digits, and the means of trained CoCA by less than the spread of its seeds.

Notebook 8, [Does focus matter?](../../notebooks/08_does_focus_matter.ipynb), trains a part of that
on recall from start to end. How to add an experiment: [Contributing](../../CONTRIBUTING.md).
"""

_CLAIMS = f"""## Claims judged by experiments, and of other papers

Claims of the three sources are judged by `sparsity claims`. `python -m experiments rules` judges
what trained and real models say of them, from the committed tables, and claims of other papers, by
the laws of this library: [every finding]({_ROOT}/rules/claims.txt).

"""


def page() -> str:
    """The page in Markdown."""
    return "\n".join([_WORDS, *map(_section, sorted(RESULTS.glob("*.md"))), _claims()])


def plain(text: str) -> str:
    """Words as they stand: none of them is Markdown."""
    return re.sub(r"[\\`*_{}\[\]<>$|#]", r"\\\g<0>", text)


def _section(path: Path) -> str:
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
    return f"""## {title[1]}

Of {len(came)} predictions {held} held.{missed}
[Prediction, outcome and settings]({_ROOT}/{name}.md); `python -m experiments {name}`; {minutes[0]}

![The figure of the experiment {name}]({_ROOT}/{name}.png)
"""


def _claims() -> str:
    """The verdicts on claims of other papers, and those that trained models gave."""
    records = json.loads((RESULTS / "rules/claims.json").read_text("utf-8"))
    lines = (
        f"- **{record['verdict']}**: {plain(record['claim'])} ({plain(record['source'])})"
        for record in records
    )
    return _CLAIMS + "\n".join(lines) + "\n"
