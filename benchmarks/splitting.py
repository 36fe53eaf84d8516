"""How fast texts are cut, in megabytes (10^6 bytes of UTF-8) a second on one core.

    python benchmarks/splitting.py [--size 8] [--least 20]

Each text is cut once at `size` and once at four times that; a time that grows faster than
the length shows as a lower rate. The best of five counts. With `--least` the exit is 1
where prose is slower than that.
"""

from __future__ import annotations

import argparse
import platform
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent.parent))

from django_outbox.splitting import (  # needs the path
    ESCAPED,
    HTML,
    MARKDOWN,
    MRKDWN,
    PLAIN,
    Entities,
    Limit,
    Markup,
    Splitter,
    Unit,
)

PROSE = (
    "It rained in the morning, and nobody had thought of an umbrella. Will it stop? "
    "she asked, and then the boats went out again, one after another, as they do. "
    "At about ten o'clock the wind came round to the west and brought the smell of "
    "salt and tar along the quay.\n\n"
)
TYPESET = PROSE.replace("Will it stop?", "\u201cWill it stop?\u201d").replace(
    "'", "\u2019"
)
LINES = PROSE.replace("\n\n", "\n").replace(". ", ".\n")
CODE = "Look:\n\n```python\n" + "    value = compute(value)  # keep\n" * 40 + "```\n\n"
BOLD = PROSE.replace("nobody", "<b>nobody</b>").replace(
    "wind", "<i>wind &amp; rain</i>"
)

Sample = tuple[str, Markup, str]
SAMPLES: dict[str, Sample] = {
    "prose": (PROSE, PLAIN, "prose"),
    "prose with typographic quotes": (TYPESET, PLAIN, "prose"),
    "prose in short lines": (LINES, PLAIN, "prose"),
    "prose in one line": (PROSE.replace("\n\n", " "), PLAIN, "prose"),
    "chinese": ("\u6f22\u5b57\u4eee\u540d\u3002" * 50 + "\n", PLAIN, "other"),
    "emoji": (
        "\U0001f468\u200d\U0001f469\u200d\U0001f467 " * 40 + "\n",
        PLAIN,
        "other",
    ),
    "one word": ("x", PLAIN, "other"),
    "prose as markdown": (PROSE, MARKDOWN, "prose"),
    "code as markdown": (CODE, MARKDOWN, "other"),
    "prose as HTML": (BOLD, HTML, "other"),
    "prose as mrkdwn": (PROSE.replace("nobody", "*nobody*"), MRKDWN, "other"),
    "prose, escaped": (PROSE.replace("and", "&"), ESCAPED, "other"),
    "prose with entities": (PROSE, Entities([]), "prose"),
}
LIMIT = Limit(4096, Unit.UTF16)


def rate(sample: str, markup: Markup, megabytes: float) -> float:
    """Return megabytes a second, of the best of five cuts of a text of that size."""
    times = int(megabytes * 1_000_000 / len(sample.encode())) + 1
    text = sample * times
    splitter = Splitter(LIMIT, markup)
    best = min(_seconds(splitter, text) for _ in range(5))
    return len(text.encode()) / 1_000_000 / best


def _seconds(splitter: Splitter, text: str) -> float:
    began = time.process_time()
    splitter.pieces(text)
    return time.process_time() - began


def main() -> int:
    """Print a line for each sample; return the exit code."""
    parser = argparse.ArgumentParser(description="How fast texts are cut.")
    parser.add_argument("--size", type=float, default=4, help="megabytes of text")
    parser.add_argument("--least", type=float, default=0, help="MB/s that prose needs")
    asked = parser.parse_args()
    print(
        f"{LIMIT.size} {LIMIT.unit.value} a piece, one core, {platform.processor() or platform.machine()}, Python {platform.python_version()}"
    )
    print(f"{'':32}{asked.size:>6g} MB{4 * asked.size:>8g} MB")
    slowest = float("inf")
    for name, (sample, markup, kind) in SAMPLES.items():
        once, fourfold = (rate(sample, markup, asked.size * n) for n in (1, 4))
        print(f"{name:32}{once:>9.1f}{fourfold:>11.1f}  MB/s")
        if kind == "prose":
            slowest = min(slowest, once, fourfold)
    print(f"slowest prose: {slowest:.1f} MB/s")
    return int(slowest < asked.least)


if __name__ == "__main__":
    sys.exit(main())
