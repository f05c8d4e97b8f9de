import asyncio
import threading
import time


def fail():
    time.sleep({{ms}} / 1000)
    raise ValueError("late error")


async def fail_as_task():
    await asyncio.sleep({{ms}} / 1000)
    raise ValueError("late error")


try:
    threading.Thread(target=fail).start()
except RuntimeError:  # there are no threads here
    task = asyncio.ensure_future(fail_as_task())
print("left")
