"""Prints how many bookings there are and what is left."""

import sqlite3

with sqlite3.connect("ledger.db") as database:
    count, left = database.execute("SELECT count(*), coalesce(sum(amount), 0) FROM bookings").fetchone()
print(f"{count} bookings, {left} left")
