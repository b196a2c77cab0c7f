"""SmolLM2 end to end, on real text.

Needs the folder that `python -m benchmarks.model_files DIR` fills, named by SPARSITY_MODEL.
"""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import xarray

from sparsity import describe
from sparsity.attention.job import run
from sparsity.attention.library import library
from sparsity.attention.measurement import sinks, tables
from sparsity.attention.torch.models import load

pytestmark = pytest.mark.model  # run with `pytest -m model`

TOKENS = 512


@pytest.fixture(scope="module")
def files():
    assert "SPARSITY_MODEL" in os.environ, "set SPARSITY_MODEL: see benchmarks/model_files.py"
    folder = Path(os.environ["SPARSITY_MODEL"])
    (model,) = folder.glob("*.gguf")
    return model, [folder / f"{name}.txt" for name in ("formatstrings", "types")]


@pytest.fixture(scope="module")
def opened(files):
    return load(files[0])


@pytest.fixture(scope="module")
def folder(opened, tmp_path_factory):
    """The model as `save_pretrained` writes it: GGUF takes twenty seconds to read, each time."""
    model, tokenizer = opened
    folder = tmp_path_factory.mktemp("model")
    model.hf_quantizer = None  # its weights are whole already; with it they are not written
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return folder


def measured(model, texts, folder, **how):
    out = str(folder / "out.nc")
    return run(str(model), [str(x) for x in texts], out=out, tokens=TOKENS, **how).data


@pytest.fixture(scope="module")
def data(folder, files, tmp_path_factory):
    return measured(folder, files[1], tmp_path_factory.mktemp("plain"))


def test_rows_are_those_of_the_weights_that_the_model_returns(opened, files, data):
    torch, (model, tokenizer) = library("torch"), opened
    ids = tokenizer.encode(files[1][0].read_text("utf-8"))[:TOKENS]
    model.set_attn_implementation("eager")
    with torch.no_grad():
        p = model(torch.as_tensor(ids)[None], output_attentions=True).attentions
    model.set_attn_implementation("sdpa")
    own = data.sel(text=files[1][0].stem)
    n_eff = 1 / np.stack([(x[0].double() ** 2).sum(-1).numpy() for x in p])
    np.testing.assert_allclose(own.n_eff, n_eff, rtol=1e-4)


def test_numbers_are_split_into_digits(opened):
    tokenizer = opened[1]
    assert len(tokenizer.encode("2001-2023")) == 9
    chat = tokenizer.encode("<|im_start|>user\nhi<|im_end|>")
    assert (len(chat), chat[0], chat[-1]) == (5, 1, 2)


def test_a_sink_need_not_be_the_first_token(data):
    """In one text the first two tokens share it; all sinks together are as common in every text."""
    rows = {row["text"]: row for row in tables.by_text(data)}
    first = {name: row["sink_rate_0.3"] for name, row in rows.items()}
    joint = {name: row["all_sinks_rate_0.3"] for name, row in rows.items()}
    print(first, joint, {name: row["ratio_exact_without_sinks"] for name, row in rows.items()})
    assert first["formatstrings"] < 0.25
    assert all(rate > 0.45 for name, rate in first.items() if name != "formatstrings")
    assert max(joint.values()) - min(joint.values()) < 0.15
    own = data.sel(text="formatstrings")
    words = own.token.values.tolist()
    found = sinks.list_sinks(own.key_importance.values, words)
    most = sorted(found, key=lambda sink: -sink["heads"])
    assert {sink["position"] for sink in most[:2]} == {1, 2}


def test_the_command_from_file_to_page(folder, files, tmp_path, command):
    path, texts = files
    out = tmp_path / "out.nc"
    code, shown, err = command(
        "measure", folder, *texts, "--tokens", TOKENS // 4, "--out", out,
        "--report", tmp_path / "page", "--json",
    )  # fmt: skip
    assert code == 0, err
    answer = json.loads(shown)
    assert [row["T"] for row in answer["table"][:2]] == [64, 128]
    assert "Four of five heads" in (tmp_path / "page" / "index.html").read_text("utf-8")
    with xarray.open_dataset(out) as saved:
        assert saved.sizes["layer"] == 30
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[:1_000_000])
    code, _, err = command("measure", cut, *texts, "--out", out)
    assert (code, len(err.splitlines())) == (2, 1)


def test_its_header_describes_its_layers(files):
    found = describe(files[0], gamma=2.9, lengths=(2048,))
    (kind,) = found.kinds
    assert (found.family, len(kind.layers), kind.head_dim, kind.steps) == ("llama", 30, 64, ())
    assert kind.rotation is not None
    assert kind.rotation.base == 1e5
    assert found.n_eff[0, 0] == pytest.approx(21.55, abs=0.01)
