"""MathJax 3.2.2 from a wheel: one file, `tex-svg.js`, that loads no other and no font."""

import atexit
import hashlib
import shutil
import tempfile
from importlib.metadata import distribution
from pathlib import Path

# Of es5/tex-svg.js in the package `mathjax` 3.2.2 as its makers publish it on npm.
SHA256 = "d4295dc33744836935c1399feece5159577b34c5c8ffb9f1c6324cd82e03a882"


def folder() -> Path:
    """A folder that holds that file and nothing else, until this process ends.

    Raises:
        ValueError: the wheel holds another file.
    """
    wheel = distribution("sphinx-mathjax-offline")
    (name,) = [each for each in wheel.files or () if each.name == "tex-svg.js"]
    script = Path(str(wheel.locate_file(name))).read_bytes()
    found = hashlib.sha256(script).hexdigest()
    if found != SHA256:
        raise ValueError(
            f"tex-svg.js of {wheel.name} {wheel.version} is not MathJax 3.2.2: {found}"
        )
    home = Path(tempfile.mkdtemp(prefix="mathjax-"))
    atexit.register(shutil.rmtree, home, ignore_errors=True)
    (home / "tex-svg.js").write_bytes(script)
    return home
