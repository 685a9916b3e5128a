"""On which side of a whole second a chosen time lies, where floats cannot tell. For the judge.

Instead of computing what is drawn, the question is turned round: whether the draw comes to a given
share of the window. That needs each distribution forwards only, in decimal.
"""

from __future__ import annotations

from decimal import Decimal, localcontext
from fractions import Fraction
from typing import Any, Final

_DIGITS: Final = 90
_PI: Final = Decimal(
    "3.14159265358979323846264338327950288419716939937510582097494459230781640628620899862803482534"
)


def reaches(rule: Any, bits: int, share: Fraction, bell: tuple[int, Fraction, Fraction]) -> bool:
    """Whether what 53 bits draw comes to this share of the window, which is neither 0 nor 1.

    `bell`: the length of the window, and the middle and the width of a normal distribution in it.
    """
    u = Fraction(bits, 1 << 53)
    with localcontext(prec=_DIGITS):
        if rule.name == "skewEarly":
            return _power_reaches(u, rule.shape, share)
        if rule.name == "skewLate":
            missing = 1 - share
            exact = rule.shape.isdecimal() and (1 - u) ** int(rule.shape) == missing
            return exact or not _power_reaches(1 - u, rule.shape, missing)
        if rule.name == "exponential":
            rate, early = Decimal(rule.rate), rule.direction == "early"
            at = _decimal(share if early else 1 - share)
            below = (1 - (-rate * at).exp()) / (1 - (-rate).exp())
            return _decimal(u) >= below if early else _decimal(u) <= below
        length, mean, sigma = bell
        if not sigma:
            return share * length <= mean
        return _decimal(u) >= _share_below(_decimal((share * length - mean) / sigma))


def _decimal(value: Fraction) -> Decimal:
    return Decimal(value.numerator) / Decimal(value.denominator)


def _power_reaches(base: Fraction, shape: str, share: Fraction) -> bool:
    """Whether base ** shape >= share, which is more than 0."""
    if not base:
        return False
    if shape.isdecimal():
        return base ** int(shape) >= share
    return Decimal(shape) * _decimal(base).ln() >= _decimal(share).ln()


def _share_below(z: Decimal) -> Decimal:
    """The share of a normal distribution below z of its widths, by the series of the error
    function. For all that 53 bits can draw it needs far fewer digits than there are."""
    if abs(z) > 12:
        return Decimal(int(z > 0))
    term = total = z
    number = 1
    while abs(term) > Decimal(10) ** -_DIGITS:
        term = -term * z * z / (2 * number)
        total += term / (2 * number + 1)
        number += 1
    return Decimal("0.5") + total / (2 * _PI).sqrt()
