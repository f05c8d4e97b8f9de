import asyncio
import threading
import time


def tick():
    with open({{name}}, "a") as f:
        f.write("x")


def tick_in_thread():
    while True:
        tick()
        time.sleep(0.01)


async def tick_as_task():
    while True:
        tick()
        await asyncio.sleep(0.01)


try:
    threading.Thread(target=tick_in_thread).start()
except RuntimeError:  # there are no threads here
    task = asyncio.ensure_future(tick_as_task())
print("left")
