"""SmolLM2 end to end, on real text, and its forward pass against that of `transformers`.

Needs the folder that `python -m benchmarks.model_files DIR` fills, named by SPARSITY_MODEL.
"""

import functools
import json
import os
from pathlib import Path

import numpy as np
import pytest
import xarray

from experiments.head_claims import judge_heads
from experiments.head_constants import HeadRows, fit_kappa, log_law_held_back
from experiments.head_parts import measure_heads
from experiments.row_evidence import Law
from sparsity import describe, models
from sparsity.attention.checkpoints import tokens
from sparsity.attention.checkpoints.checkpoint import library
from sparsity.attention.checkpoints.llama import forward
from sparsity.attention.measurement import sinks, tables
from sparsity.attention.measurement.runs import measure_model

pytestmark = pytest.mark.model  # run with `pytest -m model`

TOKENS = 512


@pytest.fixture(scope="module")
def files():
    assert "SPARSITY_MODEL" in os.environ, "set SPARSITY_MODEL: see benchmarks/model_files.py"
    folder = Path(os.environ["SPARSITY_MODEL"])
    (model,) = folder.glob("*.gguf")
    return model, sorted(folder.glob("*.txt"))


@pytest.fixture(scope="module")
def named(files):
    return {text.stem: text.read_text("utf-8") for text in files[1]}


@pytest.fixture(scope="module")
def opened(files):
    return models.load(files[0])


@pytest.fixture(scope="module")
def data(opened, named):
    return measure_model(opened, named, tokens=TOKENS)


@pytest.fixture(scope="module")
def begun(opened, named):
    """Two of the texts after the token that begins a text."""
    texts = dict(list(named.items())[:2])
    return measure_model(opened, texts, tokens=TOKENS, bos=(True,))


@pytest.fixture(scope="module")
def theirs(files):
    """Model and tokenizer as `transformers` reads them from the file, which gguf parses once."""
    torch, hf, gguf = library("torch"), library("transformers"), library("gguf")
    path, reader = files[0], gguf.GGUFReader(files[0])
    given = {"gguf_file": path.name}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gguf, "GGUFReader", lambda path: reader)  # asked for three times
        names = functools.cache(gguf.get_tensor_name_map)  # 397 times
        patch.setattr(gguf, "get_tensor_name_map", names)
        model = hf.AutoModelForCausalLM.from_pretrained(
            path.parent, dtype=torch.float32, attn_implementation="eager", **given
        )
        return model.eval(), hf.AutoTokenizer.from_pretrained(path.parent, **given)


def test_the_forward_pass_is_that_of_transformers(opened, named, theirs):
    """It reads the same file by its own code: dequantisation, names, rotary planes."""
    torch, (other, _) = library("torch"), theirs
    ids = np.array(opened.encode(next(iter(named.values())))[:TOKENS])
    with torch.no_grad():
        expected = other(torch.as_tensor(ids)[None], output_attentions=True)
    off = {"attention": 0.0, "logits": 0.0}
    seen = np.tri(TOKENS, dtype=bool)

    def attention(layer, text, q, k):
        q, k = np.asarray(q), np.repeat(np.asarray(k), q.shape[0] // k.shape[0], 0)
        s = np.where(seen, q @ k.swapaxes(1, 2) / np.sqrt(q.shape[-1]), -np.inf)
        a = np.exp(s - s.max(-1, keepdims=True))
        a /= a.sum(-1, keepdims=True)
        gap = np.abs(a - expected.attentions[layer][0].numpy()).max()
        off["attention"] = max(off["attention"], gap)

    def logits(text, first, values):
        theirs = expected.logits[0, first : first + len(values)].numpy()
        off["logits"] = max(off["logits"], np.abs(np.asarray(values) - theirs).max())

    (loss,) = forward(opened, [ids], attention, logits)
    print(off, loss)
    assert off["attention"] < 1e-4
    assert off["logits"] < 1e-3
    log_p = torch.log_softmax(expected.logits[0].double(), -1)[:-1]
    theirs = -log_p.gather(1, torch.as_tensor(ids)[1:, None]).mean()
    assert loss == pytest.approx(float(theirs), abs=1e-4)


def test_text_goes_to_tokens_and_back(opened, named):
    text = next(iter(named.values()))
    whole = opened.encode(text)
    assert opened.config.bos not in whole
    years = opened.encode("2001-2023")
    assert len(years) == 9  # digits one by one
    assert len(whole) < len(text) / 2.5  # merged as trained


def test_a_chat_is_five_pieces_from_either_file(opened, theirs, tmp_path):
    chat = "<|im_start|>user\nhi<|im_end|>"
    ids = opened.encode(chat)
    assert len(ids) == 5
    assert (ids[0], ids[-1]) == (1, 2)
    # The same tokenizer as `transformers` reads it from the file, written as a tokenizer.json.
    theirs[1].save_pretrained(tmp_path)
    assert tokens.from_file(tmp_path / "tokenizer.json")(chat) == ids


def test_real_text_is_expected(data, begun):
    assert data.sizes["text"] >= 3
    assert data.sizes["row"] == TOKENS
    assert max(float(found.loss.max()) for found in (data, begun)) < 3.5


def test_real_rows_and_the_laws(data, begun):
    rates = []
    for found in (data, begun, data.sel(text=begun.text)):
        rows = found.sel(row=slice(TOKENS // 2 + 1, None))
        limit = float(np.exp(rows.residual_limit_without_sink_key.median()))
        exact = float(np.exp(rows.residual_exact_without_sink_key.median()))
        assert limit > 2
        assert 0.7 < exact < 1.2
        rates.append((found.importance > 0.3).mean(("text", "bos", "layer", "head")).values)
        assert len(rates[-1]) == 4
        assert np.all(np.diff(rates[-1]) < 0)
    assert np.all(rates[1] > rates[2])  # of the same texts, with the token that begins one


def test_the_law_given_the_largest_logit_on_texts_log_law_held_back(data):
    rows = data.isel(bos=0).sel(row=slice(TOKENS // 2 + 1, None, 8))
    S, axes = HeadRows.of(rows).S, ("text", "layer", "head", "row")
    plain = np.log(rows.S_exact_without_sinks.transpose(*axes).values)
    found, exact = Law.of(S, log_law_held_back(rows)), Law.of(S, plain)
    print(found, exact)
    assert 0.98 < found.ratio < 1.02
    assert found.rank > 0.95
    assert found.within > 0.85
    assert exact.rank < 0.8  # which tells them apart
    assert exact.within < 0.6
    kappa = fit_kappa(rows)
    assert kappa.kappa.shape == (30, 9)
    assert np.median(kappa.stderr) < 0.05
    assert 1 < np.median(kappa.kappa) < 1.2


def test_claims_on_heads(opened, named):
    records = judge_heads(measure_heads(opened, named, tokens=TOKENS, every=3))
    assert {record["key"]: record["verdict"] for record in records} == {
        "largest-logit": "refined",  # a constant is needed
        "upper-tail": "confirmed",
        "recency": "refined",  # by these layers and texts; one has a second sink
        "content": "confirmed",
        "dependence": "confirmed",
        "between-freezings": "confirmed",
    }


def test_a_sink_need_not_be_the_first_token(data):
    """In one text the first two tokens share it; all sinks together are as common in every text."""
    rows = {row["text"]: row for row in tables.by_text(data)}
    first = {name: row["sink_rate_0.3"] for name, row in rows.items()}
    joint = {name: row["sinks_rate_0.3"] for name, row in rows.items()}
    print(first, joint, {name: row["ratio_exact_without_sinks"] for name, row in rows.items()})
    assert first["formatstrings"] < 0.25
    assert all(rate > 0.45 for name, rate in first.items() if name != "formatstrings")
    assert max(joint.values()) - min(joint.values()) < 0.15
    own = data.sel(text="formatstrings", bos=0)
    words = own.token.values.tolist()
    found = sinks.list_sinks(own.key_importance.values, words)
    most = sorted(found, key=lambda sink: -sink["heads"])
    assert {sink["position"] for sink in most[:2]} == {1, 2}


def test_the_command_from_file_to_page(files, tmp_path, command):
    path, texts = files
    options = [x for text in texts[:2] for x in ("--text", text)]
    out = tmp_path / "out.nc"
    code, shown, err = command(
        "measure", "--model", path, *options, "--tokens", TOKENS // 4, "--out", out,
        "--report", tmp_path / "page", "--json",
    )  # fmt: skip
    assert code == 0, err
    answer = json.loads(shown)
    assert [row["T"] for row in answer["table"][:2]] == [64, 128]
    assert "Four of five heads" in (tmp_path / "page" / "index.html").read_text("utf-8")
    with xarray.open_dataset(out) as saved:
        assert saved.sizes["layer"] == 30
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[:50_000_000])
    code, _, err = command("measure", "--model", cut, *options, "--out", out)
    assert code == 2
    assert "incomplete" in err


def test_its_header_describes_its_layers(files):
    found = describe(files[0], gamma=2.9, lengths=(2048,))
    (kind,) = found.kinds
    assert (found.family, len(kind.layers), kind.head_dim, kind.steps) == ("llama", 30, 64, ())
    assert kind.rotation is not None
    assert kind.rotation.base == 1e5
    assert found.n_eff[0, 0] == pytest.approx(21.55, abs=0.01)
