"""Which parameter gives the wanted focus: the exact law inverted."""
