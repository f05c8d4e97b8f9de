# await at the top of a cell.
import asyncio


async def double(x):
    await asyncio.sleep(0.01)
    return x * 2


print(await asyncio.gather(*(double(i) for i in range(4))))
