"""File operations, as the supervisor sees them: a process with the user's rights does them."""

MAX_FILE_STREAMS = 16  # of a holder, under way at once


class Helper(Peer):
    """The process of files.py. It is started when it is needed, and again if it has died."""

    def __init__(self, sup):
        self.sup, self.pid, self.ids, self.tasks, self.mark = sup, 0, 0, {}, 0
        self.killing = False  # it was told to kill, and has not answered

    def start(self):
        if self.pid:
            return
        mine, theirs = socketpair()
        config, system, parts, home = self.sup.config, self.sup.system, self.sup.parts, self.sup.env["HOME"]

        def job():
            become_helper(config, system, theirs)
            names = dict(globals(), PARTS=parts, CONFIG=config, HOME=home, __name__="files")
            exec(part_of(parts, "files.py"), names)

        try:
            self.pid = fork(self.sup, job)
        except Refused:
            close(mine, theirs)
            raise
        close(theirs)
        self.sup.processes[self.pid] = self
        super().__init__(self.sup, mine, mine)

    def open(self, task, fields):
        """Starts an operation. task is called back with what comes of it."""
        self.start()
        self.ids = self.ids % 0xFFFFFFFF + 1
        self.tasks[self.ids] = task
        self.send_map(OPEN, self.ids, fields)
        return self.ids

    def request(self, holder, stream, op, m):
        if op not in ("read", "write", "stat", "list", "mkdir", "rename", "remove"):
            raise Refused("unsupported", "operation %s: not known" % op[:40])
        self.start()
        FileTask(self, holder, stream, m)

    def scan(self, run, then):
        """Takes note of the files that there are before a run."""

        def done(kind, payload):
            if kind == FAIL:
                run.fail("internal", "the files could not be looked at before the run")
            else:
                run.scan = key
                then()

        key = self.open(Ask(done), {"op": "scan"})

    def changes(self, run, fields):
        """Tells the holder of a run which files have changed, and then how the run ended."""

        def done(kind, payload):
            if kind == DATA:
                run.holder.send(DATA, run.stream, payload, 0, ENTRIES)
            else:
                fields["artifacts"] = kind == DONE
                run.end(fields)

        try:
            self.open(Ask(done), {"op": "changes", "scan": run.scan})
        except Refused:
            done(FAIL, b"")

    def forget(self, task):
        """Removes what processes of the user, which are all dead, have shared, and answers a request with that."""

        def done(kind, payload):
            if not task.holder.closed and task.holder.streams.get(task.stream) is task:
                task.holder.send(kind, task.stream, payload)
                task.holder.streams.pop(task.stream, None)

        try:
            self.open(Ask(done), {"op": "forget"})
        except Refused as e:
            task.fail(*e.args)

    def kill_all(self):
        """Kills every process of the user at once, as the kernel does it for one who may signal nobody else."""

        def done(kind, payload):
            self.killing = False

        if self.killing:
            return
        self.killing = True
        try:
            self.open(Ask(done), {"op": "kill"})
        except Refused:
            self.killing = False  # tried again

    def receive(self, kind, flags, channel, stream, payload):
        task = self.tasks.get(stream)
        if kind in (DONE, FAIL):
            self.tasks.pop(stream, None)
        if task is not None:
            task.answer(kind, flags, channel, payload)

    def lost(self):
        self.shut()
        self.kill()

    def kill(self):
        kill(self.pid, _signal.SIGKILL)

    def family(self, table):
        return {self.pid} & table.rows.keys()

    def exited(self, code, usage):
        self.shut()
        self.pid = 0
        tasks, self.tasks = self.tasks, {}
        for task in tasks.values():
            task.answer(FAIL, 0, 0, pack({"kind": "internal", "message": "the file helper has died"}))


class Ask:
    """A question of the supervisor itself."""

    def __init__(self, done):
        self.done = done

    def answer(self, kind, flags, channel, payload):
        self.done(kind, payload)


class FileTask(Task):
    """An operation that a holder has asked for."""

    def __init__(self, helper, holder, stream, m):
        super().__init__(holder, stream)
        self.helper, self.request, self.id, self.early = helper, m, 0, []
        if len(holder.files) < MAX_FILE_STREAMS:
            self.begin()
        else:
            holder.waiting.append(self)

    def begin(self):
        self.holder.files.add(self)
        self.id = self.helper.open(self, self.request)
        for f in self.early:
            self.tell(*f)
        self.early = []

    def tell(self, kind, payload=b"", flags=0):
        if self.id:
            self.helper.send(kind, self.id, payload, flags)
        else:
            self.early.append((kind, payload, flags))

    def data(self, payload, end):
        self.helper.sup.used()
        self.tell(DATA, payload, END if end else 0)

    def granted(self, n):
        if n:
            self.tell(CREDIT, U32.pack(n))

    def stop(self, reason):
        self.tell(STOP)

    def orphaned(self):
        if self.id:
            self.tell(STOP)
        elif self in self.holder.waiting:
            self.holder.waiting.remove(self)

    def answer(self, kind, flags, channel, payload):
        holder = self.holder
        self.helper.sup.used()
        if kind == CREDIT:
            self.granted_in += U32.unpack(payload)[0]
        if not holder.closed and holder.streams.get(self.stream) is self:
            holder.send(kind, self.stream, payload, flags, channel)
        if kind in (DONE, FAIL):
            holder.streams.pop(self.stream, None)
            holder.files.discard(self)
            while holder.waiting and len(holder.files) < MAX_FILE_STREAMS:
                holder.waiting.popleft().begin()
