import asyncio

print("begin", flush=True)
await asyncio.sleep({{ms}} / 1000)
print("end")
