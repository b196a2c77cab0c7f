"""What docs/files.md says of columns and keys is what the commands write; versions agree."""

import csv
import json
import re
import tomllib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import sparsity
from sparsity import quantities
from sparsity.report import figures, reproduction

ROOT = Path(__file__).parents[1]
PAGE = (ROOT / "docs" / "files.md").read_text()
FIGURES = ROOT / "figures"


def table(marker, page=PAGE):
    """The rows of the table after a marker, by the text of their first cell."""
    text = page.partition(f"<!-- {marker} -->")[2].strip().partition("\n\n")[0]
    rows = [re.split(r"(?<!\\)\|", line.strip("|")) for line in text.splitlines()[2:]]
    return {cells[0].strip().strip("`"): " | ".join(cells[1:]).strip() for cells in rows}


CURVES = list(table("curves"))
NAMED = ("along", "quantity", "unit")
UNITS = ("1", "tokens", "nat", "nat²")


def check_table_of_curves(rows, warning):
    """Hold a table of curves against the page; return its fixed parameters."""
    head = [name for name in CURVES if name != "warning" or warning]
    assert rows
    assert list(rows[0])[: len(head)] == head
    fixed = list(rows[0])[len(head) :]
    for row in rows:
        assert all(row[name] for name in ("series", "x", *NAMED)), row
        assert row["unit"] in UNITS
        assert bool(row["theory"]) or bool(row["estimate"])
        assert bool(row["estimate"]) == bool(row["stderr"]) == bool(row["seed"])
        float(row["x"])
    return fixed


def test_tables_of_figures_are_as_the_page_says():
    known = {p.name for k in (*sparsity.kernels.known(), *sparsity.kernels.MAPS)
             for p in k.parameters} | {"kernel", "length", "steps"}  # fmt: skip
    of_figures = {"rows", "positions", "common", "sink", "depth", "n_eff", "sink_mass", "rule"}
    cells = 0
    for figure in figures.ALL:
        with (FIGURES / f"{figure.name}.csv").open(encoding="utf-8") as file:
            rows = list(csv.DictReader(file))
        fixed = check_table_of_curves(rows, warning=False)
        assert set(fixed) <= known | of_figures, figure.name
        held = [row for row in rows if any(row[name] for name in fixed)]
        assert len(held) > 0.9 * len(rows), figure.name  # floors alone hold nothing fixed
        cells += len(rows)
    assert cells > 5000


def test_a_table_without_its_names_would_be_seen():
    with (FIGURES / "exp.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    for spoilt in ({"unit": ""}, {"along": ""}, {"quantity": ""}, {"x": "a"}):
        with pytest.raises((AssertionError, ValueError)):
            check_table_of_curves([rows[0] | spoilt], warning=False)
    with pytest.raises(AssertionError):
        check_table_of_curves([{k: v for k, v in rows[0].items() if k != "unit"}], warning=False)


@pytest.mark.parametrize(
    ("line", "along", "quantity", "fixed"),
    [("exp relu2 --gamma 1,2 --along 1:64:5", "length", "n_eff", {"kernel", "beta", "gamma"}),
     ("exp --x gamma --gamma 1:2:3 --length 8 --of entropy", "gamma", "entropy",
      {"kernel", "beta", "length"}),
     ("exp --gamma 1 --step alibi:0.1 --x slope --along 0.1:1:3 --length 8", "slope", "n_eff",
      {"kernel", "beta", "gamma", "length", "steps"}),
     ("exp --x dim --along 2:8:3 --length 8", "dim", "n_eff", {"kernel", "beta", "length"})],
)  # fmt: skip
def test_tables_of_plots_are_as_the_page_says(command, place, line, along, quantity, fixed):
    code, _, err = command("plot", *line.split(), "--out", "f.svg")
    assert (code, err) == (0, "")
    with open("f.csv", encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert set(check_table_of_curves(rows, warning=True)) - {"gamma"} == fixed - {"gamma"}
    assert {row["along"] for row in rows} == {along}
    assert {row["quantity"] for row in rows} == {quantity}
    assert {row["unit"] for row in rows} == {quantities.named(quantity).unit}


def test_units_of_tables_are_those_of_quantities():
    assert {q.unit for q in quantities.ALL} == {*UNITS}


@pytest.mark.thorough
def test_tables_of_sweeps_are_as_the_page_says(command, place):
    line = "sweep exp --gamma 1,2 --length 4 --of n_eff,entropy --montecarlo --rel-error 0.1"
    assert command(*line.split(), "--out", "f.csv")[0] == 0
    of_rows = Path("f.csv").read_text().partition("\n")[0].split(",")
    assert command("sweep", "exp", "--gamma", "1,2", "--out", "g.csv")[0] == 0
    of_limit = Path("g.csv").read_text().partition("\n")[0].split(",")
    said = re.findall(r"`([^`]+)`", " ".join(f"`{k}` {v}" for k, v in table("sweeps").items()))
    said += re.findall(r"`([^`]+)`", "".join(re.findall(r"^\| (.*?) \|", PAGE, re.MULTILINE)))
    patterns = [re.escape(x).replace("Q", "(S|S_limit|n_eff|entropy)") for x in said]
    for name in {*of_rows, *of_limit} - {"beta", "gamma", "length"}:
        assert any(re.fullmatch(pattern, name) for pattern in patterns), name
    assert {"error_bound_entropy", "stderr_entropy_mc", "S_rms", "n_eff_mc"} <= {*of_rows}
    assert {"S", "log_S", "error_bound"} <= {*of_limit}


# JSON.

KEYS = {}
for name, cell in table("json").items():
    always, _, sometimes = cell.replace(r"\|", "|").partition(" | ")
    KEYS[name] = tuple({*re.findall(r"`([^`]+)`", part)} for part in (always, sometimes))

LINES = [
    "list", "derive exp", "eval exp --gamma 2", "eval exp --gamma 2 --length 8",
    "eval exp --gamma 2 --length 8 --of entropy", "exact exp --gamma 2 --length 8",
    "exact exp --gamma 2 --length 8,9 --step alibi:0.1", "estimate exp --gamma 1 --rel-error 0.1",
    "estimate exp --gamma 1 --length 4 --of entropy --rel-error 0.1",
    "design --length 64 --n-eff 8", "design --length 64 --sink-mass 0.5 --gamma 1",
    "verify exp --gamma 1 --length 4 --detectable 0.01",
    "plot exp --gamma 1 --along 1:64:5 --out f.svg",
    "sweep exp --gamma 1,2 --out f.csv", "describe config.json --lengths 8",
]  # fmt: skip
CONFIG = {"model_type": "llama", "num_hidden_layers": 2, "num_attention_heads": 4,
          "hidden_size": 32, "max_position_embeddings": 64}  # fmt: skip


@pytest.fixture
def inputs(place):
    (place / "config.json").write_text(json.dumps(CONFIG))
    return place


def check_keys(name, found, more=()):
    always, sometimes = KEYS[name]
    assert always <= {*found}, (name, always - {*found})
    assert {*found} <= always | sometimes | {*more}, (name, {*found} - always - sometimes)


@pytest.mark.usefixtures("inputs")
@pytest.mark.parametrize(
    "line", [pytest.param(x, marks=[pytest.mark.thorough] * x.startswith("verify")) for x in LINES]
)
def test_json_has_the_keys_of_the_page(command, line):
    name = line.split()[0]
    code, out, _ = command(*line.split(), "--json")
    assert code == 0 or name == "verify"
    found = json.loads(out)
    check_keys(name, found, [found["quantity"]] if name == "design" else ())


def test_every_command_has_its_keys_on_the_page():
    from sparsity.cli import cli

    asked = {line.split()[0] for line in LINES} | {"claims", "reproduce", "measure"}
    assert {*KEYS} == asked == {*cli.commands}


def test_json_of_the_long_commands_has_the_keys_of_the_page(command, place):
    """Of `claims` and `reproduce`, which take a minute, as the files of a run have them."""
    records = json.loads((FIGURES / "claims.json").read_text())
    for record in records:
        check_keys("claims", {x for x in record if x not in ("basis", "experiments")})
    told = json.loads((FIGURES / "crosscheck.json").read_text())
    check_keys("verify", told | {"seconds": 1.0})
    crosscheck: Any = SimpleNamespace(agree=True, summary=lambda: told)
    done = reproduction.Reproduction(FIGURES, (), crosscheck, records, {"in all": 1.0})
    check_keys("reproduce", done.summary())
    environment = json.loads((FIGURES / "environment.json").read_text())
    assert {*environment} == {*re.findall(r"`([^`]+)`", table("files")["environment.json"])}
    assert not any("seconds" in (FIGURES / name).read_text() for name in
                   ("crosscheck.json", "environment.json"))  # fmt: skip


# Versions.

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_versions_agree():
    cited = dict(re.findall(r"^(version|date-released): (.*)$", (ROOT / "CITATION.cff").read_text(),
                            re.MULTILINE))  # fmt: skip
    changes = (ROOT / "CHANGELOG.md").read_text()
    heading = re.search(r"^## (\S+) \((.*)\)$", changes, re.MULTILINE)
    assert heading is not None
    assert PROJECT["version"] == sparsity.__version__ == cited["version"] == heading[1]
    # A version has its date in both, or in neither.
    assert heading[2] == cited.get("date-released", "unreleased")
    assert re.fullmatch(r"\d{4}-\d\d-\d\d|unreleased", heading[2])


def test_pythons_are_claimed_where_tests_ran():
    page = (ROOT / "docs" / "versions.md").read_text()
    said = [*table("pythons", page)]
    claimed = [x.rpartition(" ")[2] for x in PROJECT["classifiers"]
               if re.search(r"Python :: 3\.\d+$", x)]  # fmt: skip
    assert said == claimed
    assert len(claimed) >= 3
    assert PROJECT["requires-python"] == f">={claimed[0]}"


def test_the_version_is_on_every_page_of_the_docs():
    conf = (ROOT / "docs" / "conf.py").read_text()
    assert 'html_title = f"sparsity {version}"' in conf
