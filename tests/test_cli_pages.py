"""The command line as a new user meets it: pages, examples, completion, bars."""

import io
import json
import os
import pty
import re
import shlex
import termios
import time

import click
import pytest
from click.shell_completion import BashComplete
from command_line import ENVIRONMENT, python

import sparsity
from sparsity import kernels
from sparsity.cli import cli, common

pytestmark = pytest.mark.usefixtures("place")

COMMANDS = sorted(cli.commands)
EXAMPLES = [
    (name, line.strip())
    for name in COMMANDS
    for line in (cli.commands[name].help or "").partition("Examples:\n")[2].splitlines()
    if line.strip().startswith("sparsity ")
]
# These take a minute, a model, or append to a file: their examples are read but not run.
READ_ONLY = {"verify", "claims", "reproduce", "measure", "describe"}
SLOW = re.compile(  # a second each
    "--montecarlo|estimate .*|plot .*--length|design .*--n-eff 8( --gamma 1)?$|derive (relu2|.s)"
)


def words_of(line):
    """The words after `sparsity`."""
    first, *words = shlex.split(line)
    assert first == "sparsity"
    return words


def read(line):
    """Read a line as the command does, without running it: click raises at what it refuses."""
    with click.Context(cli, info_name="sparsity") as context:
        name, command, rest = cli.resolve_command(context, words_of(line))
        assert command is not None
        command.make_context(name, rest, parent=context).close()
    return name


def test_the_first_page_has_every_command_once_on_a_whole_line(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    code, out, err = command("--help")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    rows = [line for line in out.splitlines() if re.match(rf"  ({'|'.join(COMMANDS)}) ", line)]
    assert [row.split()[0] for row in rows] == COMMANDS
    for name, row in zip(COMMANDS, rows, strict=True):
        said = (cli.commands[name].help or "").partition("\n")[0]
        assert row.split(None, 1)[1] == said  # all of it: nothing is cut off
        assert said.endswith(".")


def test_every_command_has_examples_and_says_what_each_does(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in COMMANDS:
        out = command(name, "--help")[1]
        assert "Examples:" in out
        lines = [line for of, line in EXAMPLES if of == name]
        assert lines
        assert all(f":\n      {line}\n" in out for line in lines)
        assert out.index("Examples:") < out.index("Options:")
        assert max(map(len, out.splitlines())) <= 80


@pytest.mark.parametrize(("name", "line"), EXAMPLES)
def test_every_example_is_accepted(command, name, line):
    assert read(line) == name
    if name in READ_ONLY or SLOW.search(line):
        return
    code, out, err = command(*words_of(line))
    assert (code, err) == (0, "")
    assert out.strip()


@pytest.mark.slow
@pytest.mark.parametrize("line", [line for _, line in EXAMPLES if SLOW.search(line)])
def test_the_examples_that_are_slow_run(command, line):
    assert command(*words_of(line))[0] == 0


def test_a_wrong_example_would_be_seen():
    for line in ("sparsity eval exp --gama 2", "sparsity evil exp", "sparsity design --n-eff 8"):
        with pytest.raises(click.UsageError):
            read(line)


@pytest.mark.parametrize(
    ("typed", "line"),
    [("eval exp --gamma 0.1:10:50", "sparsity sweep exp --gamma 0.1:10:50 …"),
     ('estimate "s + 1" --beta 0 --gamma 1,2', "sparsity sweep 's + 1' --gamma 1,2 …")],
)  # fmt: skip
def test_a_grid_is_told_the_command_that_takes_it(command, typed, line):
    code, out, err = command(*shlex.split(typed))
    assert (code, out) == (2, "")
    assert err.endswith(f"takes one value; for a grid type: {line}\n")
    assert command("exact", "exp", "--gamma", "1", "--length", "4,8")[0] == 0  # of lengths alone


# Bars.

RECORDS = [
    {"key": f"k{i}", "source": "S", "claim": f"refuted is a word of claim {i}", "formula": "x",
     "verdict": verdict, "evidence": {"findings": [{"holds": True, "statement": "y"}]}}
    for i, verdict in enumerate(("confirmed", "refined", "reported", "refuted"))
]  # fmt: skip


def on_a_terminal(monkeypatch, *arguments, err=False):
    """What a command writes to stdout where stdout, or stderr besides, is a terminal."""
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (24, 100))  # a bar has no room on a terminal of none
    shown = io.TextIOWrapper(os.fdopen(slave, "wb", buffering=0), "utf-8", write_through=True)
    with monkeypatch.context() as patch:
        patch.setattr("sys.argv", ["sparsity", *arguments])
        patch.setattr("sys.stderr" if err else "sys.stdout", shown)
        from sparsity.cli import main

        main()
    os.set_blocking(master, False)
    with shown, os.fdopen(master, "rb", buffering=0) as reader:
        return reader.read(100_000).decode()


def judge(*, seed, progress):
    for done in (1, 2, 3):
        time.sleep(0.12)  # a bar is drawn ten times a second
        progress(done, 3)
    return RECORDS


@pytest.fixture
def judged(monkeypatch):
    monkeypatch.setattr(sparsity, "claims", judge, raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("judged")
def test_json_has_no_bar(monkeypatch):
    shown = on_a_terminal(monkeypatch, "claims", "--json")
    assert "\x1b" not in shown
    assert len(json.loads(shown)) == len(RECORDS)


@pytest.mark.thorough
@pytest.mark.usefixtures("judged")
def test_claims_show_a_bar_on_a_terminal_only(command, monkeypatch, capsys):
    for arguments in (["claims"], ["claims", "--json"]):
        assert re.search(r"[123]/3 ", on_a_terminal(monkeypatch, *arguments, err=True))
        assert "/3 " not in capsys.readouterr().out
        code, out, err = command(*arguments)
        assert (code, err) == (0, "")
        assert "\x1b" not in out


@pytest.mark.usefixtures("judged")
def test_a_log_has_a_line_now_and_then(monkeypatch, capsys):
    said = [
        "cells: 0 of 2",
        "cells: 1 of 2; ± 0.02, wanted 0.01",
        "cells: 2 of 2; ± 0.02, wanted 0.01",
    ]
    for seconds, lines in ((10.0, []), (0.0, said)):
        monkeypatch.setattr(common, "LOG_SECONDS", seconds)
        with common.progress("cells") as report:
            report(0, 2)
            report.note("± 0.02, wanted 0.01")
            report(1, 2)
            report(2, 2)
        assert capsys.readouterr().err.splitlines() == lines


# Completion, by click.


def offered(*words):
    """What bash gets for the last of these words."""
    asked = {"_SPARSITY_COMPLETE": "bash_complete", "COMP_CWORD": str(len(words))}
    asked["COMP_WORDS"] = shlex.join(["sparsity", *words])
    found = python("-m", "sparsity", env=ENVIRONMENT | asked)
    return [line.partition(",") for line in found.stdout.splitlines()]


def test_values_are_offered(monkeypatch):
    bash = BashComplete(cli, {}, "sparsity", "_SPARSITY_COMPLETE")
    for line, kind, values in (
        ("de", "plain", ["derive", "design", "describe"]), ("eval exp --gam", "plain", ["--gamma"]),
        ("exact topk", "plain", ["topk:8"]), ("exact exp --step al", "plain", ["alibi:"]),
        ("exact exp --of ent", "plain", ["entropy"]), ("plot exp --xscale l", "plain", ["linear"]),
        ("reproduce --out d", "dir", ["d"]), ("sweep exp --out o", "file", ["o"]),
    ):  # fmt: skip
        words = line.split()
        monkeypatch.setenv("COMP_WORDS", shlex.join(["sparsity", *words]))
        monkeypatch.setenv("COMP_CWORD", str(len(words)))
        found = [each.partition(",") for each in bash.complete().splitlines()]
        assert {found_kind for found_kind, _, _ in found} == {kind}, line
        assert {value for _, _, value in found} >= set(values)
    assert found == [(kind, ",", values[0])] == offered(*words)  # by the process that bash starts


def test_a_page_has_every_option_steps_and_quantities(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name, each in cli.commands.items():
        out = command(name, "--help")[1]
        for option in (x for p in each.params if isinstance(p, click.Option) for x in p.opts):
            assert re.search(rf"^  (-h, )?{option}( |$)", out, re.MULTILINE), (name, option)
    out = command("exact", "--help")[1]
    places = [out.index(f"{heading}:") for heading in ("Usage", "Examples", "Options")]
    assert places == sorted(places)
    out = command("list")[1]
    assert "alibi:SLOPE" in out.partition("Steps (--step):")[2]
    assert "  entropy " in out.partition("Quantities (--of):")[2]


# What is wrong with a path is said before anything heavy is imported.

HEAVY = ["jax", "jaxlib", "sympy", "scipy", "xarray", "matplotlib.figure", "h5py"]
RUN = """import json, sys
from sparsity.cli import main
for line in json.load(sys.stdin):
    sys.argv = ["sparsity", *line.split()]
    try:
        main()
    except SystemExit as stop:
        print(stop.code, *sorted(set({heavy}) & set(sys.modules)))
"""
BAD_PATHS = [
    ("measure no.gguf t.txt --out a.nc", "model = no.gguf: no such file"),
    ("measure no.gguf t.txt --out a.nc --report page", "model = no.gguf: no such file"),
    ("measure there no.txt --out a.nc", "text = no.txt: no such file"),
    ("measure there there --out no/a.nc", "out = no/a.nc: cannot be written"),
    ("measure there there --out a.txt", "out = a.txt: is written as netCDF"),
    ("describe no.json", "config = no.json: no such file"),
    ("describe there --out a.txt", "out = a.txt: give a name that ends in .svg"),
    ("describe there --out no/a.svg", "out = no/a.svg: cannot be written"),
    ("plot exp --gamma 2 --out no/a.svg", "out = no/a.svg: cannot be written"),
    ("sweep exp --gamma 2 --out no/a.nc", "out = no/a.nc: cannot be written"),
    ("sweep exp --gamma 2 --out there/a.zarr", "out = there/a.zarr: cannot be written"),
    ("reproduce --out there/a", "out = there/a: cannot be written"),
]


def run_apart(*lines):
    """Run lines of the command, one after another, in one process: its stdout and its stderr."""
    found = python("-c", RUN.format(heavy=HEAVY), input=json.dumps(lines))
    return found.stdout.splitlines(), found.stderr.splitlines()


def test_a_bad_path_is_said_before_imports(place):
    (place / "there").write_text("x")
    out, err = run_apart(*(line for line, _ in BAD_PATHS))
    assert out == ["2"] * len(BAD_PATHS)
    for told, (_, said) in zip(err, BAD_PATHS, strict=True):
        assert told.startswith(f"sparsity: {said}")
    assert [x.name for x in place.iterdir()] == ["there"]


def test_a_heavy_import_would_be_seen():
    assert "sympy" in run_apart("eval exp --gamma x")[0][0]


@pytest.mark.parametrize(
    ("name", "said"),
    [("exp", "exp (softmax)"), ("relu2", "relu2 (squared ReLU)"), ("gelu", "gelu"),
     ("linear", "identity (signed linear)"), ("differential", "differential"),
     ("topk:8", "topk:8 (softmax of the 8 largest)")],
)  # fmt: skip
def test_a_title_is_not_said_twice(command, name, said):
    assert kernels.name_with_title(kernels.named(name)) == said
    rows = command("list")[1].splitlines()
    assert name == "exp" or sum(f"{said}  " in row for row in rows) == 1
