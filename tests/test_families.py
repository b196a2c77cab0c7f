"""Families of `transformers`, tiny and random: measured as their own weights are, or refused."""

from collections import Counter

import families
import pytest

pytestmark = pytest.mark.model  # needs the extra [transformers]; run with `pytest -m model`

# One of each kind: windows, encoders, latent, differential and sparse attention, mixtures, hybrids
# with state-space, linear and convolutional layers, biases, soft caps, learned sinks, attention of
# their own, layers that share a module, a text model with another main input.
SOME = [
    "albert", "bailing_hybrid", "bamba", "bigbird_pegasus", "bloom", "bros", "clip_text_model",
    "cpmant", "ctrl", "deberta-v2", "deepseek_v3", "deepseek_v32", "diffllama", "falcon", "fnet",
    "fsmt", "funnel", "gemma2", "git", "gpt_neo", "gpt_oss", "layoutlm", "led", "lfm2", "llava",
    "longt5", "lxmert", "mamba", "mimo_v2_flash", "minimax", "mixtral", "modernbert", "mpt", "mra",
    "pegasus_x", "qwen3_next", "reformer", "rwkv", "sam3_lite_text_text_model", "speech_to_text",
    "splinter", "squeezebert", "t5", "t5gemma", "xlm-roberta", "xlnet", "zamba",
]  # fmt: skip


def verdicts(chosen, implementation):
    """(verdict, why) by family, of models that can be built."""
    found = {}
    for name, model, ids in families.models(chosen, implementation):
        verdict, why = families.judge(name, model, ids)
        if verdict != "not built":  # which transformers says, in as many lines as it likes
            assert "\n" not in why
            found[name] = verdict, why
    return found


# Through sdpa the calls are others, not the kinds: masks, windows, few key heads, a soft cap, a
# model of an encoder and a decoder, mixtures and hybrids, and those that know no sdpa.
WITH_SDPA = [
    "albert", "bamba", "bloom", "clip_text_model", "deepseek_v3", "falcon", "gemma2", "gpt_neo",
    "gpt_oss", "lfm2", "mamba", "mixtral", "modernbert", "mpt", "qwen3_next", "t5", "xlm-roberta",
]  # fmt: skip


@pytest.mark.parametrize(
    ("implementation", "chosen", "least"), [("eager", SOME, 21), ("sdpa", WITH_SDPA, 7)]
)
def test_some_families_are_measured_as_their_own_weights_are_or_refused(
    implementation, chosen, least
):
    found = verdicts(chosen, implementation)
    counts = Counter(verdict for verdict, _ in found.values())
    assert set(counts) <= {"equal", "refused"}, found
    assert counts["equal"] >= least, found
    built = [name for name in ("bloom", "mpt", "mamba") if name in found]
    assert len(built) == (3 if implementation == "eager" else 0)  # they know no sdpa
    assert all(found[name][0] == "refused" for name in built)


@pytest.mark.slow
def test_every_family_is_measured_as_its_own_weights_are_or_refused():
    found = verdicts(None, "eager")  # test_watch_families.py has all of them through sdpa
    counts = Counter(verdict for verdict, _ in found.values())
    assert set(counts) <= {"equal", "refused"}, found
    assert counts["equal"] >= 150, found
