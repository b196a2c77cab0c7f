"""What the command line prints and takes, as its tests read and type it."""

import json
import os
import subprocess
import sys
from pathlib import Path

from sparsity import Alibi, Needle, SinkLogit, Window, kernels, quantities
from sparsity.rows import steps

ROOT = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
NAMES = [kernel.name for kernel in kernels.ALL]
KNOWN = [kernel.name for kernel in kernels.known()]
LISTED = [kernel.name for kernel in kernels.as_listed()]
STEPS = steps.typed()
QUANTITIES = [quantity.name for quantity in quantities.ALL]
LAWS = [quantity.name for quantity in quantities.ALL if quantity.has_law]
TOKENS = 64  # of drawn rows: those of one kernel and one length compile once
STEPPED = (Alibi(0.01), Window(48), SinkLogit(4.0))
STEPPED_LINE = ["--step", "alibi:0.01", "--step", "window:48", "--step", "sink-logit:4"]


def stepped(of):
    """The steps of rows that have a quantity, and as they are typed."""
    if quantities.named(of).rank_law is not None:  # its law is that of rows without steps
        return (), []
    needle = quantities.named(of).needs == "needle"
    steps = (*STEPPED, Needle(6.0, 0.0, 9)) if needle else STEPPED
    return steps, [*STEPPED_LINE, *(["--step", "needle:6,0,9"] if needle else [])]


def value_of(out):
    """The one JSON value on stdout; NaN and Infinity are not JSON."""

    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    assert out.endswith("\n")
    assert out.count("\n") == 1
    return json.loads(out, parse_constant=refuse)


def answer(command, *arguments, code=0):
    found, out, err = command(*arguments, "--json")
    assert found == code, err
    assert "Traceback" not in err
    return value_of(out)


def one_line(err):
    """The line a failed command leaves on stderr."""
    assert err.count("\n") == 1, err
    assert err.startswith("sparsity: ")
    assert err.endswith("\n")
    assert "Traceback" not in err
    assert len(err) < 300
    return err


def python(*arguments, program=(sys.executable,), **given):
    """A process of Python, which need not stand in the checkout; or of what starts Python."""
    how = {"text": True, "encoding": "utf-8", "timeout": 300, "env": ENVIRONMENT} | given
    return subprocess.run([*program, *arguments], capture_output=True, check=False, **how)
