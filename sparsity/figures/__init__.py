"""The figures: each a short file with its data and drawing, and the explicit tuple of all."""
