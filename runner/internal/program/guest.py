"""What a supervisor with all rights of root does for the isolation of a machine that is a sandbox as a whole."""

import fcntl
import os
import stat
import struct

CLONE_NEWNS, CLONE_NEWNET = 0x00020000, 0x40000000
MS_PRIVATE, MS_COVER = 1 << 14 | 1 << 18, 1 | 2 | 4 | 8  # recursive; read-only, no set-uid, no devices, nothing to execute
GETFLAGS, SETFLAGS, UP = 0x8913, 0x8914, 1  # of a network interface


class Guest:
    def __init__(self, system):
        self.libc = system.libc
        self.system = system

    def confine(self, c):
        if c["network"] not in ("none", "full"):
            raise Refused("unsupported", "network %s" % c["network"][:40])
        for name in c["hide"]:
            if os.path.lexists(name):
                self.hide(name)
        if c["network"] == "none":
            self.cut_off()
        for name in (c["temp"], c["home"], c["workdir"]):
            if not os.path.isdir(name):
                os.makedirs(name)
                os.chown(name, c["uid"], c["gid"])

    def unshare(self, flags):
        """Moves this process, and with it all that it will start, into new namespaces."""
        if hasattr(os, "unshare"):  # from Python 3.12 on
            try:
                os.unshare(flags)
                return True
            except OSError:
                return False
        return self.libc is not None and self.libc.unshare(flags) == 0

    def hide(self, name):
        """Takes a directory away from user code: it is covered, and what is beneath is for root only."""
        try:
            os.chmod(name, 0o700)
        except OSError:
            pass
        if self.libc is not None and self.unshare(CLONE_NEWNS):
            self.libc.mount(b"none", b"/", None, MS_PRIVATE, None)
            if self.libc.mount(b"tmpfs", os.fsencode(name), b"tmpfs", MS_COVER, b"mode=700,size=4k") == 0:
                return
        s = os.stat(name)
        if s.st_uid != 0 or stat.S_IMODE(s.st_mode) & 0o077:
            raise Refused("unsupported", "%s can neither be covered nor closed for user code" % name)

    def cut_off(self):
        """Gives this process a network that leads nowhere. The sockets that it has stay in the old one."""
        before = os.readlink("/proc/self/ns/net")
        if not self.unshare(CLONE_NEWNET) or os.readlink("/proc/self/ns/net") == before:
            raise Refused("unsupported", "no network namespace can be made: it needs CAP_SYS_ADMIN, and Python 3.12 or ctypes")
        s = _socket.socket(_socket.AF_INET, _socket.SOCK_DGRAM | _socket.SOCK_CLOEXEC)
        try:
            flags = struct.unpack("16sh14x", fcntl.ioctl(s.fileno(), GETFLAGS, struct.pack("16sh14x", b"lo", 0)))[1]
            fcntl.ioctl(s.fileno(), SETFLAGS, struct.pack("16sh14x", b"lo", flags | UP))
        except OSError as e:
            raise Refused("unsupported", "the loopback interface does not come up: " + e.strerror) from None
        finally:
            s.close()
