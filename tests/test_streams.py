"""Streams that are closed, full or left, and little memory: no traceback, and never exit code 1."""

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ENVIRONMENT = os.environ | {"PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}

ASKED = ("completion", "bash")  # which is answered, and loads nothing heavy
WRONG = ("completion", "csh")  # which is bad input

# (redirections of a shell, exit code of ASKED, of WRONG, lines of WRONG on stderr)
WAYS = [
    ("", 0, 2, 1),
    ("<&-", 0, 2, 1),
    (">&-", 0, 2, 1),
    ("2>&-", 0, 2, 0),
    (">&- 2>&-", 0, 2, 0),
    ("<&- >&- 2>&-", 0, 2, 0),
    (">/dev/full", 2, 2, 1),
    ("2>/dev/full", 0, 2, 0),
    (">/dev/full 2>/dev/full", 2, 2, 0),
    (">/dev/full 2>&-", 2, 2, 0),
    ("1</dev/null", 2, 2, 1),  # open, not for writing
]


def shell(line, *words):
    return subprocess.run(
        ["sh", "-c", line, "sh", sys.executable, "-m", "sparsity", *words],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=ENVIRONMENT,
    )


@pytest.mark.parametrize(("way", "code", "refused", "lines"), WAYS)
def test_closed_and_full_streams(way, code, refused, lines):
    found = shell(f'"$@" {way}', *ASKED)
    assert found.returncode == code, found.stderr
    assert len(found.stderr.splitlines()) == (code == 2 and "2>" not in way)
    assert (len(found.stdout.splitlines()) > 5) == (code == 0 and "1<" not in way and ">&-" != way
        and way not in (">&- 2>&-", "<&- >&- 2>&-"))  # fmt: skip
    found = shell(f'"$@" {way}', *WRONG)
    assert (found.returncode, len(found.stderr.splitlines())) == (refused, lines), found.stderr
    assert found.stdout == ""


def test_a_reader_that_leaves_changes_no_exit_code():
    """Of stdout, and of both; the second line of the shell is what the first part exits with."""
    for words, code in ((ASKED, "0"), (WRONG, "2"), (("--help",), "0")):
        for to in ("", "2>&1"):
            found = shell(f'{{ "$@" {to}; echo $? >&3; }} 3>&2 | true', *words)
            assert found.stderr.splitlines()[-1] == code
            assert "Traceback" not in found.stderr


def test_a_file_does_not_take_the_number_of_a_closed_stream(tmp_path):
    """What is told on stderr would be written into it."""
    code = (
        "import os, sys\n"
        "from sparsity import cli\n"
        "cli.open_closed_streams()\n"
        "file = open(sys.argv[1], 'w')\n"
        "os.write(2, b'of a library')\n"
        "print(file.fileno(), file=file, flush=True)"
    )
    line = ["sh", "-c", '"$@" <&- >&- 2>&-', "sh", sys.executable, "-c", code, tmp_path / "x"]
    assert subprocess.run(line, env=ENVIRONMENT, timeout=120, check=False).returncode == 0
    assert int((tmp_path / "x").read_text()) > 2


LITTLE = """
import resource, sys
from sparsity.cli import main
resource.setrlimit(resource.RLIMIT_AS, (600 << 20, 600 << 20))
main()
"""


@pytest.mark.parametrize(
    "line",
    ["estimate exp --gamma 1", "verify exp", "claims", "reproduce --out r",
     "measure m.gguf t.txt --out m.nc", "sweep exp --gamma 1 --montecarlo --out s.nc",
     "plot exp --gamma 2 --montecarlo --out p.png", "sweep exp --gamma 1 --out s.zarr",
     "list", "derive exp"],
)  # fmt: skip
def test_little_memory_is_one_line(line, tmp_path):
    found = subprocess.run(
        [sys.executable, "-c", LITTLE, *line.split()],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=ENVIRONMENT,
        cwd=tmp_path,
    )
    if found.returncode == 0:  # it was enough
        assert found.stderr == ""
        assert line.split()[0] in ("list", "derive", "sweep")
        return
    assert found.returncode == 2, found.stderr
    assert found.stderr.startswith("sparsity: memory ")
    assert found.stderr.count("\n") == 1
    assert "MiB" in found.stderr
    assert "s.nc" not in os.listdir(tmp_path)


def test_an_error_that_nobody_foresaw_does_not_say_that_a_check_disagreed(command, monkeypatch):
    import sparsity

    def broken(*arguments, **options):
        raise ZeroDivisionError("of the program")

    monkeypatch.setattr(sparsity, "evaluate", broken, raising=False)
    code, out, err = command("eval", "exp", "--gamma", "1")
    assert (code, out) == (70, "")
    assert "ZeroDivisionError: of the program" in err


@pytest.mark.parametrize(
    ("number", "limit", "says"),
    [(errno.ENOMEM, 600 << 20, "sparsity: memory is limited to 600 MiB and ran out (OSError)"),
     (errno.ENOMEM, 2**60, "sparsity: cannot write the answer: "),
     (errno.EIO, 600 << 20, "sparsity: cannot write the answer: ")],
)  # fmt: skip
def test_a_folder_that_cannot_be_listed_for_want_of_memory(
    command, monkeypatch, number, limit, says
):
    """What an import reads needs memory too: an OSError, which is not of the answer."""
    import sparsity
    from sparsity.cli import common

    def broken(*arguments, **options):
        raise OSError(number, os.strerror(number), "a/folder")

    monkeypatch.setattr(sparsity, "evaluate", broken, raising=False)
    monkeypatch.setattr(common, "memory_limit", lambda: limit)
    code, out, err = command("eval", "exp", "--gamma", "1")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert err.startswith(says)


@pytest.mark.parametrize("name", ["verify", "claims", "reproduce"])
def test_long_work_is_set_up_before_the_libraries_that_read_its_settings(name):
    """NumPy reads how many threads it may start, and SymPy the size of its cache, on import."""
    code = (
        "import sys; from sparsity.cli import common, main\n"
        "common.prepare_long_work = lambda: sys.exit(\n"
        "    ','.join({'numpy', 'sympy', 'jax'} & sys.modules.keys()) or 0)\n"
        "main()"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, name],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
        env=ENVIRONMENT,
    )
    assert (found.returncode, found.stderr) == (0, "")
