"""Softmax's weights of rows of logits whose sink key is set apart, for what takes such weights."""

import numpy as np


def softmax_weights(logits):
    """Return e^s over the largest of the other keys, as far as the dtype reaches."""
    xp = logits.others.__array_namespace__()
    seen = xp.where(logits.visible, logits.others, -xp.inf)
    sink = xp.where(logits.sink_visible, logits.sink, -xp.inf)
    top = seen.max(-1, initial=-np.inf)
    top = xp.where(xp.isfinite(top), top, xp.where(xp.isfinite(sink), sink, 0.0))  # only the sink
    most = float(np.log(np.finfo(seen.dtype).max)) - 1
    with np.errstate(under="ignore"):
        over = xp.minimum(sink - top, most)  # beyond that it takes all there is
        return logits._replace(others=xp.exp(seen - top[..., None]), sink=xp.exp(over))
