"""The main job: every figure with its data, the cross-check and the claims, into one folder."""
