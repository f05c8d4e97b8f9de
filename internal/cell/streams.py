# The files that a cell writes to and reads from. It follows cell.py in one program.


_Text = type("TextIOWrapper", (_TextIOWrapper,), {})


def _sieve(stray):
    """Returns a class of text files that drop what comes from a caller that is stray.

    That is done here and not further down: there, its text would already be mixed with that of others.
    """
    write, flush, buffer = _TextIOWrapper.write, _TextIOWrapper.flush, _TextIOWrapper.buffer

    class Bytes:
        def __init__(self, file):
            self._file = file

        def __getattr__(self, name):
            return getattr(self._file, name)

        def write(self, data):
            return memoryview(data).nbytes if stray() else self._file.write(data)

        def writelines(self, lines):
            for line in lines:
                self.write(line)

        def flush(self):
            if not stray():
                self._file.flush()

    class TextIOWrapper(_TextIOWrapper):
        def write(self, text):
            return len(text) if stray() else write(self, text)

        def flush(self):
            if not stray():
                flush(self)

        @property
        def buffer(self):
            return Bytes(buffer.__get__(self))

    return TextIOWrapper


class _Source(io.RawIOBase):
    def __init__(self, host):
        self._host = host
        self.name, self.mode = "<stdin>", "rb"

    def readable(self):
        return True

    def readinto(self, b):
        data = self._host.read(len(b))
        b[: len(data)] = data
        return len(data)

    def fileno(self):
        try:
            f = self._host.fileno
        except AttributeError:
            raise io.UnsupportedOperation("fileno") from None
        return f("stdin")
