import asyncio

await asyncio.sleep(0.01)
print("awaited")
