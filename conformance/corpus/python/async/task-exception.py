# An exception in a task comes out where it is awaited.
import asyncio


async def fail():
    raise LookupError("in a task")


await asyncio.create_task(fail())
