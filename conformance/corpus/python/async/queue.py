# A producer and a consumer.
import asyncio

q = asyncio.Queue()


async def produce():
    for i in range(3):
        await q.put(i)
    await q.put(None)


async def consume():
    got = []
    while (x := await q.get()) is not None:
        got.append(x)
    return got


_, got = await asyncio.gather(produce(), consume())
got
