"""Runs one Jupyter kernel of Python, as E2B's code interpreter has it: requests are lines of standard input, answers lines of standard output."""

import asyncio
import json
import subprocess
import sys

from jupyter_client.ioloop import AsyncIOLoopKernelManager


def say(**answer):
    sys.stdout.write(json.dumps(answer) + "\n")
    sys.stdout.flush()


class Kernel:
    """An execution has ended when its reply and the kernel's word that it is idle are there. Only one is heard of at a time."""

    def __init__(self):
        self.manager = AsyncIOLoopKernelManager(kernel_name="python3")
        self.current = None
        self.number = 0
        self.replied = self.idle = False

    def say(self, **answer):
        say(number=self.number, **answer)

    async def start(self):
        # Or the kernel would have our own standard output, on which code could write answers.
        await self.manager.start_kernel(stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.client = self.manager.client()
        self.client.start_channels()
        await self.client.wait_for_ready(timeout=120)
        self.manager.add_restart_callback(self.restarted, "restart")
        heard = (self.client.get_iopub_msg, self.published), (self.client.get_shell_msg, self.answered)
        self.tasks = [asyncio.ensure_future(self.hear(get, take)) for get, take in heard]

    def restarted(self):
        if self.current:
            self.current = None
            self.say(kind="restarted")

    async def hear(self, get, take):
        while True:
            message = await get(timeout=None)
            if self.current and message["parent_header"].get("msg_id") == self.current:
                take(message["header"]["msg_type"], message["content"])
                if self.replied and self.idle:
                    self.current = None
                    self.say(kind="end")

    def published(self, kind, content):
        if kind == "execute_input":
            self.say(kind="started", count=content["execution_count"])
        elif kind == "stream":
            self.say(kind=content["name"], text=content["text"])
        elif kind in ("display_data", "execute_result"):
            self.say(kind="output", main=kind == "execute_result", data=content["data"])
        elif kind == "error":
            self.say(kind="error", name=content["ename"], value=content["evalue"], traceback="".join(content["traceback"]))
        elif kind == "status" and content["execution_state"] == "idle":
            self.idle = True

    def answered(self, _, content):
        # What the kernel throws away after an interrupt has a status that E2B's service does not know, so that it waits for ever.
        self.replied = content["status"] != "aborted"

    async def ask(self, request):
        if request["do"] == "execute":
            self.replied = self.idle = False
            self.number = request["number"]
            self.current = self.client.execute(request["code"], allow_stdin=False)
        elif request["do"] == "interrupt":
            self.current = None
            await self.manager.interrupt_kernel()


async def main():
    kernel = Kernel()
    await kernel.start()
    reader = asyncio.StreamReader(limit=1 << 26)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    say(kind="ready")
    while line := await reader.readline():
        await kernel.ask(json.loads(line))
    await kernel.manager.shutdown_kernel(now=True)


asyncio.run(main())
