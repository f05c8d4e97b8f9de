import asyncio


async def speak():
    await asyncio.sleep({{ms}} / 1000)
    print("late")


task = asyncio.create_task(speak())
await asyncio.sleep(0)
print("left")
