"""Clicks that a retrieval example learns at once."""

from pathlib import Path

NUM_ITEMS = 20


def write_circle(folder: Path) -> list[str]:
    """Writes clicks that go round in a circle of items, and their categories.

    Returns:
        Options of the examples that read them.
    """
    rows = ["user,item,time"]
    for user in range(120):
        for time in range(6):
            rows.append(f"u{user},item-{(user + time) % NUM_ITEMS},{time}")
    (folder / "clicks.csv").write_text("\n".join(rows) + "\n")
    rows = ["item,category"]
    rows += [f"item-{item},{'ab'[item % 2]}" for item in range(NUM_ITEMS)]
    (folder / "items.csv").write_text("\n".join(rows) + "\n")
    return [
        *("--quick", "--data", str(folder / "clicks.csv")),
        *("--items", str(folder / "items.csv")),
    ]
