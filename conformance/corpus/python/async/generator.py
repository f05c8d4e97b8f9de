# Asynchronous loops.
async def ticks():
    for i in range(3):
        yield i


[i async for i in ticks()]
