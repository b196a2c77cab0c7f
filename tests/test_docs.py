"""The pages of docs/: their Python runs, page by page, and says what it says."""

import ast
import math
import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import norm

import sparsity

DOCS = Path(__file__).parents[1] / "docs"
# A block that follows such a comment is not run here; what runs it instead, or why nothing does.
ELSEWHERE = re.compile(r"<!-- (?:needs|sets|run by) [^>]*-->\n```python\n.*?```", re.S)
PAGES = (
    *("start", "kernel", "length", "positions", "extend", "design", "models", "gpu"),
    *("train", "choose", "thresholds", "needle", "change", "explode", "ess"),
)
NUMBER = r"-?\d+\.?\d*(?:e[+-]?\d+)?"


def page(name):
    return ELSEWHERE.sub("", (DOCS / f"{name}.md").read_text("utf-8"))


def said(value, words):
    """Whether a value is what the words after the arrow say, to the digits that they give."""
    if not re.match(rf"\[?{NUMBER}", words):
        return str(value) == words
    numbers = re.findall(NUMBER, words)
    digits = [len(re.sub(r"e.*|[-.]", "", number).lstrip("0")) for number in numbers]
    values = np.ravel(np.asarray(value, dtype=float)).tolist()
    return len(values) == len(numbers) and all(
        float(f"{each:.{max(count, 1)}g}") == float(number)
        for each, count, number in zip(values, digits, numbers, strict=True)
    )


def run(code, names, where):
    """Run a block: an expression is what the arrow after it says. How many arrows there are."""
    told, code = 0, code.replace("\n# → ", "  # → ")  # it may stand below
    lines = code.splitlines()
    for node in ast.parse(code).body:
        single = compile(ast.Module([node], []), where, "exec")
        if not isinstance(node, ast.Expr):
            exec(single, names)
            continue
        value = eval(compile(ast.Expression(node.value), where, "eval"), names)
        _, arrow, words = lines[(node.end_lineno or 1) - 1].partition("  # → ")
        if arrow:
            told += 1
            assert said(value, words), f"{where}: {ast.unparse(node)} is {value}, not {words}"
    assert told == code.count("# → "), f"{where}: an arrow that follows no expression"
    return told


@pytest.mark.thorough
@pytest.mark.parametrize("name", PAGES)
def test_a_page_runs(name, capsys):
    names: dict[str, object] = {}
    blocks = re.findall(r"```python\n(.*?)```", page(name), re.S)
    assert blocks
    told = sum(run(code, names, f"docs/{name}.md") for code in blocks)
    assert told >= 1


CELL = re.compile(r"([\d.]+), ([\d.]+), ([\d.]+)")


def spreads(text):
    """The table of docs/train.md: (n, n_eff) -> γ, gain, s as they are printed."""
    lines = [line.split("|")[1:-1] for line in text.splitlines() if line.startswith("| ")]
    head = next(line for line in lines if line[0].strip() == "n")
    wanted = [int(cell.partition("=")[2]) for cell in head[1:]]
    found = {}
    for line in lines:
        for n_eff, cell in zip(wanted, map(CELL.search, line[1:]), strict=False):
            if cell is not None:
                found[int(line[0].replace(",", "")), n_eff] = cell.groups()
    return found


def of_design(n, n_eff):
    gamma = sparsity.design("exp", length=n, n_eff=n_eff, lengths=()).value
    return f"{gamma:.2f}", f"{gamma**0.5:.2f}", f"{gamma / math.log(n):.3f}"


@pytest.mark.thorough
def test_the_table_of_spreads_is_that_of_design():
    text = (DOCS / "train.md").read_text("utf-8")
    told = spreads(text)
    assert len(told) == 12
    assert told == {cell: of_design(*cell) for cell in told}
    wrong = spreads(text.replace("3.13, 1.77", "3.14, 1.77"))
    assert wrong[32768, 64] != told[32768, 64]
    s = sparsity.design("exp", length=32768, n_eff=64, gamma=1, lengths=()).value
    assert told[32768, 64][2] == f"{s:.3f}"


@pytest.mark.thorough
def test_the_table_of_proxies_is_that_of_the_laws():
    text = (DOCS / "choose.md").read_text("utf-8")
    told = re.findall(r"^\| (0\.\d+) \| (0\.\d+) \| (0\.\d+) \|$", text, re.M)
    assert len(told) == 4
    for rho, kept, limit in told:
        row = sparsity.Row("router:2048", gamma=3, rho=float(rho))
        value = sparsity.exact(row, length=131072, of="abs_sum").value
        assert f"{float(value):.3f}" == kept
        assert f"{norm.cdf(3 * float(rho) + norm.ppf(2048 / 131072)):.3f}" == limit


def test_the_table_of_draws_is_that_of_the_law():
    text = (DOCS / "ess.md").read_text("utf-8")
    told = re.findall(r"^\| ([\d.]+) \| (0\.\d+) \| ([\d,]+) \| (0\.\d+) \|$", text, re.M)
    assert len(told) == 6
    for gamma, limit, draws, pilot in told:
        law = {n: float(sparsity.exact("exp", gamma=float(gamma), length=n)) / n
               for n in (1000, int(int(draws.replace(",", "")) * 1.05),
                         int(int(draws.replace(",", "")) * 0.95))}  # fmt: skip
        near = math.exp(-(float(gamma) ** 2))
        at_1000, later, sooner = law.values()
        assert math.isclose(near, float(limit), rel_tol=4e-3)
        assert math.isclose(at_1000, float(pilot), rel_tol=2e-3)
        assert later < 1.1 * near < sooner


def test_the_table_of_temperatures_is_that_of_the_laws():
    """The rules at each length; the factor r of YaRN follows n in one column only."""
    rule = sparsity.Temperature
    rows = re.findall(
        r"^\| ([\d,]+)((?: \| [\d.]+){5}) \|$", (DOCS / "extend.md").read_text(), re.M
    )
    assert len(rows) == 4
    for tokens, cells in rows:
        n = int(tokens.replace(",", ""))
        rules = (rule.llama4(), rule.qwen(8192), rule.yarn(n / 8192), rule.yarn(16))
        for told, steps in zip(cells.split("|")[1:], [(), *((x,) for x in rules)], strict=True):
            value = float(sparsity.exact(sparsity.Row("exp", gamma=3, steps=steps), length=n).value)
            assert f"{value:.0f}" == told.strip() or f"{value:.1f}" == told.strip()


# Not of lengths: a year, and what stands in code, a link or an identifier.
WRITTEN = re.compile(r"(?<![\d,.\w/#–-])(?!20\d\d\b)\d{4,}(?![\d,\w]|\.\d)|\b\d+k\b")


def unseparated(text):
    """Numbers in words and tables that are not as 1,024 or 128K."""
    for code in (r"```.*?```", r"<[a-z!].*?>", r"`[^`]*`", r"\]\([^)]*\)", r"arXiv[: ]\S+"):
        text = re.sub(code, " ", text, flags=re.S)
    return WRITTEN.findall(text)


@pytest.mark.parametrize("path", [DOCS.parent / "README.md", *sorted(DOCS.glob("*.md"))], ids=str)
def test_numbers_are_written_in_one_style(path):
    assert unseparated(path.read_text("utf-8")) == []
    assert unseparated("of 8192 keys at 128k, 2,048 of 1,048,576 in `1024`") == ["8192", "128k"]


def test_no_block_is_left_out():
    """Pages with Python are run here; of the others it is known who runs them."""
    elsewhere = {
        "monitor": "tests/test_monitor_torch.py",
        "send": "tests/test_send_page.py saves a panel",
        "cluster": "a cluster; tests/test_clusters.py runs the same calls",
    }
    found = {path.stem for path in DOCS.glob("*.md") if "```python" in path.read_text("utf-8")}
    assert found == {*PAGES, *elsewhere}


@pytest.mark.parametrize(
    ("value", "words", "holds"),
    [
        (13.86653, "13.8665", True),
        (13.86653, "13.8664", False),
        (np.array([1.0, 2.5]), "[1, 2.5]", True),
        (np.array([1.0, 2.5]), "[1, 2.6]", False),
        (np.array([1.0, 2.5]), "1", False),
        (0.00123, "0.0012", True),
        (0.00127, "0.0012", False),
        (True, "True", True),
        (np.False_, "True", False),
        ((4, 64), "(4, 64)", True),
    ],
)
def test_a_wrong_number_is_seen(value, words, holds):
    assert said(value, words) == holds


@pytest.mark.parametrize("code", ["1 + 1  # → 3", "1 + 1\n# → 3", "x = 2  # → 2", "1 / 0"])
def test_a_wrong_block_is_seen(code):
    with pytest.raises((AssertionError, ZeroDivisionError)):
        run(code, {}, "here")


@pytest.mark.thorough
def test_the_answers_shown_are_the_answers_printed(command):
    shown = [
        example
        for name in ("../README", *PAGES)
        for block in re.findall(r"```console\n(.*?)```", page(name), re.S)
        for example in re.findall(r"^\$ sparsity (.*)\n((?:(?!\$).*\n)*)", block, re.M)
    ]
    assert len(shown) >= 5
    for line, words in shown:
        code, out, _ = command(*shlex.split(line))
        assert code == 0
        head = "\n".join(out.split("\n")[: len(words.replace("…\n", "").split("\n")) - 1])
        words = words.replace("…\n", "").rstrip("\n")
        assert re.sub(NUMBER, "#", head) == re.sub(NUMBER, "#", words)
        pairs = zip(re.findall(NUMBER, head), re.findall(NUMBER, words), strict=True)
        assert all(float(a) == pytest.approx(float(b), rel=1e-10, abs=1e-11) for a, b in pairs)


# Words that no engineer says, of messages, helps, pages, pictures and comments.
STILTED = re.compile(
    r"has not this|have not this|abscissa|(?<!co)(?<!co-)ordinate\b|out of reach of any row|"
    r"error in doubt|hold the row|fall together|falls together|speed of the hand|"
    r"how long a user waits|between the two freezings|laws part\b|so many as are asked for|"
    r"(?:is|are) said by\b|would have seen|reads backwards|named and passed over|"
    r"asks nobody|does not feel|a model that is there|how right it is|right to the eye|"
    r"is not there; give|by \d+ looks"
)


def test_words_are_those_of_the_field():
    home, not_ours = DOCS.parent, {"generated", "__pycache__", Path(__file__).name}
    folders = ("sparsity", "docs", "notebooks", "experiments", "benchmarks", "tests")
    files = [home / "README.md", home / "CONTRIBUTING.md"]
    files += [path for folder in folders for path in (home / folder).rglob("*.*")
              if path.suffix in {".py", ".md", ".ipynb", ".js", ".pyi"}
              and not not_ours & set(path.parts)]  # fmt: skip
    assert len(files) > 500
    found = {str(path): STILTED.findall(path.read_text("utf-8").lower()) for path in files}
    assert not {path: phrases for path, phrases in found.items() if phrases}
    said = "has not this axis, the ordinate, two laws part, at most so many as are asked for"
    assert len(STILTED.findall(f"{said}, its name is said by its label")) == 5
    assert not STILTED.search("a coordinate, and what the laws partly say")
