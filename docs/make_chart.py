"""The chart of docs/performance.md, drawn from the tables that stand there: `python docs/make_chart.py`.

Each panel is one table, and each table was measured in one run: one machine, one version of everything. The numbers are
stored in the picture, so that a test can tell whether it is still that of the page.
"""

import io
import json
import pathlib
import re

from matplotlib.figure import Figure

from lqd.report.style import COLOURS, tidy

PAGE = pathlib.Path(__file__).parent / "performance.md"
PICTURE = PAGE.parent / "images" / "performance.png"
SPEED, ASK_TELL = "The arm, side by side with pyribs and QDax", "Ask and tell"


def table(page: str, heading: str) -> list[list[str]]:
    """The rows of the first table under a heading, without its head and without marks."""
    part = page.split(f"\n## {heading}\n")[1].split("\n## ")[0]
    rows = [line.strip("|").split("|") for line in part.splitlines() if line.startswith("|")][2:]
    return [[re.sub(r"[`*]", "", cell).strip() for cell in row] for row in rows]


def numbers(page: str) -> dict[str, dict[str, list[float]]]:
    """What is drawn: for each row of the tables its value, and its range where the table has one."""

    def value(cell):
        return float(cell.replace(",", ""))

    speed = {name: [value(cell), *map(value, spread.split(" - "))] for name, cell, spread, _ in table(page, SPEED)}
    cost = {name: [value(cell)] for name, cell, *_ in table(page, ASK_TELL)}
    return {SPEED: speed, ASK_TELL: cost}


def draw(found: dict[str, dict[str, list[float]]]) -> Figure:
    figure = Figure(figsize=(7.2, 5.6), layout="constrained")
    speed = "thousands of evaluations per second on the arm\n(longer is better)"
    cost = "milliseconds for one ask and one tell\n(shorter is better)"
    for ax, title, scale, rows in zip(figure.subplots(2), (speed, cost), (1e-3, 1.0), found.values(), strict=True):
        for place, (name, (middle, *spread)) in enumerate(rows.items()):
            rule = "lqd-fn" if "lqd-fn" in name else "dns" if "dns" in name.lower() else "me"
            ours = "lqd" in name or not name.startswith(("pyribs", "QDax"))
            far = max([middle, *spread]) * scale
            look = {"facecolor": COLOURS[rule] if ours else "white", "hatch": None if ours else "///"}
            ax.barh(place, middle * scale, height=0.65, edgecolor=COLOURS[rule], **look)
            if spread:
                ax.plot([end * scale for end in spread], [place, place], color="black", linewidth=1.2)
            label = f"{middle * scale:,.0f}" if scale < 1 else f"{middle:.3f}"
            ax.annotate(label, (far, place), (4, 0), textcoords="offset points", va="center", fontsize=9)
        ax.set(yticks=range(len(rows)), yticklabels=[name.replace(", ", ",\n", 1) for name in rows])
        ax.set_title(title, fontsize=10, loc="left")
        ax.invert_yaxis()
        ax.margins(x=0.12)
        ax.set_xlim(left=0)
        tidy(ax)
    return figure


def main() -> None:
    found = numbers(PAGE.read_text(encoding="utf-8"))
    buffer = io.BytesIO()
    draw(found).savefig(buffer, format="png", dpi=150, metadata={"Comment": json.dumps(found)})
    PICTURE.write_bytes(buffer.getvalue())


if __name__ == "__main__":
    main()
