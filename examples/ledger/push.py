"""Pushes bookings of many customers: 100 comes in, then ten times 10 goes out."""

import asyncio
import os

from weir import AsyncWeir

CUSTOMERS = 20


async def main() -> None:
    async with AsyncWeir(os.environ["WEIR_URL"], token=os.environ["WEIR_TOKEN"]) as weir:
        for amount in (100, *[-10] * 10):
            # Customers may overtake each other; bookings of one customer may not. The key says so.
            await asyncio.gather(
                *(
                    weir.push("bookings", {"customer": f"c{n}", "amount": amount}, key=f"c{n}")
                    for n in range(CUSTOMERS)
                )
            )
    print(f"{CUSTOMERS * 11} bookings")


asyncio.run(main())
