"""Configurations of model families as rows, from their documented fields."""

import json

import numpy as np
import pytest
from matplotlib import pyplot

import sparsity
from sparsity import (
    Alibi,
    Chunk,
    DynamicNtkScaling,
    FloorLog,
    InputError,
    LinearScaling,
    Llama3Scaling,
    NeedleAbove,
    QKNorm,
    Row,
    SoftCap,
    Window,
    Yarn,
    YarnScaling,
    describe,
    exact,
)
from sparsity.attention.configuration import layer_kinds


def config(model_type, layers=4, heads=8, head_dim=64, trained=8192, **fields):
    return {
        "model_type": model_type,
        "num_hidden_layers": layers,
        "num_attention_heads": heads,
        "hidden_size": heads * head_dim,
        "max_position_embeddings": trained,
        **fields,
    }


def rope(base=1e4, **scaling):
    return {"rope_theta": base, **({"rope_scaling": scaling} if scaling else {})}


SLIDING = ["sliding_attention", "full_attention"] * 2
# What each family's configuration says, and for each kind: layers, steps, scale, turned entries,
# base, scaling, whether q and k are normalised.
FAMILIES = {
    "llama 2": (config("llama", **rope()), [(4, (), 64**-0.5, 64, 1e4, None, False)]),
    "llama 3.1": (
        config("llama", trained=131072, **rope(
            5e5, rope_type="llama3", factor=8.0, low_freq_factor=1.0, high_freq_factor=4.0,
            original_max_position_embeddings=8192)),
        [(4, (), 64**-0.5, 64, 5e5, Llama3Scaling(8.0, 8192), False)],
    ),
    "mistral 7B": (
        config("mistral", sliding_window=4096, **rope()),
        [(4, (Window(4096),), 64**-0.5, 64, 1e4, None, False)],
    ),
    "qwen 2.5 with YaRN": (
        config("qwen2", trained=32768, use_sliding_window=False, sliding_window=131072,
               **rope(1e6, type="yarn", factor=4.0, original_max_position_embeddings=32768)),
        [(4, (Yarn(4.0),), 64**-0.5, 64, 1e6, YarnScaling(4.0, 32768), False)],
    ),
    "qwen 3": (
        config("qwen3", head_dim=64, **rope(1e6)), [(4, (), 64**-0.5, 64, 1e6, None, True)]
    ),
    "gemma 2": (
        config("gemma2", query_pre_attn_scalar=256, sliding_window=4096,
               attn_logit_softcapping=50.0, final_logit_softcapping=30.0, **rope()),
        [(2, (SoftCap(50.0), Window(4096)), 1 / 16, 64, 1e4, None, False),
         (2, (SoftCap(50.0),), 1 / 16, 64, 1e4, None, False)],
    ),
    "gemma 3": (
        config("gemma3_text", layers=6, query_pre_attn_scalar=256, sliding_window=1024,
               sliding_window_pattern=6, rope_local_base_freq=1e4,
               **rope(1e6, rope_type="linear", factor=8.0)),
        [(5, (Window(1024),), 1 / 16, 64, 1e4, LinearScaling(8.0), True),
         (1, (), 1 / 16, 64, 1e6, LinearScaling(8.0), True)],
    ),
    "llama 4": (
        {"model_type": "llama4", "text_config": config(
            "llama4_text", attention_chunk_size=8192, attn_temperature_tuning=True,
            floor_scale=8192, attn_scale=0.1, use_qk_norm=True, no_rope_layers=[1, 1, 1, 0],
            **rope(5e5))},
        [(3, (Chunk(8192),), 64**-0.5, 64, 5e5, None, True),
         (1, (FloorLog(0.1, 8192, 1),), 64**-0.5, None, None, None, False)],
    ),
    "gpt-oss": (
        config("gpt_oss", sliding_window=128, layer_types=SLIDING, **rope(
            15e4, rope_type="yarn", factor=32.0, original_max_position_embeddings=4096,
            truncate=False)),
        [(2, (Yarn(32.0), Window(128)), 1 / 8, 64, 15e4, YarnScaling(32.0, 4096, truncate=False),
          False),
         (2, (Yarn(32.0),), 1 / 8, 64, 15e4, YarnScaling(32.0, 4096, truncate=False), False)],
    ),
    "deepseek v3": (
        config("deepseek_v3", qk_nope_head_dim=128, qk_rope_head_dim=64, v_head_dim=128,
               kv_lora_rank=512, trained=163840, **rope(
            1e4, type="yarn", factor=40.0, mscale=1.0, mscale_all_dim=1.0,
            original_max_position_embeddings=4096, beta_fast=32, beta_slow=1)),
        [(4, (Yarn(40.0),), 192**-0.5, 64, 1e4, YarnScaling(40.0, 4096), False)],
    ),
    "ministral 3": (
        config("ministral3", head_dim=64, rope_parameters={
            "rope_type": "yarn", "rope_theta": 1e6, "factor": 16.0, "mscale": 1.0,
            "mscale_all_dim": 1.0, "original_max_position_embeddings": 16384,
            "llama_4_scaling_beta": 0.1}),
        [(4, (FloorLog(0.1, 16384, 0),), 64**-0.5, 64, 1e6, YarnScaling(16.0, 16384), False)],
    ),
    "cohere 2": (
        config("cohere2", sliding_window=4096, layer_types=["sliding_attention"] * 3
               + ["full_attention"], **rope(5e4)),
        [(3, (Window(4096),), 64**-0.5, 64, 5e4, None, False),
         (1, (), 64**-0.5, None, None, None, False)],
    ),
    "smollm 3": (
        config("smollm3", no_rope_layers=[1, 1, 1, 0], use_sliding_window=False, **rope(2e6)),
        [(3, (), 64**-0.5, 64, 2e6, None, False), (1, (), 64**-0.5, None, None, None, False)],
    ),
    "granite": (
        config("granite", attention_multiplier=0.015625, embedding_multiplier=12.0,
               residual_multiplier=0.22, logits_scaling=8.0, **rope()),
        [(4, (), 1 / 64, 64, 1e4, None, False)],
    ),
    "pythia": (
        config("gpt_neox", rotary_pct=0.25, rotary_emb_base=10000),
        [(4, (), 64**-0.5, 16, 1e4, None, False)],
    ),
    "internlm 2, dynamic NTK": (
        config("internlm2", trained=32768, **rope(1e6, type="dynamic", factor=2.0)),
        [(4, (), 64**-0.5, 64, 1e6, DynamicNtkScaling(2.0, 32768), False)],
    ),
    "bloom": (
        {"model_type": "bloom", "n_layer": 4, "n_head": 8, "hidden_size": 512, "seq_length": 2048},
        [(4, (Alibi(2.0**-4),), 64**-0.5, None, None, None, False)],
    ),
    "gpt-neo": (
        {"model_type": "gpt_neo", "num_layers": 4, "num_heads": 8, "hidden_size": 512,
         "attention_layers": ["global", "local"] * 2, "window_size": 256,
         "max_position_embeddings": 2048},
        [(2, (), 1.0, None, None, None, False),
         (2, (Window(256),), 1.0, None, None, None, False)],
    ),
    "modernbert": (
        config("modernbert", layers=3, local_attention=128, layer_types=[
            "full_attention", "sliding_attention", "sliding_attention"], rope_parameters={
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4},
            "full_attention": {"rope_type": "default", "rope_theta": 16e4}}),
        [(2, (Window(129),), 1 / 8, 64, 1e4, None, False), (1, (), 1 / 8, 64, 16e4, None, False)],
    ),
    "qwen 3 next": (
        config("qwen3_next", head_dim=64, partial_rotary_factor=0.25,
               layer_types=["linear_attention"] * 3 + ["full_attention"], **rope(1e7)),
        [(1, (), 1 / 8, 16, 1e7, None, True), (3, None, 1 / 8, None, None, None, False)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", FAMILIES)
def test_kinds_of_layers_of_documented_configurations(name):
    given, wanted = FAMILIES[name]
    found = layer_kinds(given)
    seen = []
    for kind in found:
        rotation = kind.rotation
        turned, base, scaling = (
            (None, None, None)
            if rotation is None
            else (rotation.turned, rotation.base, rotation.scaling)
        )
        steps = kind.steps if kind.softmax else None
        seen.append((len(kind.layers), steps, kind.scale, turned, base, scaling, kind.qk_norm))
    approximate = [(*row[:2], pytest.approx(row[2], rel=1e-12), *row[3:]) for row in wanted]
    assert seen == approximate
    layers = sorted(layer for kind in found for layer in kind.layers)
    assert layers == list(range(len(layers)))
    notes = [note for kind in found for note in kind.notes]
    assert not [note for note in notes if note.startswith(("not read", "the family"))], notes


def test_what_is_not_read_is_named():
    odd = {"attn_frobnication": 3, "sparse_attention_rank": 2, "hidden_act": "silu"}
    strange = config("llama", **odd, **rope())
    (kind,) = layer_kinds(strange)
    assert kind.notes == ("not read: attn_frobnication, sparse_attention_rank",)
    (kind,) = layer_kinds(config("brand_new", **rope()))
    assert "'brand_new' is not known here" in kind.notes[0]
    latent = {"qk_nope_head_dim": 128, "qk_rope_head_dim": 64}
    indexer = {"index_topk": 2048, "index_head_dim": 128, "index_n_heads": 64}
    (kind,) = layer_kinds(config("deepseek_v32", **latent, **indexer, **rope()))
    assert kind.top_k == 2048
    assert "top 2048" in kind.title
    assert kind.row(2.0) == Row("topk:2048", gamma=2.0)


def test_n_eff_of_the_rows(tmp_path):
    given, _ = FAMILIES["llama 4"]
    (tmp_path / "config.json").write_text(json.dumps(given))
    for source in (given, tmp_path, str(tmp_path / "config.json")):
        found = describe(source, gamma=3.0, lengths=(8191, 8192))
        np.testing.assert_allclose(found.n_eff[1], [38.025, 28.26], rtol=1e-3)
        sphere = Row("exp", gamma=3.0, scores=QKNorm(64))  # what it normalises
        assert float(found.n_eff[0, 1]) == float(exact(sphere, length=8192))
        assert found.rows[0] == Row("exp", gamma=3.0, scores=QKNorm(64), steps=(Chunk(8192),))
        assert found.rows[1] == Row("exp", gamma=3.0, steps=(FloorLog(0.1, 8192, 1),))
    assert describe(given).gamma == (1.0, 2.9)  # unit gains under QK-norm; SmolLM2's median
    frame = found.to_dataframe()
    assert list(frame["count"]) == [3, 1]
    assert "n_eff at 8192" in frame
    assert "chunked attention, chunks of 8192" in repr(found)
    assert "<table>" in found._repr_html_()
    assert json.loads(json.dumps(found.as_json()))["kinds"][1]["row"]["steps"] == ["floor-log:0.1"]
    empty = describe(FAMILIES["qwen 3 next"][0], lengths=(64,))
    assert np.isnan(empty.n_eff[1, 0])
    assert empty.rows[1] is None


def test_errors(tmp_path):
    (tmp_path / "no.json").write_text("{")
    (tmp_path / "list.json").write_text("[1]")
    for make, match in (
        (lambda: describe(tmp_path / "none.json"), "is not there"),
        (lambda: describe(tmp_path / "no.json"), "holds no configuration"),
        (lambda: describe(tmp_path / "list.json"), "holds no configuration"),
        (lambda: describe({"model_type": "llama"}), "num_hidden_layers = None"),
        (lambda: describe(config("llama", layers="x")), "num_hidden_layers = x"),
        (lambda: describe(config("llama", layer_types=["full_attention"])), "all 4 layers"),
        (lambda: describe(config("llama", **rope(1e4, type="longrope"))), "rope_type = longrope"),
        (lambda: describe(config("llama", **rope()), gamma=-1.0), "gamma"),
        (lambda: describe(config("llama", **rope()), lengths=(0,)), "length"),
    ):
        with pytest.raises(InputError, match=match):
            make()


def test_rows_are_drawn_by_name(tmp_path, command):
    """n_eff of each kind, and a needle that windows see and caps bend."""
    (tmp_path / "config.json").write_text(json.dumps(FAMILIES["gemma 2"][0]))
    found = describe(tmp_path / "config.json", gamma=3.0)
    titles = list(found.named_rows())
    assert len(titles) == 2
    axes = sparsity.plot(found, length=[64, 8192])
    legend = axes.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()][:2] == titles
    drawn = [np.asarray(line.get_ydata(), float) for line in axes.get_lines()]
    for row in found.named_rows().values():
        wanted = [float(exact(row, length=n).value) for n in (64, 8192)]
        assert any(y.shape == (2,) and np.allclose(y, wanted, rtol=1e-12) for y in drawn)
    pyplot.close(axes.figure)
    needle = NeedleAbove(12.0, 0.0, 0)
    capped, _ = found.named_rows(needle).values()
    typed = Row("exp(50*tanh(s/50))", beta=0.0, gamma=3.0, steps=(needle, Window(4096)))
    own, by_hand = (exact(row, length=8192, of="needle_signal").value for row in (capped, typed))
    assert float(own) == pytest.approx(float(by_hand), rel=1e-10)
    out = tmp_path / "drawn.svg"
    line = ["describe", tmp_path / "config.json", "--gamma", 3, "--lengths", 64]
    code, _, err = command(*line, "--needle", 12, "--out", out)
    assert (code, err) == (0, "")
    assert out.read_text().count("<svg") == 1
    assert (tmp_path / "drawn.csv").read_text().startswith("series,x,theory")
    for bad, says in ((["--needle", 12], "give --out"), (["--out", "x.txt"], ".svg, .png or .pdf"),
                      (["--out", out, "--of", "sink_mass"], "no sink")):  # fmt: skip
        code, _, err = command(*line, *bad)
        assert code == 2
        assert says in err


def test_the_header_of_a_gguf_file_is_a_configuration(tmp_path):
    gguf = pytest.importorskip("gguf")
    path = tmp_path / "tiny.gguf"
    writer = gguf.GGUFWriter(path, "llama")
    writer.add_context_length(64)
    writer.add_embedding_length(32)
    writer.add_block_count(2)
    writer.add_head_count(4)
    writer.add_head_count_kv(2)
    writer.add_rope_freq_base(5e4)
    writer.add_tensor("token_embd.weight", np.zeros((2, 32), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    found = describe(path, lengths=(64,))
    (kind,) = found.kinds
    assert (found.family, len(kind.layers), kind.head_dim) == ("llama", 2, 8)
    assert kind.rotation.base == 5e4
    path.write_bytes(path.read_bytes()[:200])
    with pytest.raises(InputError, match="holds no configuration"):
        describe(path)
