# A wait that takes too long.
import asyncio

try:
    await asyncio.wait_for(asyncio.sleep(10), 0.05)
except asyncio.TimeoutError:
    print("too long")
