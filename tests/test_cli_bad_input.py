"""Bad input on the command line: exit 2, one line, nothing on stdout, nothing left behind."""

from dataclasses import replace

import pytest
import sympy
from command_line import NAMES, one_line

from sparsity import kernels

pytestmark = pytest.mark.usefixtures("place")

BAD = [  # (command line, what the line on stderr must say)
    # β and γ
    *((f"eval exp --gamma {value}", ["gamma", value, shown])
      for value, shown in (("-1", "> 0"), ("0", "> 0"), ("nan", "finite"), ("abc", "number"))),
    ("eval relu2 --beta 1e400 --gamma 1", ["beta", "1e400", "finite"]),
    # an unknown kernel
    *((f"{verb} relv2 {rest}", ["kernel", "relv2", "did you mean relu2?"])
      for verb, rest in (("eval", "--gamma 1"), ("derive", ""), ("estimate", "--gamma 1"),
                         ("verify", ""), ("sweep", "--gamma 1 --out x.nc"))),
    ("eval sparsify --gamma 1", ["kernel", "sparsify", f"the kernels are {', '.join(NAMES)}"]),
    # a sink
    ("design nope --length 100 --sink-mass 0.5 --gamma 1", ["kernel", "nope"]),
    ("design --length 1000 --gamma 1 --sink-mass 1", ["mass = 1", "between 0 and 1"]),
    # λ
    ("eval decayed --decay 1.5 --length 10", ["decay", "1.5", "(0, 1]"]),
    # n
    *((f"eval exp --gamma 1 --length {value}", ["length", value, shown])
      for value, shown in (("0", ">= 1"), ("-3", ">= 1"), ("2.5", "whole"), ("abc", "number"),
                           ("inf", "finite"))),
    ("eval exp --gamma 1 --length 2e300", ["length", "2e300", "at most 2^53"]),
    # d, σ̃/μ̃ and the query family
    ("eval nonnegative --ratio 1 --dim 2.5 --query uniform", ["dim", "2.5", "whole"]),
    ("eval nonnegative --ratio 1 --dim 4 --query unifrom", ["query", "unifrom", "uniform"]),
    # missing where it matters
    ("sweep relu2 --beta 1 --out x.nc", ["gamma", "missing", "relu2 needs"]),
    ("eval exp", ["gamma", "missing"]),
    ("eval", ["KERNEL"]),
    ("sweep exp --gamma 1", ["--out"]),
    # an option that the kernel does not take
    ("eval nonnegative --ratio 1 --dim 4 --query uniform --beta 3",
     ["beta", "3", "does not take it", "nonnegative"]),
    ("eval exp --gamma 1 --decay 0.25", ["decay = 0.25", "give length as well"]),
    ("sweep exp --gamma 1 --decay 0.5 --out x.nc", ["decay", "0.5", "does not take it"]),
    ("estimate exp --gamma 1 --ratio 3", ["ratio", "3", "does not take it"]),
    ("eval exp --gamma 1 --temperature 3", ["--temperature"]),
    # steps and quantities
    *((f"{verb} exp --gamma 1 --length 8 --step alibbi:1", ["step", "did you mean alibi?"])
      for verb in ("eval", "exact", "estimate", "sweep --out x.nc", "design --n-eff 3")),
    ("exact exp --gamma 1 --length 8 --step alibi:1,2", ["step", "write alibi:SLOPE, such as"]),
    ("exact exp --gamma 1 --length 8 --step alibi:x", ["step = x", "alibi:NUMBER"]),
    ("sweep exp --gamma 1 --length 8 --of nef --out x.nc", ["of", "nef", "did you mean n_eff?"]),
    ("estimate exp --gamma 1 --of n_eff", ["length", "missing", "rows of n"]),
    ("eval exp --gamma 1 --step window:4", ["length", "missing"]),
    ("exact exp --gamma 1 --length 8,x", ["length = x", "number"]),
    ("exact exp --gamma 1 --length 8 --dim 4", ["dim = 4", "same in every dimension"]),
    ("design exp --length 8 --n-eff 3 --free xyz", ["free", "xyz", "choose one of"]),
    ("design decayed --length 8 --n-eff 3 --step alibi:1", ["step", "alibi:1", "no scores"]),
    ("design exp --length 8 --n-eff 3 --of S --value 0.5", ["n_eff, S", "give one quantity"]),
    ("design exp --length 8 --of S", ["value", "missing"]),
    # a malformed grid
    *((f"sweep relu2 --beta 0 --gamma {grid} --out x.nc", ["gamma", grid, shown])
      for grid, shown in (
          ("1:2", "start:stop:count"), ("1:2:3:lin", "log"), ("1,x", "not a number"), (":::", ""))),
    ("sweep relu2 --beta 0 --gamma -1,1 --out x.nc", ["gamma = -1", "> 0"]),
    ("sweep nonnegative --ratio 1 --dim 4 --query uniform,dense --out x.nc", ["query", "dense"]),
    (f"sweep relu2 --beta 0:1:{10**4} --gamma 1:2:{10**4} --out x.nc", ["1000000"]),
    # numbers that only Python reads
    *((f"eval exp --gamma {value}", ["gamma", value, "give a"])
      for value in ("1_0", "１", "0x10", "1e")),
    *((line.format("1_0"), [name, "1_0", "give a"])
      for name, line in (("length", "design --n-eff 2 --length {}"), ("seed", "verify --seed {}"),
                         ("n_eff", "design --length 100 --n-eff {}"),
                         ("rel_error", "estimate exp --gamma 1 --rel-error {}"))),
    *((f"sweep relu2 --beta 0 --gamma {grid} --out x.nc", ["gamma", grid, shown])
      for grid, shown in (("1,٣", "not a number"), ("1:2:1_0", "whole number"))),
    # what is beyond float64 is one line, and no warning besides
    *((f"estimate {rest}", [shown]) for rest, shown in (
        ("exp --gamma 1e200", "weight = exp(s)"),
        ("exp --gamma 1e200 --dim 8", "gamma = 1e+200"),
        ("identity --beta 1e300 --gamma 1e300", "weight = s"))),
    ("design --length 100 --sink-mass 0.5 --gamma 1e300", ["weight = exp(s)"]),
    # the suffix says what is written
    *((f"sweep exp --gamma 1 --out {name}", ["out", name, "ends in .nc, .zarr or .csv"])
      for name in ("x", "x.h5", "x.nc.txt")),
    # the settings of sampling and of output
    ("derive exp --format html", ["format", "html", "'text', 'latex'"]),
    ("estimate exp --gamma 1 --seed x", ["seed", "x", "whole"]),
    ("estimate exp --gamma 1 --rel-error x", ["rel_error", "x", "number"]),
    ("estimate exp --gamma 1 --method magic", ["method", "magic", "stratified"]),
    ("estimate exp --gamma 1 --decay 0.5", ["decay", "0.5", "length"]),
    ("verify --seed x", ["seed", "x", "whole"]),
    ("verify exp relu2 --gamma 1", ["gamma", "1", "one kernel"]),
    ("verify --step window:4", ["step", "window:4", "one kernel"]),
    ("claims --seed x", ["seed", "x", "whole"]),
    # an unwritable place: below a regular file, as permissions do not stop root
    ("sweep exp --gamma 1 --out {file}/x.nc", ["out", "{file}/x.nc", "choose another place"]),
    ("sweep exp --gamma 1 --out missing/x.nc", ["out", "missing/x.nc", "choose another place"]),
    ("sweep exp --gamma 1 --out .", ["out", "folder"]),
    ("reproduce --out {file}", ["out", "{file}", "choose another place"]),
    ("reproduce --out {file}/figures --json", ["out", "choose another place"]),
    ("reproduce --seed x", ["seed", "x", "whole"]),
    # what was meant
    ("exact exp gamma=2", ["write --gamma 2: as in sparsity exact exp --gamma 2 --length 64"]),
    ("exact exp 2", ["as in sparsity exact exp --gamma 2"]),
    ("exact exp --n 64", ["'--n'; did you mean --length? See sparsity exact --help"]),
    ("eval exp --temperature 2", ["did you mean gamma/T, or a rule, --step temperature:llama4?"]),
    ("exact exp --window 64", ["did you mean a step, such as --step window:64?"]),
    ("exact exp --gamma 2 --length 8 --of n_eff,gini", ["give one quantity; sweep takes several"]),
    ("design --length 64 --neff 8", ["did you mean --n-eff?"]),
    ("exact exp --gamma 2 --length 64 --step window=4", ["did you mean window? write NAME:NUMBER"]),
    ("plot exp --open", ["No such option '--open': see sparsity plot --help"]),
    ("plot exp --gamma 2 --save a.svg", ["did you mean --out?"]),
    ("plot exp --gamma 2", ["'--out': as in sparsity plot exp --gamma 2 --out focus.svg"]),
    ("plot exp --gamma 2 --x n --out a.svg", ["did you mean length?"]),
    ("exact exp --gamma 2 --length 64 --step window", ["write window:SIZE[,KEEP], such as wind"]),
    ("exact exp --gamma 2 --length 64 --step temperature:0.5", ["a constant T is gamma/T"]),
    ("exact exp --gamma 2 --length 64 --step temperature:yran,16", ["did you mean yarn?"]),
    ("claims sofmax-gap", ["key = sofmax-gap: did you mean softmax-gap?"]),
    # no such thing
    ("frobnicate", ["frobnicate"]),
]  # fmt: skip


@pytest.mark.parametrize(("line", "says"), BAD, ids=[line for line, _ in BAD])
def test_bad_input(command, place, line, says):
    plain = place / "plain-file"
    plain.write_text("not a folder")
    code, out, err = command(*line.format(file=plain.name).split())
    assert (code, out) == (2, "")
    message = one_line(err)
    for words in says:
        assert words.format(file=plain.name) in message
    assert [path.name for path in place.iterdir()] == ["plain-file"]
    assert plain.read_text() == "not a folder"


WARNED = ["estimate exp --gamma 1e200", "design --length 100 --n-eff 5 --beta 1e300",
          "estimate identity --beta 1e200 --gamma 1e200 --dim 4",
          "eval identity --beta 1e300 --gamma 1 --length 10"]  # fmt: skip


@pytest.mark.parametrize("line", WARNED)
def test_no_warning_is_printed_at_the_extremes(command, line):
    """Any that the command does not silence is an error here; below, one that it does."""
    code, _, err = command(*line.split())
    assert code in (0, 2)
    assert err == "" if code == 0 else one_line(err)


def test_no_command_is_bad_input_of_one_short_line(command):
    code, out, err = command()
    assert (code, out) == (2, "")
    assert "--help" in one_line(err)


def test_an_empty_option_is_bad_input(command):
    code, out, err = command("eval", "relu2", "--beta", "", "--gamma", "1")
    assert (code, out) == (2, "")
    assert "beta" in one_line(err)


def test_control_characters_cannot_break_the_line(command):
    code, out, err = command("eval", "exp\nsecond line", "--gamma", "1")
    assert (code, out) == (2, "")
    assert "second line" in one_line(err)


def test_a_kernel_without_closed_form_is_one_line(command, monkeypatch):
    from sparsity.kernels.symbols import s

    odd = replace(kernels.exp, name="odd", weight=sympy.tanh(s))
    monkeypatch.setattr(kernels, "ALL", (*kernels.ALL, odd))
    code, out, err = command("derive", "odd")
    assert (code, out) == (2, "")
    assert "no closed form" in one_line(err)
