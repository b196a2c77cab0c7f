"""Sums over the tokens of a row: Σ_j log φ_j and Σ_j m_j/φ_j, on one grid of u.

token_sums: all tokens, part by part
└─ token_pieces: which tokens count; laws in between interpolated where classes are many
"""
