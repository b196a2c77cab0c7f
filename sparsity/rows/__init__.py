"""What a row is: its kernel, its score law, and the steps along the sequence. Data, no engine.

row ─> tokens                 groups of equal tokens, each with its β, its γ and its weight
  ├─> steps/                  what changes the tokens in turn: ALiBi, windows, sinks, RoPE, …
  └─> score_laws              the law of x in β + γx, where it is not the normal one
classes                       the tokens sorted into classes of one law, as instruments take them
rotated_scores ─> rope_planes, rope_scaling      RoPE and CoCA of vectors
"""
