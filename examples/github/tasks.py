"""Writes pull requests from GitHub on a board."""

from pathlib import Path

from weir.worker import Commands, Context

app = Commands()
BOARD = Path("board.txt")


@app.command("Review.Consider")
def consider(action: str, title: str, number: int, context: Context) -> None:
    """Write the pull request on the board. The headers in `context` have GitHub's own id of the delivery."""
    if action not in ("opened", "reopened"):
        return
    with BOARD.open("a") as board:
        board.write(f"#{number} {title}\n")
    print(f"#{number} is on the board", flush=True)
