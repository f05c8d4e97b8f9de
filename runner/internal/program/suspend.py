"""A suspended sandbox: all processes of the user are stopped. The supervisor is not, and so the clocks that end the sandbox go on."""

import os
import time

POLITE = 4  # looks at which nothing is stopped before its parent: a shell that sees its child stop believes that its user wants that
CLEAN = 2  # looks in a row that find nothing running: what is started behind the back of one is seen by the next
STOP_SECONDS = 5  # for everything to stop
GUARD_SECONDS = 0.1, 5  # between looks while all is stopped, first and last


class Suspended:
    """Stops what runs, and looks after it until the sandbox is used again."""

    def __init__(self, sup, task):
        self.sup, self.task = sup, task
        self.stopped = {}  # what was running, parents first, and when each of it was started
        self.dead = set()
        self.looks, self.clean, self.pause = 0, 0, GUARD_SECONDS[0]
        self.end = time.monotonic() + STOP_SECONDS
        self.look()

    def look(self):
        table = Table()
        running = {pid for pid in table.alive(self.sup.user_processes(table)) if not self.still(pid)}
        self.looks += 1
        for pid in running:
            if self.looks > POLITE or table.rows[pid][0] not in running:
                self.stopped[pid] = started(pid)
                kill(pid, _signal.SIGSTOP)
        # One that has died since the last look may have started another.
        self.clean = 0 if running or table.missed or table.dead - self.dead else self.clean + 1
        self.dead = table.dead
        if self.clean < CLEAN:
            if self.task is not None and time.monotonic() > self.end:
                task, self.task = self.task, None
                self.sup.wake_up()
                task.fail("unavailable", "code could not be stopped within %d seconds" % STOP_SECONDS)
                return
            pause = 0.001
        else:
            if self.task is not None:
                self.task.reply(DONE, {})
                self.task = None
            # Some that continue each other in turns may have been missed.
            pause, self.pause = self.pause, min(2 * self.pause, GUARD_SECONDS[1])
        self.timer = self.sup.after(pause, self.look)

    def still(self, pid):
        """Reports whether a process lives and executes nothing. One that waits in the kernel stops before it does again."""
        found = states(pid)
        return bool(found) and (found <= {b"T", b"t"} or pid in self.stopped and found <= {b"T", b"t", b"D"})

    def over(self):
        """Lets go on what was stopped here, and nothing else: children first, so that no parent sees that they were stopped."""
        self.sup.cancel(self.timer)
        if self.task is not None:
            self.task.fail("busy", "the sandbox was used while it was being suspended")
        for pid in reversed(self.stopped):
            if started(pid) == self.stopped[pid]:
                kill(pid, _signal.SIGCONT)
