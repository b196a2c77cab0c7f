"""The command line as a new user meets it: pages, examples, completion, colour, bars."""

import io
import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import termios
import time
from pathlib import Path

import click
import pytest

import sparsity
from sparsity import InputError, kernels
from sparsity.cli import cli, common, pages, request
from sparsity.plots import requests

pytestmark = pytest.mark.usefixtures("place")

ROOT = Path(__file__).parents[1]
COMMANDS = sorted(cli.commands)
EXAMPLES = [
    (name, line) for name in COMMANDS for _, line in getattr(cli.commands[name], "examples", ())
]
# These take a minute, a model, or append to a file: their examples are read but not run.
READ_ONLY = {"verify", "claims", "reproduce", "measure", "describe", "completion"}
SLOW = re.compile("--montecarlo|estimate .*--length|estimate .*--dim")  # compile for a second each


def words_of(line):
    """The words after `sparsity`, up to a redirection of the shell."""
    first, *words = shlex.split(line)
    assert first == "sparsity"
    return words[: words.index(">>") if ">>" in words else None][
        : words.index(">") if ">" in words else None
    ]


def read(line):
    """Read a line as the command does, without running it: click raises at what it refuses."""
    with click.Context(cli, info_name="sparsity") as context:
        name, command, rest = cli.resolve_command(context, words_of(line))
        assert command is not None
        command.make_context(name, rest, parent=context).close()
    return name


def test_the_first_page_has_every_command_once_on_a_whole_line(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    members = [x.name for section in cli.sections.values() for x in section]
    assert sorted(members) == COMMANDS
    assert len(set(members)) == len(members)
    code, out, err = command("--help")
    assert (code, err) == (0, "")
    assert max(map(len, out.splitlines())) <= 80
    rows = [line for line in out.splitlines() if re.match(rf"  ({'|'.join(COMMANDS)}) ", line)]
    assert [row.split()[0] for row in rows] == members
    for name, row in zip(members, rows, strict=True):
        said = (cli.commands[name].help or "").partition("\n")[0]
        assert row.split(None, 1)[1] == said  # all of it: nothing is cut off
        assert said.endswith(".")
    assert all(f"{heading}:" in out for heading in cli.sections)


def test_a_first_sentence_that_is_too_long_would_be_seen():
    said = "This sentence goes on and on until it is far too long for a line of eighty columns."
    group = pages.Commands("x", sections={"All": (click.Command("long", help=said),)})
    with click.Context(group, terminal_width=80) as context:
        out = group.get_help(context)
    assert said not in out
    assert "..." in out


def test_every_command_has_examples_and_says_what_each_does(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    for name in COMMANDS:
        out = command(name, "--help")[1]
        assert "Examples:" in out
        for about, line in cli.commands[name].examples:
            assert f"  {about}:\n    {line}\n" in out
            assert len(line) <= 76
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
def test_the_examples_that_sample_run(command, line):
    assert command(*words_of(line))[0] == 0


def test_a_wrong_example_would_be_seen():
    for line in ("sparsity eval exp --gama 2", "sparsity evil exp", "sparsity design --n-eff 8"):
        with pytest.raises(click.UsageError):
            read(line)


GRIDS = [  # (typed, the line that the answer names)
    ("eval exp --gamma 0.1:10:50", "sparsity sweep exp --gamma 0.1:10:50 --out sweep.nc"),
    ("eval relu2 --beta -1,1 --gamma 1 --length 8 --json",
     "sparsity sweep relu2 --beta -1,1 --gamma 1 --length 8 --of S,n_eff --out sweep.nc"),
    ("exact exp --gamma 1 --length 4:9:2:log --decay 0.5",
     "sparsity sweep exp --gamma 1 --length 4:9:2:log --step decay:0.5 --of n_eff --out sweep.nc"),
    ("exact exp --gamma 1,2 --length 4 --scores uniform --step window:3",
     "sparsity sweep exp --gamma 1,2 --length 4 --scores uniform --step window:3 --of n_eff "
     "--out sweep.nc"),
    ('eval "s + 1" --beta 0 --gamma 1,2',
     "sparsity sweep 's + 1' --beta 0 --gamma 1,2 --out sweep.nc"),
    ("estimate exp --gamma 1,2 --dim 4",
     "sparsity sweep exp --gamma 1,2 --montecarlo --out sweep.nc"),
]  # fmt: skip


@pytest.mark.parametrize(("typed", "line"), GRIDS)
def test_a_grid_is_told_the_line_that_takes_it(command, place, typed, line):
    code, out, err = command(*shlex.split(typed))
    assert (code, out) == (2, "")
    assert err.count("\n") == 1
    assert err.endswith(f"takes one value; for a grid type: {line}\n")
    read(line)
    if "--montecarlo" not in line:
        assert command(*words_of(line))[0] == 0
        assert (place / "sweep.nc").exists()


@pytest.mark.parametrize(
    "typed",
    ["estimate exp --gamma 1 --dim 2,3", "eval exp --gamma 1 --length 4 --decay 0.1,0.5",
     "eval gelu --beta 0 --gamma 1,2 --length 64 --of entropy"],
)  # fmt: skip
def test_a_grid_that_no_command_takes(command, typed):
    code, out, err = command(*typed.split())
    assert (code, out) == (2, "")
    assert err.endswith("takes one value; give one\n")


def test_a_list_of_lengths_is_no_grid():
    options = dict.fromkeys(common.PARAMETERS) | {"gamma": "1", "length": "4,8"}
    assert request.refuse_grid("exact", "exp", options, (), None) is None
    with pytest.raises(InputError, match="eval takes one value"):
        request.refuse_grid("eval", "exp", options, (), None)


# Colour and bars.

RECORDS = [
    {"source": "S", "claim": f"refuted is a word of claim {i}", "formula": "x", "verdict": verdict,
     "evidence": {"findings": [{"holds": True, "statement": "y"}]}}
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
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")


@pytest.mark.usefixtures("judged")
def test_verdicts_have_colour_on_a_terminal_only(command, monkeypatch):
    shown = on_a_terminal(monkeypatch, "claims")
    green, yellow, red = (f"\x1b[{code}m" for code in (32, 33, 31))
    words = {"CONFIRMED": green, "REFINED": yellow, "REPORTED": yellow, "REFUTED": red}
    for word, colour in words.items():
        assert f"  {colour}{word}\x1b[0m " in shown
    assert shown.count("\x1b[") == 8  # and nothing else has any
    plain = re.sub(r"\x1b\[\d+m", "", shown).replace("\r\n", "\n")
    assert command("claims")[1] == plain


@pytest.mark.usefixtures("judged")
@pytest.mark.parametrize(("name", "value"), [("NO_COLOR", "1"), ("TERM", "dumb")])
def test_colour_can_be_turned_off(monkeypatch, name, value):
    assert "\x1b[" in on_a_terminal(monkeypatch, "claims")
    monkeypatch.setenv(name, value)
    assert "\x1b[" not in on_a_terminal(monkeypatch, "claims")


@pytest.mark.usefixtures("judged")
def test_json_has_no_colour_and_no_bar(monkeypatch):
    shown = on_a_terminal(monkeypatch, "claims", "--json")
    assert "\x1b" not in shown
    assert len(json.loads(shown)) == len(RECORDS)


@pytest.mark.usefixtures("judged")
def test_claims_show_a_bar_on_a_terminal_only(command, monkeypatch, capsys):
    for arguments in (["claims"], ["claims", "--json"]):
        assert re.search(r"[123]/3 ", on_a_terminal(monkeypatch, *arguments, err=True))
        assert "/3 " not in capsys.readouterr().out
        code, out, err = command(*arguments)
        assert (code, err) == (0, "")
        assert "\x1b" not in out


def test_what_agrees_is_told_in_colour():
    with click.Context(cli, color=True):
        for text, colour in (("AGREE: 3 cells", 32), ("NOT IN AGREEMENT: 3", 31),
                             ("disagree: exp", 31), ("not enough evidence: exp", 33)):  # fmt: skip
            assert f"\x1b[{colour}m" in said(text)
        for text in ("agree", "a claim that is refuted", "refutedly", "exp 3 of 3 agree"):
            assert "\x1b" not in said(text)


def said(text):
    out = io.StringIO()
    stdout, sys.stdout = sys.stdout, out
    try:
        common.say(text)
    finally:
        sys.stdout = stdout
    return out.getvalue()


# Completion in real shells.

SHELLS = {
    "bash": 'eval "$(sparsity completion bash)"; COMP_WORDS=({words}); COMP_CWORD={last}; '
    '_sparsity_completion sparsity; printf "%s\\n" "${{COMPREPLY[@]}}"',
    "fish": "sparsity completion fish | source; complete --do-complete '{line}'",
}


@pytest.mark.parametrize("shell", SHELLS)
def test_a_shell_completes_with_the_script(shell, place):
    if shutil.which(shell) is None:
        pytest.skip(f"no {shell} here")
    (place / "bin").mkdir()
    program = place / "bin" / "sparsity"
    program.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m sparsity "$@"\n')
    program.chmod(0o755)
    line = "sparsity exact topk:8 --of top"
    script = SHELLS[shell].format(words="sparsity exact exp --of top", last=4, line=line)
    found = subprocess.run(
        [shell, "-c", script],
        capture_output=True, text=True, check=False, timeout=60,
        env=os.environ
        | {"PATH": f"{place / 'bin'}:{os.environ['PATH']}", "PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert [each.split("\t")[0] for each in found.stdout.split("\n") if each] == ["top_k_mass:"]


def test_the_script_is_that_of_click(command, monkeypatch):
    for shell in ("bash", "zsh", "fish"):
        code, out, err = command("completion", shell)
        assert (code, err) == (0, "")
        assert f"_SPARSITY_COMPLETE={shell}_complete" in out
    code, out, err = command("completion", "csh")
    assert (code, out) == (2, "")
    assert err == "sparsity: shell = csh: choose one of bash, zsh, fish\n"


def test_files_are_left_to_the_shell(command, monkeypatch):
    monkeypatch.setenv("_SPARSITY_COMPLETE", "bash_complete")
    for words, kind in (("sparsity measure mod", "file"), ("sparsity reproduce --out d", "dir"),
                        ("sparsity sweep exp --out o", "file")):  # fmt: skip
        monkeypatch.setenv("COMP_WORDS", words)
        monkeypatch.setenv("COMP_CWORD", str(len(words.split()) - 1))
        assert command()[1].startswith(f"{kind},")


# What is typed in place of an option.

MEANT = {
    "--n": "--length", "--N": "--length", "-n": "--length", "--seq_len": "--length",
    "--lambda": "--decay", "--d": "--dim", "--γ": "--gamma", "--gama": "--gamma", "--g": "--gamma",
    "--gammas": "--gamma", "--samples": "--max-samples", "--rel_error": "--rel-error",
}  # fmt: skip


@pytest.mark.parametrize(
    ("line", "said"),
    [(f"estimate exp {typed} 2", f"'{typed}'. Did you mean '{x}'?") for typed, x in MEANT.items()]
    + [(f"{name} exp --gama 2", "'--gama'. Did you mean '--gamma'? See sparsity " + name)
       for name in ("eval", "exact", "design", "verify", "plot", "sweep", "describe")]
    + [("describe x --n 4k", "'--n'. Did you mean '--lengths'?"),
       ("measure x --n 64", "'--n'. Did you mean '--tokens'?"),
       ("claims --n-eff 2", "'--n-eff'. It is an option of `design`: see sparsity claims --help"),
       ("eval exp --zzz 2", "No such option '--zzz': see sparsity eval --help")],
)  # fmt: skip
def test_an_unknown_option_is_told_the_right_one(command, line, said):
    code, out, error = command(*line.split())
    assert (code, out, error.count("\n")) == (2, "", 1)
    assert said in error


# Pages in two levels.


def test_rare_options_and_lists_stand_on_the_whole_page_alone(command, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    seen = 0
    for name, each in cli.commands.items():
        short = command(name, "--help")[1]
        rare = {option for x in each.rare for option in x.opts}
        assert len(short.splitlines()) <= 60
        assert (f"sparsity {name} --help-all also" in " ".join(short.split())) == bool(rare)
        if not rare:
            assert command(name, "--help-all")[0] == 2
            continue
        code, whole, err = command(name, "--help-all")
        assert (code, err) == (0, "")
        for x in each.params:
            for option in x.opts if isinstance(x, click.Option) else ():
                row = re.compile(rf"^  (-h, )?{option}( |$)", re.MULTILINE)
                assert row.search(whole), (name, option)  # every option is on the whole page
                assert bool(row.search(short, short.index("Examples:"))) == (option not in rare)
                seen += 1
    assert seen > 150
    assert "alibi:SLOPE" not in command("exact", "--help")[1]
    assert "--dim" in command("estimate", "--help")[1]  # its examples type it


# Values on Tab.


def offered(command, monkeypatch, *words):
    monkeypatch.setenv("_SPARSITY_COMPLETE", "bash_complete")
    monkeypatch.setenv("COMP_WORDS", shlex.join(["sparsity", *words]))
    monkeypatch.setenv("COMP_CWORD", str(len(words)))
    return [line.partition(",")[2] for line in command()[1].splitlines()]


def test_every_option_that_takes_a_word_offers_its_values():
    free = {"VALUE", "T", "N", "M", "P", "V", "E", "K", "G", "GRID", "TEXT", "ADDRESS", "LOW,HIGH",
            "W,H", "N,N…"}  # fmt: skip
    options = [(name, x) for name, each in cli.commands.items() for x in each.params
               if isinstance(x, click.Option) and not x.is_flag]  # fmt: skip
    assert len(options) > 100
    for name, x in options:
        assert (x._custom_shell_complete is None) == (x.metavar in free), (name, x.opts)


@pytest.mark.parametrize(
    ("words", "some"),
    [("plot exp --x ", {"beta", "gamma", "length", "dim"}), ("plot --x ", {"decay", "ratio"}),
     ("plot exp --step alibi:0.1 --x s", {"slope"}), ("plot router:64 --x r", {"rho"}),
     ("plot exp --xscale ", {"linear", "log"}), ("describe c.json --of n_", {"n_eff"}),
     ("exact exp --step tem", {"temperature:llama4", "temperature:yarn"}),
     ("exact exp --step temperature : l", {"llama4"}), ("exact exp --step temperature :", {"qwen"}),
     ("exact topk : 8 --of top", {"top_k_mass:"}), ("exact exp --step temperature:l",
      {"temperature:llama4"}), ("exact exp --help-", {"--help-all"})],
)  # fmt: skip
def test_values_are_offered(command, monkeypatch, words, some):
    assert set(offered(command, monkeypatch, *words.split(" "))) >= some


def test_every_axis_that_is_offered_is_taken(command, monkeypatch):
    names = offered(command, monkeypatch, "plot", "relu2", "--step", "window:8", "--x", "")
    assert {"window", "gamma"} <= set(names)
    row = sparsity.Row("relu2", beta=0, gamma=1, steps=(sparsity.Window(8),))
    for name in names:
        assert requests.check_x_axis(row, name) == [row]
    with pytest.raises(InputError, match=r"^x = slope"):
        requests.check_x_axis(row, "slope")


# What is wrong with a path is said before anything heavy is imported.

HEAVY = ["jax", "jaxlib", "sympy", "scipy", "xarray", "matplotlib.figure", "h5py"]
RUN = """import sys
from sparsity.cli import main
try:
    main()
except SystemExit as stop:
    print(stop.code, *sorted(set({heavy}) & set(sys.modules)))
"""


@pytest.mark.parametrize(
    ("line", "said"),
    [("measure no.gguf t.txt --out a.nc", "model = no.gguf: is not there"),
     ("measure no.gguf t.txt --out a.nc --report page", "model = no.gguf: is not there"),
     ("measure there no.txt --out a.nc", "text = no.txt: is not there"),
     ("measure there there --out no/a.nc", "out = no/a.nc: cannot be written"),
     ("measure there there --out a.txt", "out = a.txt: is written as netCDF"),
     ("describe no.json", "config = no.json: is not there"),
     ("describe there --out a.txt", "out = a.txt: give a name that ends in .svg"),
     ("describe there --out no/a.svg", "out = no/a.svg: cannot be written"),
     ("plot exp --gamma 2 --out no/a.svg", "out = no/a.svg: cannot be written"),
     ("sweep exp --gamma 2 --out no/a.nc", "out = no/a.nc: cannot be written"),
     ("sweep exp --gamma 2 --out there/a.zarr", "out = there/a.zarr: cannot be written"),
     ("reproduce --page --out no", "out = no: is not there"),
     ("reproduce --out there/a", "out = there/a: cannot be written")],
)  # fmt: skip
def test_a_bad_path_is_said_before_imports(place, line, said):
    (place / "there").write_text("x")
    found = subprocess.run(
        [sys.executable, "-c", RUN.format(heavy=HEAVY), *line.split()],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert found.stderr.startswith(f"sparsity: {said}")
    assert found.stdout == "2\n"
    assert [x.name for x in place.iterdir()] == ["there"]


def test_a_heavy_import_would_be_seen(place):
    found = subprocess.run(
        [sys.executable, "-c", RUN.format(heavy=HEAVY), "eval", "exp", "--gamma", "x"],
        capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": str(ROOT)},
    )  # fmt: skip
    assert "sympy" in found.stdout


@pytest.mark.parametrize(
    ("name", "said"),
    [("exp", "exp (softmax)"), ("relu2", "relu2 (squared ReLU)"), ("gelu", "gelu"),
     ("differential", "differential"), ("topk:8", "topk:8 (softmax of the 8 largest)")],
)  # fmt: skip
def test_a_title_is_not_said_twice(command, name, said):
    assert kernels.name_with_title(kernels.named(name)) == said
    rows = command("list")[1].splitlines()
    assert sum(row.startswith(f"{said}  ") for row in rows) == 1
