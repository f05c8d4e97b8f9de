import asyncio

print({{text}}, flush=True)
await asyncio.sleep(3600)
