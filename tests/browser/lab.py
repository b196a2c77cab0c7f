"""A JupyterLab of its own on loopback, and a notebook in it driven as a person would."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from browser.guard import HANG

REPOSITORY = Path(__file__).resolve().parents[2]


# No news, and nothing beside the notebook that is drawn anew with every message of its kernel.
_QUIET = {
    "jupyterlab_settings_dir/@jupyterlab/apputils-extension/notification.jupyterlab-settings": {
        "fetchNews": "false",
        "checkForUpdates": False,
    },
    "jupyterlab_settings_dir/@jupyterlab/notebook-extension/panel.jupyterlab-settings": {
        "toolbar": [
            {"name": name, "disabled": True} for name in ("executionProgress", "kernelName")
        ]
    },
    "jupyterlab_settings_dir/@jupyterlab/statusbar-extension/plugin.jupyterlab-settings": {
        "visible": False
    },
}


@dataclass(frozen=True)
class Lab:
    port: int
    token: str
    root: Path
    log: Path


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


@contextmanager
def jupyterlab(home: Path, notebooks: Path) -> Iterator[Lab]:
    """Start a server with nothing of the user's own; it is killed at the end of the block."""
    port, token, log = _free_port(), secrets.token_hex(16), home / "jupyter.log"
    places = {
        name: str(home / name.lower())
        for name in (
            *(f"JUPYTER_{what}_DIR" for what in ("CONFIG", "DATA", "RUNTIME")),
            *(f"JUPYTERLAB_{what}_DIR" for what in ("SETTINGS", "WORKSPACES")),
            *("IPYTHONDIR", "MPLCONFIGDIR"),
        )
    }
    for name, content in _QUIET.items():
        (home / name).parent.mkdir(parents=True, exist_ok=True)
        (home / name).write_text(json.dumps(content))
    path = os.pathsep.join(filter(None, (str(REPOSITORY), os.environ.get("PYTHONPATH"))))
    environment = os.environ | places | {"PYTHONPATH": path, "PYTHONWARNINGS": "default"}
    options = {
        "ServerApp.ip": "127.0.0.1",
        "ServerApp.port": port,
        "ServerApp.port_retries": 0,
        "IdentityProvider.token": token,
        "ServerApp.root_dir": notebooks,
        "ServerApp.open_browser": False,
        "LabApp.expose_app_in_browser": True,
        "LabApp.check_for_updates_class": "jupyterlab.NeverCheckForUpdate",
        "LabApp.news_url": "",
        "LabApp.extension_manager": "readonly",
    }
    command = [sys.executable, "-m", "jupyterlab", "--allow-root"]
    command += [f"--{name}={value}" for name, value in options.items()]
    with log.open("wb") as out:
        process = subprocess.Popen(
            command, cwd=home, env=environment, stdout=out, stderr=subprocess.STDOUT
        )
    try:
        address, deadline = f"http://127.0.0.1:{port}/api?token={token}", time.monotonic() + 600
        while True:
            try:
                with urllib.request.urlopen(address, timeout=5):
                    break
            except OSError:
                if process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError(f"JupyterLab did not start:\n{log.read_text()}") from None
                time.sleep(0.2)
        yield Lab(port, token, notebooks, log)
    finally:
        process.kill()  # asked to end, it goes on for ever after an error in its own cleanup
        process.wait()  # a kernel sees within a second that it is gone, and ends


def chromium_path(*names: str) -> str:
    """CHROMIUM, or else the first of these browsers that is there.

    Raises:
        RuntimeError: none is.
    """
    path = os.environ.get("CHROMIUM") or next(filter(None, map(shutil.which, names)), None)
    if not path:
        fix = "apt-get install chromium-headless-shell, or set CHROMIUM to its path"
        raise RuntimeError(f"no Chromium: {fix}")
    return path


_POLL = 50  # milliseconds; else every frame is asked, and drawn to be asked

_READY = """async () => {
  const app = window.jupyterapp;
  await app.restored;
  const panel = app.shell.currentWidget;
  await panel?.context?.ready;
  const session = panel?.sessionContext;
  const kernel = session?.isReady && session.session?.kernel;
  return Boolean(kernel && session.kernelDisplayStatus === 'idle');
}"""

_RUN = """() => {
  window.ran = 'running';
  window.jupyterapp.commands.execute('notebook:run-all-cells').then(
    () => { window.ran = 'done'; }, (error) => { window.ran = String(error); });
}"""

_CELLS = """() => [...window.jupyterapp.shell.currentWidget.content.model.cells]
  .filter((cell) => cell.type === 'code')
  .map((cell) => ({
    count: cell.executionCount,
    outputs: cell.outputs.toJSON().map((output) => ({
      type: output.output_type, name: output.name ?? output.ename ?? '',
      text: [output.text ?? output.evalue ?? ''].flat().join(''),
      kinds: Object.keys(output.data ?? {}),
    })),
  }))"""


_PICTURES = """async () => {
  const panel = window.jupyterapp.shell.currentWidget;
  const content = panel.content;
  const found = [];
  for (const [index, cell] of content.widgets.entries()) {
    if (cell.model.type !== 'code') continue;
    const saved = cell.model.outputs.toJSON().filter((o) => o.data && o.data['image/png']).length;
    if (!saved) continue;
    await content.scrollToItem(index, 'start');
    let shown = [];
    for (let wait = 0; wait < 100 && shown.length < saved; wait += 1) {
      await new Promise((resolve) => setTimeout(resolve, 50));
      shown = [...cell.node.querySelectorAll('img')].filter((image) =>
        image.complete && image.naturalWidth > 300 && image.getBoundingClientRect().width > 300);
    }
    found.push({ id: cell.model.id, trusted: cell.model.trusted, saved, shown: shown.length });
  }
  return found;
}"""


_OPEN = """async ([path, shared]) => {
  const app = window.jupyterapp;
  await app.restored;
  const kernel = shared && app.shell.currentWidget?.sessionContext?.session?.kernel?.model;
  const notebook = await app.commands.execute('docmanager:open',
    { path, factory: 'Notebook', ...(kernel ? { kernel } : {}) });
  await notebook.context.ready;
  await notebook.sessionContext.ready;
  app.shell.activateById(notebook.id);
}"""

# The server answers 500 to a page that is left before the connection to its kernel stands.
_CLOSE = """async () => {
  const app = window.jupyterapp;
  const open = [...app.shell.widgets('main')].filter((each) => each.sessionContext);
  const kernels = new Set(open.map((each) => each.sessionContext.session?.kernel?.id));
  for (const each of open) each.dispose(); // a view would outlive its model
  for (const id of kernels) if (id) await app.serviceManager.kernels.shutdown(id);
}"""


def open_lab(page: Any, lab: Lab) -> None:
    """Open JupyterLab with no notebook, to show one at a time."""
    page.goto(f"http://127.0.0.1:{lab.port}/doc?token={lab.token}")
    page.wait_for_function("() => window.jupyterapp?.shell", timeout=HANG, polling=_POLL)


def _open(page: Any, notebook: str, shared: bool) -> None:
    page.evaluate(_OPEN, [notebook, shared])
    page.wait_for_function(
        "(path) => window.jupyterapp.shell.currentWidget?.context?.path === path",
        arg=notebook,
        timeout=HANG,
        polling=_POLL,
    )


def open_unrun(page: Any, notebook: str) -> None:
    """Open one more notebook, as it is saved, on the kernel of the one before."""
    _open(page, notebook, True)


def pictures(page: Any) -> list[dict[str, Any]]:
    """Of each cell with saved pictures: whether it is trusted, how many it has, how many show."""
    return page.evaluate(_PICTURES)


def open_notebook(page: Any, notebook: str) -> None:
    """Open a notebook and wait for its own kernel."""
    _open(page, notebook, False)
    page.wait_for_function(_READY, timeout=HANG, polling=_POLL)
    page.wait_for_timeout(1000)  # a notebook run any sooner asks which kernel to start


def run_all(page: Any) -> list[dict[str, Any]]:
    """Run every cell; each code cell's execution count and outputs."""
    for _ in range(2):  # on a busy machine the kernel may not have been there yet
        page.evaluate(_RUN)
        page.wait_for_function("() => window.ran !== 'running'", timeout=HANG, polling=_POLL)
        assert page.evaluate("() => window.ran") == "done"
        page.wait_for_timeout(1000)  # counts come a moment after the last reply
        cells = page.evaluate(_CELLS)
        if all(cell["count"] for cell in cells):
            break
    return cells


def shut_down(page: Any) -> None:
    """Close every notebook and end their kernels."""
    page.evaluate(_CLOSE)
