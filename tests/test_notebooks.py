"""Notebooks as they are saved: small, visible to a reader who trusts nothing, and current."""

import base64
import functools
import importlib.util
import io
import re
from pathlib import Path

import numpy as np
import pytest

FOLDER = Path(__file__).resolve().parents[1] / "notebooks"
NOTEBOOKS = sorted(FOLDER.glob("*.ipynb"))
MOST = 400_000  # bytes of a notebook
NUMBER = re.compile(r"(?<![\w.])[+-]?\d+(?:\.\d+)?(?:e[+-]?\d+)?")
EQUAL = 1e-5  # relative difference of two numbers that are the same on other machines
# In a cell of trained models, where rounding that differs grows over hundreds of steps: by how much
TRAINED = (0.05, 0.1)  # two numbers may differ, and by which part; pictures are not compared
ROUNDING = 1e-9  # below which a number is an error bound that rounding makes
PIXELS = 1e-3  # share of a picture's pixels that may differ, by more than so many levels of 255:
LEVELS = 24


def load(path):
    import nbformat

    return nbformat.read(path, as_version=4)


@pytest.fixture(scope="module")
def script():
    """notebooks/execute.py, as a module."""
    spec = importlib.util.spec_from_file_location("execute", FOLDER / "execute.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def code(notebook):
    return [cell for cell in notebook["cells"] if cell["cell_type"] == "code"]


def complaints(notebook):
    """What a run must not leave: errors, warnings, anything else on stderr, empty figures."""
    found = []
    for cell in code(notebook):
        for output in cell["outputs"]:
            if output["output_type"] == "error":
                found.append(f"error: {output['ename']}: {output['evalue']}")
            if output.get("name") == "stderr" or "Warning:" in str(output.get("text", "")):
                found.append(f"stderr: {output['text']}")
            if (png := output.get("data", {}).get("image/png")) and empty(png):
                found.append(f"empty figure in {cell['source'][:60]}")
    return found


def pixels(png):
    from PIL import Image

    return np.asarray(Image.open(io.BytesIO(base64.b64decode(png))).convert("RGB"), int)


def empty(png):
    """Whether nothing is drawn inside the axes of a figure."""
    shown = pixels(png)
    inner = shown[shown.shape[0] // 6 : -shown.shape[0] // 6, shown.shape[1] // 6 : -20]
    spread = inner.max(axis=2) - inner.min(axis=2)
    return (spread > 60).mean() < 1e-3  # colour is what curves are drawn in


def parts(output):
    """What an output shows: kind -> text or PNG."""
    if output["output_type"] == "stream":
        return {output["name"]: output["text"]}
    return dict(output["data"])


def private(kind, part):
    """Whether an output tells of the machine that it was made on."""
    found = re.search(r"/home/|/root/|/tmp/|/work/|0x[0-9a-f]{6}|it/s\]", part)
    return kind != "image/png" and found is not None


def same_text(old, new, apart=(0.0, EQUAL)):
    """Equal words, and equal numbers but for the last bits, which machines compute differently.

    `apart` is by how much two numbers may differ, and by which part of them.
    """
    if NUMBER.split(old) != NUMBER.split(new):
        return False
    for a, b in zip(NUMBER.findall(old), NUMBER.findall(new), strict=True):
        if a == b:
            continue
        whole = not any(sign in a + b for sign in ".e")  # a count is the same count
        x, y = float(a), float(b)
        bounds = max(abs(x), abs(y)) < ROUNDING and "e" in a and "e" in b
        if whole or not (bounds or abs(x - y) <= max(apart[0], apart[1] * abs(x))):
            return False
    return True


def same_picture(old, new, trained=False):
    """Equal pixels, but for a few on an edge; of trained models a picture of the same size."""
    a, b = pixels(old), pixels(new)
    if trained:
        return a.shape == b.shape
    return a.shape == b.shape and (np.abs(a - b).max(axis=2) > LEVELS).mean() <= PIXELS


def differences(saved, fresh):
    """What a run shows otherwise than the saved notebook does."""
    found = []
    for old, new in zip(code(saved), code(fresh), strict=True):
        before, now = [[parts(o) for o in cell["outputs"]] for cell in (old, new)]
        trained = "trained" in old["metadata"].get("tags", ())
        if [sorted(p) for p in before] != [sorted(p) for p in now]:
            found.append(f"{old['id']}: {before} became {now}"[:300])
            continue
        for a, b in zip(before, now, strict=True):
            for kind in a:
                if kind == "image/png":
                    same = same_picture(a[kind], b[kind], trained)
                else:
                    same = same_text(a[kind], b[kind], TRAINED if trained else (0.0, EQUAL))
                if not same:
                    found.append(f"{old['id']}, {kind}: {a[kind]} became {b[kind]}"[:600])
    return found


def marked(path):
    """That of a real model needs the extra [transformers], and two minutes; 08 trains one."""
    marks = {
        "07_a_real_model": [pytest.mark.model, pytest.mark.slow],
        "08_does_focus_matter": [pytest.mark.slow],
    }
    return pytest.param(path, marks=marks.get(path.stem, []), id=path.stem)


@pytest.fixture(params=map(marked, NOTEBOOKS))
def path(request):
    return request.param


@pytest.mark.notebook
def test_it_is_saved_as_it_was_run(path, script):
    notebook = load(path)
    assert path.stat().st_size < MOST
    assert notebook["metadata"]["language_info"] == {"name": "python"}
    asked = sum(c["source"].count("sparsity.plot(") for c in code(notebook))
    drawn = sum("image/png" in parts(o) for c in code(notebook) for o in c["outputs"])
    assert drawn >= asked  # each shows what it drew
    counts = [cell["execution_count"] for cell in code(notebook)]
    assert counts == list(range(1, len(counts) + 1))
    assert complaints(notebook) == []
    for cell in code(notebook):
        own = script.OWN in cell["metadata"].get("tags", ())
        assert not (own and cell["outputs"])
        for output in cell["outputs"]:
            assert [kind for kind, part in parts(output).items() if private(kind, part)] == []


@pytest.mark.notebook
def test_a_run_shows_what_is_saved(path, script, tmp_path):
    saved = load(path)
    fresh = script.kept(script.run(load(path), tmp_path))
    assert complaints(fresh) == []
    assert differences(saved, fresh) == []


FAULTS = {  # what is in the complaint -> the cell
    "look out": "import warnings\nwarnings.warn('look out')",
    "empty figure": "import matplotlib.pyplot as plt\nplt.plot([])\nNone",
    "stderr: x": "import sys\nprint('x', file=sys.stderr)",
}


@pytest.mark.notebook
def test_planted_faults_are_seen(script, tmp_path):
    cells = [
        {"cell_type": "code", "id": id_, "metadata": {}, "outputs": [], "source": source}
        for id_, source in zip("abc", FAULTS.values(), strict=True)
    ]
    notebook = {"cells": [cell | {"execution_count": None} for cell in cells], "metadata": {}}
    done = script.run(notebook | {"nbformat": 4, "nbformat_minor": 5}, tmp_path)
    said = complaints(done)
    assert len(said) == 3
    assert all(fault in line for fault, line in zip(FAULTS, said, strict=True))


@pytest.mark.notebook
@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("S = 0.13533528", "S = 0.13533529", True),  # the last bits
        ("S = 0.13534", "S = 0.13544", False),
        ("z = +0.53", "z = -0.53", False),
        ("7 of 1024 tokens", "7 of 1025 tokens", False),
        (
            "relative error ≤ 3.1e-13",
            "relative error ≤ 2.4e-13",
            True,
        ),  # rounding of other machines
        ("relative error ≤ 3.1e-13", "relative error ≤ 3.1e-08", False),
        ("confirmed", "refined", False),
    ],
)
def test_what_is_the_same_text(old, new, same):
    assert same_text(old, new) is same


@pytest.mark.notebook
@pytest.mark.parametrize(
    ("old", "new", "same"),
    [
        ("recall 0.29 ± 0.03", "recall 0.33 ± 0.02", True),  # another processor
        ("recall 0.29 ± 0.03", "recall 0.36 ± 0.03", False),
        ("n_eff 160.5", "n_eff 130.2", False),
        ("P = 64", "P = 65", False),
    ],
)
def test_what_is_the_same_text_of_trained_models(old, new, same):
    assert same_text(old, new, TRAINED) is same


@functools.cache
def drawn(gamma, script):
    """A chart at one spread, as a saved output has it."""
    from matplotlib import pyplot

    import sparsity

    out = io.BytesIO()
    axes = sparsity.plot("exp", gamma=gamma, length="1:1000:21:log")
    axes.figure.savefig(out, format="png")
    pyplot.close(axes.figure)
    output = {"data": {"image/png": base64.b64encode(out.getvalue()).decode()}}
    script.shrink(output)
    return output["data"]["image/png"]


@pytest.mark.notebook
def test_what_is_the_same_picture(script):
    chart = drawn(2.0, script)
    assert same_picture(chart, drawn.__wrapped__(2.0, script))
    assert not same_picture(chart, drawn(2.1, script))
    assert not empty(chart)


@pytest.mark.notebook
def test_a_planted_change_is_seen(script):
    saved = load(FOLDER / "02_explore.ipynb")
    assert differences(saved, saved) == []
    for index, cell in enumerate(code(saved)):
        for place, output in enumerate(cell["outputs"]):
            changed = load(FOLDER / "02_explore.ipynb")
            del code(changed)[index]["outputs"][place]
            assert differences(saved, changed)
            for kind, shown in parts(output).items():
                changed = load(FOLDER / "02_explore.ipynb")
                there = code(changed)[index]["outputs"][place]
                inside = there.get("data", there)
                name = kind if "data" in there else "text"
                inside[name] = drawn(1.0, script) if kind == "image/png" else f"{shown} 1"
                assert len(differences(saved, changed)) == 1
