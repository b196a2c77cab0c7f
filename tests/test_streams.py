"""Streams that are closed, full or left: no traceback, and never exit code 1."""

import sys

import pytest
from command_line import python

ASKED = ("derive", "--help")  # which is answered, and loads nothing heavy
WRONG = ("derive", "--zzz")  # which is bad input

# (redirections of a shell, exit code of ASKED, of WRONG, lines of WRONG on stderr)
WAYS = [("", 0, 2, 1), (">&- 2>&-", 0, 2, 0), (">/dev/full", 2, 2, 1)]


def shell(line, *words):
    return python("-m", "sparsity", *words, program=("sh", "-c", line, "sh", sys.executable))


@pytest.mark.parametrize(("way", "code", "refused", "lines"), WAYS)
def test_closed_and_full_streams(way, code, refused, lines):
    found = shell(f'"$@" {way}', *ASKED)
    assert found.returncode == code, found.stderr
    assert len(found.stderr.splitlines()) == (code == 2 and "2>" not in way)
    assert (len(found.stdout.splitlines()) > 5) == (way == "")
    found = shell(f'"$@" {way}', *WRONG)
    assert (found.returncode, len(found.stderr.splitlines())) == (refused, lines), found.stderr
    assert found.stdout == ""


def test_a_reader_that_leaves_changes_no_exit_code():
    """Of stdout, and of both; the second line of the shell is what the first part exits with."""
    for words, code in ((ASKED, "0"), (WRONG, "2")):
        for to in ("", "2>&1"):
            found = shell(f'{{ "$@" {to}; echo $? >&3; }} 3>&2 | true', *words)
            assert found.stderr.splitlines()[-1] == code
            assert "Traceback" not in found.stderr


def test_an_error_that_nobody_foresaw_does_not_say_that_a_check_disagreed(command, monkeypatch):
    import sparsity

    def broken(*arguments, **options):
        raise ZeroDivisionError("of the program")

    monkeypatch.setattr(sparsity, "evaluate", broken, raising=False)
    code, out, err = command("eval", "exp", "--gamma", "1")
    assert (code, out) == (70, "")
    assert "ZeroDivisionError: of the program" in err


def test_long_work_is_set_up_before_the_libraries_that_read_its_settings():
    """NumPy reads how many threads it may start, and SymPy the size of its cache, on import."""
    code = (
        "import sys; from sparsity.cli import common, main\n"
        "common.prepare_long_work = lambda: sys.exit(\n"
        "    ','.join({'numpy', 'sympy', 'jax'} & sys.modules.keys()) or 0)\n"
        "main()"
    )
    found = python("-c", code, "reproduce")
    assert (found.returncode, found.stderr) == (0, "")
