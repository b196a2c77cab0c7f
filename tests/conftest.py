"""Settings of the whole suite: 64-bit JAX, no display, the same Hypothesis examples every time."""

import os
import signal
import tempfile

os.environ.setdefault("MPLBACKEND", "Agg")  # before anything imports Matplotlib
# A test compiles much and draws little: a quarter less to compile, and as fast to draw.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=1")

import hypothesis
import jax
import matplotlib
import pytest
from hypothesis import configuration

if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    # The suite runs in the background: commands that tests interrupt would inherit the deafness.
    signal.signal(signal.SIGINT, signal.default_int_handler)

jax.config.update("jax_enable_x64", True)
matplotlib.use("Agg")

configuration.set_hypothesis_home_dir(tempfile.gettempdir())  # nothing is left in the checkout
hypothesis.settings.register_profile(
    "suite",
    derandomize=True,
    deadline=None,
    max_examples=100,
    report_multiple_bugs=False,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("suite")


@pytest.fixture
def command(monkeypatch, capsys):
    """The command line in this process: arguments -> (exit code, stdout, stderr)."""
    from sparsity import cli

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
