# The value of an awaited expression.
import asyncio

await asyncio.sleep(0, "done")
