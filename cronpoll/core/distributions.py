"""How starts fall in a window, other than evenly: from 53 random bits to a share of the window,
exactly.

Whole shapes are rational arithmetic. What needs a logarithm is computed in decimal at a fixed
precision, with ln, exp and sqrt that are correctly rounded by specification: no C library has a say
in it.

Most draws do not need that. A float says where in the window a draw falls, with an error of far
less than a thousandth of a second. Unless the edge of a second is as near as that, the second is
known; only if it is, the exact arithmetic decides. So floats save work and choose nothing.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from decimal import ROUND_HALF_EVEN, Context, Decimal
from fractions import Fraction
from functools import cache
from typing import Final

from cronpoll.core.periods import Distribution, Window

_ONE: Final = 1 << 53
_SURE_RATES: Final = (0.001, 10.0)
"""Of exponential distributions that floats can follow: beyond, their digits cancel out."""
_FLOAT_ERROR: Final = 0.001
"""Seconds in the longest window; a test shows that estimates are nearer."""
_EXACT: Final = Context(prec=50, rounding=ROUND_HALF_EVEN)


def share_of(
    bits: int, kind: Distribution, window: Window | None, length: int, nominal: int
) -> Fraction | Decimal:
    """The share of a window of `length` seconds; below 0 and from 1 on it is for the caller to
    clamp."""
    if kind.name == "skewEarly":
        return _power(bits, kind.shape)
    if kind.name == "skewLate":
        return 1 - _power(_ONE - bits, kind.shape)
    if kind.name == "normal":
        return _normal(bits, kind, window, length, nominal)
    return _exponential(bits, kind)


def offset_of(
    kind: Distribution, window: Window | None, length: int, nominal: int
) -> Callable[[int], int]:
    """For a window of `length` seconds, a function from 53 random bits to seconds into it."""
    about, end = estimator(kind, window, length, nominal), length + 1

    def exactly(bits: int) -> int:
        return max(0, min(length, int(share_of(bits, kind, window, length, nominal) * end // 1)))

    if about is None:
        return exactly

    def offset(bits: int) -> int:
        place = about(bits) * end
        if place < 1 - _FLOAT_ERROR:
            return 0
        if place > length + _FLOAT_ERROR:
            return length
        second = int(place)
        sure = _FLOAT_ERROR < place - second < 1 - _FLOAT_ERROR
        return second if sure else exactly(bits)

    return offset


def estimator(
    kind: Distribution, window: Window | None, length: int, nominal: int
) -> Callable[[int], float] | None:
    """`share_of` in floats, right to ten digits; None where that is not certain."""
    if kind.name == "skewEarly":
        shape = float(kind.shape)
        return lambda bits: float((bits / _ONE) ** shape)
    if kind.name == "skewLate":
        shape = float(kind.shape)
        return lambda bits: 1.0 - float((1.0 - bits / _ONE) ** shape)
    if kind.name == "normal":
        at, sigma = (float(number) / length for number in _bell(kind, window, length, nominal))
        return lambda bits: at + sigma * _near_quantile(bits / _ONE) if bits else 0.0
    rate, late = float(kind.rate), kind.direction == "late"
    if not _SURE_RATES[0] <= rate <= _SURE_RATES[1]:
        return None
    kept = math.expm1(-rate)

    def exponential(bits: int) -> float:
        early = -math.log1p(bits / _ONE * kept) / rate
        return 1.0 - early if late else early

    return exponential


def _power(numerator: int, shape: str) -> Fraction | Decimal:
    """(numerator / 2^53) ** shape: exact for whole shapes."""
    if numerator == 0:
        return Fraction(0)
    if shape.isdecimal():
        return Fraction(numerator, _ONE) ** int(shape)
    ctx = _EXACT
    return ctx.exp(ctx.multiply(Decimal(shape), ctx.ln(_share(numerator))))


def _share(numerator: int) -> Decimal:
    return _EXACT.divide(Decimal(numerator), Decimal(_ONE))


def _exponential(bits: int, kind: Distribution) -> Decimal:
    """The inverse of the exponential distribution cut off at 1: x = -ln(1 - u (1 - e^-rate)) /
    rate."""
    ctx, rate = _EXACT, Decimal(kind.rate)
    kept = ctx.subtract(Decimal(1), ctx.exp(-rate))
    inner = ctx.subtract(Decimal(1), ctx.multiply(_share(bits), kept))
    early = ctx.divide(-ctx.ln(inner), rate)
    return early if kind.direction == "early" else ctx.subtract(Decimal(1), early)


def _normal(
    bits: int, kind: Distribution, window: Window | None, length: int, nominal: int
) -> Decimal:
    """As a share of the window; whatever lies outside is clamped by the caller."""
    if bits == 0:
        return Decimal(0)
    at, sigma = _bell(kind, window, length, nominal)
    ctx = _EXACT
    return ctx.divide(ctx.add(at, ctx.multiply(sigma, _quantile(bits))), Decimal(length))


def _bell(
    kind: Distribution, window: Window | None, length: int, nominal: int
) -> tuple[Decimal, Decimal]:
    """Middle and width in seconds of the window."""
    ctx = _EXACT
    middle = kind.mu or ("nominal" if window is not None and window.mode == "around" else "mid")
    at = {
        "start": Decimal(0),
        "mid": ctx.divide(Decimal(length), Decimal(2)),
        "nominal": Decimal(nominal),
        "end": Decimal(length),
    }[middle]
    sigma = (
        ctx.divide(Decimal(length), Decimal(6))
        if kind.sigma_ms is None
        else ctx.divide(Decimal(kind.sigma_ms), Decimal(1_000))
    )
    return at, sigma


# Wichura, algorithm AS 241 (PPND16): the quantile of the normal distribution by rational functions.
# Its coefficients as published; evaluated in decimal, so that its error is the algorithm's (1e-16)
# and the same everywhere.
_NEAR: Final = (
    "3.3871328727963666080e0 1.3314166789178437745e2 1.9715909503065514427e3 "
    "1.3731693765509461125e4 "
    "4.5921953931549871457e4 6.7265770927008700853e4 3.3430575583588128105e4 "
    "2.5090809287301226727e3",
    "1 4.2313330701600911252e1 6.8718700749205790830e2 5.3941960214247511077e3 "
    "2.1213794301586595867e4 "
    "3.9307895800092710610e4 2.8729085735721942674e4 5.2264952788528545610e3",
)
_FAR: Final = (
    "1.42343711074968357734e0 4.63033784615654529590e0 5.76949722146069140550e0 "
    "3.64784832476320460504e0 "
    "1.27045825245236838258e0 2.41780725177450611770e-1 2.27238449892691845833e-2 "
    "7.74545014278341407640e-4",
    "1 2.05319162663775882187e0 1.67638483018380384940e0 6.89767334985100004550e-1 "
    "1.48103976427480074590e-1 "
    "1.51986665636164571966e-2 5.47593808499534494600e-4 1.05075007164441684324e-9",
)
_TAIL: Final = (
    "6.65790464350110377720e0 5.46378491116411436990e0 1.78482653991729133580e0 "
    "2.96560571828504891230e-1 "
    "2.65321895265761230930e-2 1.24266094738807843860e-3 2.71155556874348757815e-5 "
    "2.01033439929228813265e-7",
    "1 5.99832206555887937690e-1 1.36929880922735805310e-1 1.48753612908506148525e-2 "
    "7.86869131145613259100e-4 "
    "1.84631831751005468180e-5 1.42151175831644588870e-7 2.04426310338993978564e-15",
)


@cache
def _coefficients(sides: tuple[str, str]) -> tuple[tuple[Decimal, ...], tuple[Decimal, ...]]:
    """Of both polynomials, the highest first."""
    above, below = (tuple(Decimal(text) for text in side.split()[::-1]) for side in sides)
    return above, below


@cache
def _floats(sides: tuple[str, str]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    above, below = _coefficients(sides)
    return tuple(map(float, above)), tuple(map(float, below))


def _rational(sides: tuple[str, str], at: Decimal) -> Decimal:
    above, below = _coefficients(sides)
    return _EXACT.divide(_polynomial(above, at), _polynomial(below, at))


def _polynomial(coefficients: tuple[Decimal, ...], at: Decimal) -> Decimal:
    value = Decimal(0)
    for coefficient in coefficients:
        value = _EXACT.fma(value, at, coefficient)
    return value


def _near_rational(sides: tuple[str, str], at: float) -> float:
    above = below = 0.0
    for one, other in zip(*_floats(sides), strict=True):
        above, below = above * at + one, below * at + other
    return above / below


def _near_quantile(u: float) -> float:
    """`_quantile` in floats."""
    centred = u - 0.5
    if abs(centred) <= 0.425:
        return centred * _near_rational(_NEAR, 0.180625 - centred * centred)
    root = math.sqrt(-math.log(u if centred < 0 else 1.0 - u))
    near = root <= 5
    value = _near_rational(_FAR, root - 1.6) if near else _near_rational(_TAIL, root - 5.0)
    return -value if centred < 0 else value


def _quantile(bits: int) -> Decimal:
    """The standard normal quantile of bits / 2^53, bits above zero."""
    ctx = _EXACT
    centred = ctx.subtract(_share(bits), Decimal("0.5"))
    if abs(centred) <= Decimal("0.425"):
        return ctx.multiply(
            centred,
            _rational(_NEAR, ctx.subtract(Decimal("0.180625"), ctx.multiply(centred, centred))),
        )
    tail = _share(bits if centred < 0 else _ONE - bits)
    root = ctx.sqrt(-ctx.ln(tail))
    if root <= 5:
        value = _rational(_FAR, ctx.subtract(root, Decimal("1.6")))
    else:
        value = _rational(_TAIL, ctx.subtract(root, Decimal(5)))
    return -value if centred < 0 else value
