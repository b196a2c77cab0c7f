"""n_eff of softmax rows of normal tokens, by a sum over scores and times for every token."""

import numpy as np


def n_eff_of_normal_tokens(beta, gamma):
    """E[(Σa)²/Σa²] of the tokens e^s, s_j ~ N(β_j, γ_j²), by 1/Σa² = ∫ e^(−tΣa²) dt.

    = ∫ [Σ_j m₂_j/φ_j + (Σ m₁_j/φ_j)² − Σ(m₁_j/φ_j)²] Π φ_j du, with x = e^(u + 2s) and the means
    φ = E e^(−x), m₁ = E √x e^(−x), m₂ = E x e^(−x) of each, all by the trapezoidal rule.
    """
    beta, gamma = np.broadcast_arrays(np.asarray(beta, float), np.asarray(gamma, float))
    low = -2 * (beta + 9 * gamma + gamma**2).max() - 45 - 2 * np.log(len(beta))
    u = np.arange(low, -2 * (beta - 9 * gamma).max() + 6, 0.1)
    log_phi, singles, first, squares = np.zeros((4, len(u)))
    for b, g in zip(beta, gamma, strict=True):
        step = min(0.25, 0.1 / g)
        z = np.arange(-14, 14 + step, step)
        share = step * np.exp(-z * z / 2) / np.sqrt(2 * np.pi)
        x = np.exp(np.minimum(u[:, None] + 2 * (b + g * z), 300.0))
        fading = np.exp(-x)
        phi, m1, m2 = fading @ share, (np.sqrt(x) * fading) @ share, (x * fading) @ share
        missing, phi = -np.expm1(-x) @ share, np.maximum(phi, 1e-250)
        log_phi += np.where(missing < 0.5, np.log1p(-np.minimum(missing, 0.5)), np.log(phi))
        singles += m2 / phi
        first += m1 / phi
        squares += (m1 / phi) ** 2
    body = (singles + first**2 - squares) * np.exp(np.maximum(log_phi, -700))
    return float(np.where(log_phi > -200, body, 0.0).sum() * 0.1)
