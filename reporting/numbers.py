"""Format the numbers of reports."""

# Shown in place of a quotient with the denominator 0.
NONE = "none"


def percent(fraction: float) -> str:
    """Return a fraction in percent, with one decimal, or two below 1%."""
    return f"{fraction:.2%}" if 0 < fraction < 0.01 else f"{fraction:.1%}"


def share(part: int, whole: int) -> str:
    """Return a part of a whole in percent, or "none" if the whole is 0."""
    return percent(part / whole) if whole else NONE


def quotient(first: int, second: int) -> str:
    """Return a ratio with one decimal, or "none" if the denominator is 0."""
    return f"{first / second:,.1f}" if second else NONE


def short(number: float) -> str:
    """Return a number, in millions or billions if it is large."""
    for limit, unit in ((1e9, "billion"), (1e6, "million")):
        # 999,600,000 is 1 billion, not 1e+03 million.
        if number >= 0.9995 * limit:
            return f"{number / limit:.3g} {unit}"
    return f"{number:,}"
