"""The result as a Markdown table, from the JSON alone: whatever is printed can be read from the
file, too."""

from __future__ import annotations

from tests.bench.peers import ABSENT


def markdown(result: dict) -> str:
    machine, versions = result["machine"], result["versions"]
    peers = ", ".join(f"{name} {number}" for name, number in versions.items())
    lines = [
        f"cronpoll benchmark, {result['at'][:16]}Z{' (SMOKE: the numbers mean nothing)' if result['smoke'] else ''}",
        "",
        f"Python {result['python']}, {machine['processor']}, {machine['cores']} cores, "
        f"journal on {machine['journal_on']}.",
        f"{peers}.",
        "Best round (median); ratios of best rounds (of medians).",
        "",
        "| family | case | numbers | ratio or count | target | reached |",
        "|---|---|---|---|---|---|",
    ]
    for row in result["rows"]:
        numbers = "; ".join(
            f"{name} {_pair(n['best'], n['median'])}" for name, n in row["numbers"].items()
        )
        absent = [f"; {name} {ABSENT}" for name, fact in row["facts"].items() if fact == ABSENT]
        checks = row["ratios"] or [None]
        for index, check in enumerate(checks):
            left = (
                ["", "", ""]
                if index
                else [row["family"], row["case"], f"{numbers} {row['unit']}{''.join(absent)}"]
            )
            lines.append("| " + " | ".join(left + _check(check)) + " |")
    targets = result["targets"]
    lines += [
        "",
        f"{targets['reached']} of {targets['total']} targets reached in {result['seconds']:.0f} s.",
    ]
    return "\n".join(lines)


def _check(check: dict | None) -> list[str]:
    if check is None:
        return ["", "", ""]
    reached = {None: "", True: "yes", False: "**no**"}[check["reached"]]
    return [
        f"{check['name']}: {_pair(check['value'], check['of_medians'])}",
        check["target"] or "",
        reached,
    ]


def _pair(best: float, median: float) -> str:
    return _short(best) if best == median else f"{_short(best)} ({_short(median)})"


def _short(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 or value == int(value) else f"{value:.3g}"
