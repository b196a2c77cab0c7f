"""The command as a process: Ctrl-C, pipes, terminals, completion, and what is imported when."""

import io
import os
import subprocess
import sys

import pytest
from command_line import ENVIRONMENT, ROOT, one_line, python, value_of

import sparsity
from sparsity import cli

pytestmark = pytest.mark.usefixtures("place")


def test_python_still_shows_warnings_when_asked():
    code = (
        "import sys, warnings; sys.argv = ['sparsity', 'list']\n"
        "from sparsity import cli\n"
        "cli.list_.callback = lambda as_json: warnings.warn('overflow', RuntimeWarning)\n"
        "cli.main()\n"
    )
    for flags, seen in (([], False), (["-W", "always"], True)):
        found = python(*flags, "-c", code)
        assert (found.returncode, "overflow" in found.stderr) == (0, seen)


def test_interruption_exits_130(command, monkeypatch):
    def stop(*arguments, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(sparsity, "evaluate", stop, raising=False)
    code, out, err = command("eval", "exp", "--gamma", "1")
    assert (code, out) == (130, "")
    assert err.strip().startswith("sparsity: interrupted")
    assert "Traceback" not in err


WHERE = {
    "in an import": "import pressing",
    "in the import of a compiled module": "import compiled",
    "in plain code": "press()",
}
PRESS = """
import signal, sys, time
from sparsity import cli
pressed = []
def press():
    if not pressed:
        pressed.append(1)
        signal.raise_signal(signal.SIGINT)
def command(as_json):
    {where}
    time.sleep(30)
cli.list_.callback = command
sys.argv = ["sparsity", "list"]
cli.main()
"""


@pytest.mark.parametrize("where", WHERE)
def test_ctrl_c_is_neither_lost_nor_misread(where, place):
    press = "import sys\nsys.modules['__main__'].press()\n"
    (place / "pressing.py").write_text(press)
    # As the initialisation of NumPy's does: what it meets in it is an ImportError.
    (place / "compiled.py").write_text(
        "try:\n    import pressing\nexcept BaseException:\n    raise ImportError from None\n"
    )
    (place / "here.py").write_text(PRESS.format(where=WHERE[where]))
    path = {"PYTHONPATH": f"{ROOT}{os.pathsep}{place}"}
    found = python("-m", "here", timeout=120, env=os.environ | path)
    assert found.returncode == 130
    assert one_line(found.stderr).startswith("sparsity: interrupted")
    assert found.stdout == ""


def test_version(command):
    assert command("--version")[1].strip().endswith(sparsity.__version__)


def test_the_module_runs_as_a_process_and_evaluation_does_not_wait_for_jax(place):
    """Python itself tells on stderr what is imported; the command has nothing to say there."""
    line = ["eval", "relu2", "--beta", "-1", "--gamma", "0.5", "--json"]
    found = python("-X", "importtime", "-m", "sparsity", *line)
    assert found.returncode == 0
    told = found.stderr.splitlines()
    assert [each for each in told if not each.startswith("import time:")] == []
    assert value_of(found.stdout)["S"] == pytest.approx(0.07200634266702317, rel=1e-13)
    loaded = {each.rpartition("|")[2].strip() for each in told}
    assert not loaded & {"jax", "matplotlib", "xarray"}
    assert {"numpy", "sympy"} <= loaded  # the same look does see what is loaded on use
    found = python("-m", "sparsity", *line[:4], "--temperature", "3", "--json")
    assert (found.returncode, found.stdout) == (2, "")
    assert "--temperature" in one_line(found.stderr)  # read before anything heavy is loaded
    assert list(place.iterdir()) == []


def test_a_closed_pipe_is_not_an_error():
    running = subprocess.Popen(
        [sys.executable, "-m", "sparsity", "--help"],  # which loads nothing heavy
        **{"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "env": ENVIRONMENT},
    )
    assert running.stdout is not None
    assert running.stderr is not None
    running.stdout.close()
    err = running.stderr.read().decode()
    running.stderr.close()
    assert running.wait(timeout=120) == 0
    assert err == ""


HEAVY = {"jax", "sympy", "numpy", "scipy", "matplotlib", "xarray", "click", "tqdm", "mpmath"}


def imported(code):
    """The heavy packages that a fresh interpreter has loaded after `code`."""
    found = python("-c", f"import sys\n{code}\nprint(*sys.modules)")
    assert found.returncode == 0, found.stderr
    assert "Traceback" not in found.stderr
    return HEAVY & set(found.stdout.split())


def test_import_loads_nothing_heavy():
    assert imported("import sparsity; dir(sparsity)") == set()
    assert imported("import sparsity.cli") == {"click"}


def test_a_theory_does_without_jax(tmp_path):
    config = tmp_path / "config.json"
    config.write_text('{"model_type": "llama", "num_hidden_layers": 2}')
    line = ["sparsity", "describe", str(config)]
    loaded = imported(f"from sparsity.cli import main\nsys.argv = {line}\nmain()")
    assert "numpy" in loaded
    assert "jax" not in loaded


@pytest.mark.thorough
def test_the_exact_law_of_softmax_loads_no_scipy():
    """Importing it takes a fifth of the command."""
    line = "sparsity exact exp --gamma 2 --length 64"
    found = imported(f"from sparsity.cli import main; sys.argv = {line!r}.split(); main()")
    assert found == {"click", "numpy", "sympy", "mpmath"}


def test_a_command_leaves_no_garbage_to_look_for():
    """What is frozen is not looked at: `exact` ends a quarter of a second sooner."""
    told = "import atexit, gc, sys; atexit.register(lambda: print('frozen', gc.get_freeze_count()))"
    for end, frozen in (("main()", True), ("print('no command')", False)):
        code = f"{told}; sys.argv = ['sparsity', 'list']; from sparsity.cli import main; {end}"
        count = int(python("-c", code).stdout.split()[-1])
        assert count > 10_000 if frozen else count == 0


def test_a_terminal_without_greek_is_served(monkeypatch):
    """Its stream is as Python makes it with PYTHONIOENCODING=ascii; nothing is lost on the way."""
    shown = io.TextIOWrapper(io.BytesIO(), "ascii")
    monkeypatch.setattr(sys, "stdout", shown)
    line = "sparsity eval exp --gamma 1 --length 9"
    monkeypatch.setattr(sys, "argv", line.split())
    cli.main()
    lines = shown.buffer.getvalue().decode().splitlines()
    assert any(line.startswith("S      = 0.606530659713") for line in lines), lines
    assert "√" in "".join(lines)
