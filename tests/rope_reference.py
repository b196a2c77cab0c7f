"""Each published rule for RoPE's angles, plane by plane in mpmath, without `sparsity`."""

import math

import mpmath


def plain(dim, base):
    return [mpmath.mpf(base) ** (mpmath.mpf(-2 * i) / dim) for i in range(dim // 2)]


def linear(dim, base, length, factor):
    return [x / factor for x in plain(dim, base)]


def ntk(dim, base, length, factor):
    return plain(dim, mpmath.mpf(base) * mpmath.mpf(factor) ** (mpmath.mpf(dim) / (dim - 2)))


def dynamic(dim, base, length, factor, trained):
    ratio = mpmath.mpf(max(length, trained)) / trained
    return ntk(dim, base, length, factor * ratio - (factor - 1))


def yarn(dim, base, length, factor, trained, fast=32, slow=1):
    """Plane by plane: how far the plane lies between those of `fast` and of `slow` turns."""

    def plane(turns):  # base^(−2i/d)·trained = 2π·turns
        return (
            dim * mpmath.log(mpmath.mpf(trained) / (2 * mpmath.pi * turns)) / (2 * mpmath.log(base))
        )

    low, high = max(math.floor(plane(fast)), 0), min(math.ceil(plane(slow)), dim - 1)
    found = []
    for i, theta in enumerate(plain(dim, base)):
        ramp = min(max(mpmath.mpf(i - low) / (high - low), 0), 1)
        found.append(theta / factor * ramp + theta * (1 - ramp))
    return found


def llama3(dim, base, length, factor, trained, low=1, high=4):
    found = []
    for theta in plain(dim, base):
        wave = 2 * mpmath.pi / theta
        if wave < mpmath.mpf(trained) / high:
            found.append(theta)
        elif wave > mpmath.mpf(trained) / low:
            found.append(theta / factor)
        else:
            smooth = (trained / wave - low) / (high - low)
            found.append((1 - smooth) * theta / factor + smooth * theta)
    return found
