"""What the supervisor does with all its rights before there is user code. It travels over the connection."""

import os
import stat


def setup(sup, c, m):
    """Makes what user code must not be able to make, and returns the name of its user."""
    for name in get(m, "aliases", list, []):
        try:
            alias(text(name), c["workdir"])
        except OSError as e:
            raise Refused("unsupported", "alias %s: %s: %s" % (text(name), e.filename, e.strerror)) from None
    return account(sup, c, sup.server is not None or get(m, "own", bool, False), text(get(m, "names", bytes, b"")))


def alias(name, workdir):
    """Makes name a link to the working directory, below directories that only root can write to. What is there stays."""
    parent = "/"
    for element in name.split("/")[1:-1]:
        parent = os.path.join(parent, element)
        try:
            os.mkdir(parent)
            os.chmod(parent, 0o755)
        except FileExistsError:
            pass
        s = os.lstat(parent)
        if not stat.S_ISDIR(s.st_mode) or s.st_uid != 0 or s.st_mode & 0o022 or not s.st_mode & 0o001:
            raise Refused("unsupported", "alias %s: %s is there, and is no directory that only root can write to and all can enter" % (name, parent))
    try:
        os.symlink(workdir, name)
    except FileExistsError:
        s = os.lstat(name)
        if not stat.S_ISLNK(s.st_mode) or s.st_uid != 0 or os.readlink(name) != workdir:  # of an earlier start of this machine
            raise Refused("unsupported", "alias %s: the image has %s of that name" % (name, kind(s.st_mode))) from None


def kind(mode):
    return "a directory" if stat.S_ISDIR(mode) else "a link" if stat.S_ISLNK(mode) else "a file"
