"""Writes what scripts/bench.py measured: a JSON file, pictures (SVG), and a page for people."""

import json
from pathlib import Path
from typing import Any

WIDTH, HEIGHT, MARGIN = 640, 320, 56
COLOURS = {"sqlite": "#1f77b4", "postgres": "#d9730d"}
Point = tuple[float, float]


def write(report: dict[str, Any], folder: Path) -> None:
    """Writes `bench-DATE.json`, its pictures and its page into the folder."""
    date = report["date"][:10]
    (folder / f"bench-{date}.json").write_text(json.dumps(report, indent=1) + "\n")
    pictures = []
    if report["curves"]:
        rates = {store: points(curve, "steps_per_second") for store, curve in report["curves"].items()}
        medians = {store: points(curve, "latency_ms", "p50") for store, curve in report["curves"].items()}
        pictures.append(("throughput", "Steps a second against executions at a time", chart("steps/s", rates)))
        pictures.append(("latency", "Median time of ten steps, ms, against executions at a time", chart("ms", medians)))
    pictures.append(("parts", "Instructions of a step by part, in thousands", bars(per_step(report["instructions"]))))
    for name, _, picture in pictures:
        (folder / f"bench-{date}-{name}.svg").write_text(picture)
    page = folder / f"bench-{date}.md"
    page.write_text(render(report, [(f"bench-{date}-{name}.svg", title) for name, title, _ in pictures]))
    print(page)


def render(report: dict[str, Any], pictures: list[tuple[str, str]]) -> str:
    """The page."""
    lines = [
        f"# Benchmark, {report['date'][:10]}",
        "",
        f"{report['machine']}, nothing else on them; release build of commit `{report['commit']}`,",
        f"default configuration, durability on. Medians of {report['rounds']} interleaved rounds;",
        "what takes long was measured once.",
        "",
        f"```sh\n{report['command']}\n```",
        "",
        "| measure | store | figure | value | goal | floor | |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for measure in report["measures"]:
        for figure in measure["figures"]:
            value, goal, floor = (number(figure[key]) for key in ("value", "goal", "floor"))
            place = f"{measure['name']} | {measure['store']} | {figure['title']}"
            lines.append(f"| {place} | {value} | {goal} | {floor} | {figure['verdict']} |")
    for name, rates in report["beside"].items():
        found = ", ".join(number(rate) for rate in rates)
        lines += ["", f"Beside it, in the same rounds, `{name}`: {found} steps/s."]
    for file, title in pictures:
        lines += ["", f"![{title}]({file})"]
    raw = f"bench-{report['date'][:10]}.json"
    lines += ["", f"Every run, with its latencies: [`{raw}`]({raw}).", ""]
    return "\n".join(lines)


def number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 100 else f"{value:.3g}"


def points(curve: list[dict[str, Any]], *path: str) -> list[Point]:
    found = []
    for run in curve:
        value: Any = run
        for part in path:
            value = value[part]
        found.append((float(run["concurrency"]), float(value)))
    return found


def per_step(instructions: dict[str, int]) -> dict[str, float]:
    """Thousands for one step: a life has ten steps, a commit 64."""
    share = {"decide": 10, "evolve": 10, "encode": 10, "decode": 10, "commit": 64}
    return {part: count / share.get(part, 1) / 1_000 for part, count in instructions.items()}


def chart(unit: str, curves: dict[str, list[Point]]) -> str:
    """Lines over a horizontal axis where each mark is twice the one before."""
    marks = sorted({x for curve in curves.values() for x, _ in curve})
    top = max(y for curve in curves.values() for _, y in curve) * 1.1

    def at(x: float, y: float) -> tuple[float, float]:
        across = marks.index(x) / max(len(marks) - 1, 1)
        return MARGIN + across * (WIDTH - 2 * MARGIN), HEIGHT - MARGIN - y / top * (HEIGHT - 2 * MARGIN)

    parts = [frame(top, unit)]
    for mark in marks:
        x, y = at(mark, 0)
        parts.append(f'<text x="{x:.0f}" y="{y + 18:.0f}" text-anchor="middle">{mark:.0f}</text>')
    for row, (name, curve) in enumerate(curves.items()):
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in curve))
        colour = COLOURS.get(name, "#555")
        parts.append(f'<polyline points="{line}" fill="none" stroke="{colour}" stroke-width="2"/>')
        parts.append(f'<text x="{MARGIN + 10}" y="{MARGIN + 16 * row:.0f}" fill="{colour}">{name}</text>')
    return document(parts)


def bars(values: dict[str, float]) -> str:
    """A bar for each part."""
    top = max(values.values()) * 1.1
    wide = (WIDTH - 2 * MARGIN) / len(values)
    parts = [frame(top, "thousand")]
    for index, (name, value) in enumerate(values.items()):
        high = value / top * (HEIGHT - 2 * MARGIN)
        x, y = MARGIN + index * wide, HEIGHT - MARGIN - high
        parts.append(f'<rect x="{x + 8:.0f}" y="{y:.1f}" width="{wide - 16:.0f}" height="{high:.1f}" fill="#1f77b4"/>')
        middle = x + wide / 2
        parts.append(f'<text x="{middle:.0f}" y="{HEIGHT - MARGIN + 18}" text-anchor="middle">{name}</text>')
        parts.append(f'<text x="{middle:.0f}" y="{y - 4:.0f}" text-anchor="middle">{number(value)}</text>')
    return document(parts)


def frame(top: float, unit: str) -> str:
    """The axes, with four marks on the left one."""
    parts = [f'<text x="{MARGIN - 6}" y="{MARGIN - 14}" text-anchor="end">{unit}</text>']
    for share in (0.25, 0.5, 0.75, 1.0):
        y = HEIGHT - MARGIN - share * (HEIGHT - 2 * MARGIN)
        parts.append(f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{y:.0f}" y2="{y:.0f}" stroke="#ddd"/>')
        parts.append(f'<text x="{MARGIN - 6}" y="{y + 4:.0f}" text-anchor="end">{number(top * share)}</text>')
    bottom = HEIGHT - MARGIN
    parts.append(f'<line x1="{MARGIN}" x2="{WIDTH - MARGIN}" y1="{bottom}" y2="{bottom}" stroke="#333"/>')
    return "\n".join(parts)


def document(parts: list[str]) -> str:
    size = f'width="{WIDTH}" height="{HEIGHT}" viewBox="0 0 {WIDTH} {HEIGHT}"'
    style = "<style>text { font: 12px sans-serif; fill: currentColor }</style>"
    background = '<rect width="100%" height="100%" fill="#fff"/>'
    return "\n".join([f'<svg xmlns="http://www.w3.org/2000/svg" {size}>', style, background, *parts, "</svg>", ""])
