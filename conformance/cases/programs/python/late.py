import asyncio
import threading
import time


def speak():
    time.sleep({{ms}} / 1000)
    print("late", flush=True)


async def speak_as_task():
    await asyncio.sleep({{ms}} / 1000)
    print("late", flush=True)


try:
    threading.Thread(target=speak, daemon=True).start()
except RuntimeError:  # there are no threads here
    task = asyncio.ensure_future(speak_as_task())
print("left")
