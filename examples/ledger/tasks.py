"""Books amounts in a SQLite database: in order for each customer, and each booking once."""

import sqlite3

from weir.worker import Commands, Context

app = Commands()
TABLES = """
CREATE TABLE IF NOT EXISTS bookings (id TEXT PRIMARY KEY, customer TEXT, amount INTEGER, balance INTEGER);
"""


@app.command("Ledger.Book")
def book(customer: str, amount: int, context: Context) -> None:
    """Book an amount once. A message may be delivered twice, so its id is the key of the booking."""
    with sqlite3.connect("ledger.db", timeout=10) as database:
        database.executescript(TABLES)
        database.execute("BEGIN IMMEDIATE")
        known = database.execute("SELECT 1 FROM bookings WHERE id = ?", (context.message_id,)).fetchone()
        if known is None:
            balance = balance_of(database, customer) + amount
            if balance < 0:
                # In the right order this never happens: money comes in before it goes out.
                raise RuntimeError(f"{customer} would have {balance}")
            row = (context.message_id, customer, amount, balance)
            database.execute("INSERT INTO bookings VALUES (?, ?, ?, ?)", row)


def balance_of(database: sqlite3.Connection, customer: str) -> int:
    query = "SELECT coalesce(sum(amount), 0) FROM bookings WHERE customer = ?"
    return int(database.execute(query, (customer,)).fetchone()[0])
