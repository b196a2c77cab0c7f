"""Settings of the whole suite: 64-bit JAX, no display, the same Hypothesis examples every time."""

import atexit
import gc
import json
import math
import os
import shutil
import signal
import tempfile

os.environ.setdefault("MPLBACKEND", "Agg")  # before anything imports Matplotlib
# The workers fill the cores: threads of a product would wait for each other, and burn time so.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # before anything imports NumPy
os.environ.setdefault("NPROC", "1")  # of XLA's threads, before anything computes with JAX
os.environ.setdefault("SYMPY_CACHE_SIZE", "20000")  # and not 1000: a fifth less work to derive

from sparsity import xla  # which loads nothing

# A test compiles much and draws little: a third less to compile, though rows are drawn more slowly.
flags = f"--xla_backend_optimization_level=1 {xla.flags_of_long_work()}"
os.environ.setdefault("XLA_FLAGS", flags.rstrip())
# What one worker or command of this run has compiled, the others need not compile again.
if "JAX_COMPILATION_CACHE_DIR" not in os.environ:
    compiled = tempfile.mkdtemp(prefix="sparsity-compiled-")
    atexit.register(shutil.rmtree, compiled, ignore_errors=True)  # the workers are gone by then
    os.environ["JAX_COMPILATION_CACHE_DIR"] = compiled
    os.environ["JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"] = "0.05"
    os.environ["JAX_PERSISTENT_CACHE_MIN_ENTRY_SIZE_BYTES"] = "-1"

import hypothesis
import jax
import matplotlib
import pytest
from hypothesis import configuration

pytest.register_assert_rewrite("command_line")  # whose assertions are to say what they met

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # The suite runs in the background: commands that tests interrupt would inherit the deafness.
    signal.signal(signal.SIGINT, signal.default_int_handler)

jax.config.update("jax_enable_x64", True)
matplotlib.use("Agg")
# To look through a million objects takes half a second, and the default does so every few seconds.
gc.set_threshold(50_000, 20, 50)

configuration.set_hypothesis_home_dir(tempfile.gettempdir())  # nothing is left in the checkout
hypothesis.settings.register_profile(
    "suite",
    derandomize=True,
    deadline=None,
    max_examples=50,
    report_multiple_bugs=False,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")


_ENOUGH = 10**9  # bytes of a worker, above which compiled programs are let go between modules


@pytest.fixture(autouse=True, scope="module")
def programs_are_let_go():
    """Let a worker that has grown forget what it compiled: some would end at four gigabytes."""
    yield
    if os.path.exists("/proc/self/statm"):
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        if resident > _ENOUGH:
            jax.clear_caches()


@pytest.fixture(scope="session")
def committed_claims():
    """Key -> record, as `sparsity reproduce --check` holds them to be current."""
    with open(os.path.join(os.path.dirname(__file__), "..", "figures", "claims.json")) as file:
        return {record["key"]: record for record in json.load(file)}


@pytest.fixture
def command(monkeypatch, capsys):
    """The command line in this process: arguments -> (exit code, stdout, stderr)."""
    from sparsity import cli

    # On a busy machine any command takes the seconds after which a log gets a line of progress.
    monkeypatch.setattr("sparsity.cli.common.LOG_SECONDS", math.inf)

    def run(*arguments):
        monkeypatch.setattr("sys.argv", ["sparsity", *map(str, arguments)])
        code = 0
        try:
            cli.main()
        except SystemExit as stop:
            code = stop.code
        out, err = capsys.readouterr()
        return code, out, err

    return run


@pytest.fixture
def place(tmp_path, monkeypatch):
    """An empty folder of its own, in which a test runs."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def printed(command, monkeypatch):
    """A command's JSON value and its text: what the library says of one call is computed once."""
    from command_line import answer

    import sparsity

    def remembered(work):
        found = []

        def first(*arguments, **options):
            asked = arguments, {k: x for k, x in options.items() if k != "progress"}
            if asked not in [call for call, _ in found]:
                found.append((asked, work(*arguments, **options)))
            return next(value for call, value in found if call == asked)

        return first

    def run(*arguments):
        with monkeypatch.context() as patch:
            for name in ("estimate", "exact", "design", "verify"):
                patch.setattr(sparsity, name, remembered(getattr(sparsity, name)), raising=False)
            value = answer(command, *arguments)
            code, text, err = command(*arguments)
        assert (code, err) == (0, "")
        return value, text

    return run
