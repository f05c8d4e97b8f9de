"""The prelude of attempts. An attempt prints one word: "ok" if it succeeded, otherwise the name of
the error, or its own word."""

import ctypes
import errno
import fcntl
import os
import platform
import resource
import signal
import socket
import struct
import subprocess
import sys
import threading
import time

libc = ctypes.CDLL(None, use_errno=True)

# Numbers of system calls; from 424 on they are the same everywhere.
NUMBERS = {
    "x86_64": {
        "acct": 163, "add_key": 248, "adjtimex": 159, "bpf": 321, "clock_adjtime": 305,
        "clock_settime": 227, "clone": 56, "delete_module": 176, "fanotify_init": 300,
        "finit_module": 313, "get_mempolicy": 239, "init_module": 175, "io_setup": 206,
        "ioprio_set": 251, "kcmp": 312, "kexec_load": 246, "keyctl": 250, "mbind": 237,
        "memfd_create": 319, "migrate_pages": 256, "mmap": 9, "modify_ldt": 154, "move_pages": 279,
        "name_to_handle_at": 303, "open_by_handle_at": 304, "perf_event_open": 298,
        "personality": 135, "pivot_root": 155, "prctl": 157, "process_vm_readv": 310, "process_vm_writev": 311,
        "ptrace": 101, "quotactl": 179, "reboot": 169, "remap_file_pages": 216, "request_key": 249,
        "seccomp": 317, "set_mempolicy": 238, "setdomainname": 171, "sethostname": 170, "setns": 308,
        "setsockopt": 54, "sync": 162, "syncfs": 306,
        "settimeofday": 164, "shmget": 29, "socket": 41, "swapoff": 168, "swapon": 167,
        "sysfs": 139, "syslog": 103, "umount2": 166, "unshare": 272, "userfaultfd": 323,
        "vhangup": 153, "vmsplice": 278,
    },
    "aarch64": {
        "acct": 89, "add_key": 217, "adjtimex": 171, "bpf": 280, "clock_adjtime": 266,
        "clock_settime": 112, "clone": 220, "delete_module": 106, "fanotify_init": 262,
        "finit_module": 273, "get_mempolicy": 236, "init_module": 105, "io_setup": 0,
        "ioprio_set": 30, "kcmp": 272, "kexec_load": 104, "keyctl": 219, "mbind": 235,
        "memfd_create": 279, "migrate_pages": 238, "mmap": 222, "modify_ldt": -1, "move_pages": 239,
        "name_to_handle_at": 264, "open_by_handle_at": 265, "perf_event_open": 241,
        "personality": 92, "pivot_root": 41, "prctl": 167, "process_vm_readv": 270, "process_vm_writev": 271,
        "ptrace": 117, "quotactl": 60, "reboot": 142, "remap_file_pages": 234, "request_key": 218,
        "seccomp": 277, "set_mempolicy": 237, "setsockopt": 208, "sync": 81, "syncfs": 267, "setdomainname": 162, "sethostname": 161, "setns": 268,
        "settimeofday": 170, "shmget": 194, "socket": 198, "swapoff": 225, "swapon": 224,
        "sysfs": -1, "syslog": 116, "umount2": 39, "unshare": 97, "userfaultfd": 282, "vhangup": 58,
        "vmsplice": 75,
    },
}[platform.machine()]
NUMBERS.update(
    io_uring_setup=425, io_uring_enter=426, io_uring_register=427, open_tree=428, move_mount=429, fsopen=430, fsconfig=431, fsmount=432,
    fspick=433, clone3=435, pidfd_getfd=438, process_madvise=440, mount_setattr=442, memfd_secret=447, process_mrelease=448,
    set_mempolicy_home_node=450, cachestat=451, map_shadow_stack=453, statmount=457, listmount=458,
)  # fmt: skip


def system(name, *args):
    """Makes a system call by its name."""
    return checked(libc.syscall(NUMBERS[name], *(ctypes.c_long(a) if isinstance(a, int) else a for a in args)))


def checked(result):
    if result == -1:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result


def mount(source, target, kind, flags=0, data=None):
    checked(libc.mount(source, target, kind, flags, data))


def program():
    """Returns what a filter is attached by: one that allows everything."""
    one = ctypes.create_string_buffer(struct.pack("HBBI", 6, 0, 0, 0x7FFF0000))
    keep.append(one)
    return struct.pack("HP", 1, ctypes.addressof(one))


keep = []


class Said(Exception):
    pass


def say(what):
    """Ends the attempt with its own word."""
    raise Said(str(what))


def find(directory, text):
    """Reports whether a process has text in its command line."""
    for pid in filter(str.isdigit, os.listdir(directory)):
        try:
            with open("%s/%s/cmdline" % (directory, pid), "rb") as f:
                if text in f.read():
                    return True
        except OSError:
            pass
    return False


def attempt(code, where):
    try:
        exec(code, dict(globals(), **where))
        word = "ok"
    except Said as e:
        word = str(e)
    except OSError as e:
        word = errno.errorcode.get(e.errno, type(e).__name__)
    except Exception as e:
        word = type(e).__name__ + ": " + str(e)
    os.write(1, word.encode() + b"\n")
    os._exit(0)


def attempts(codes, where):
    if len(codes) == 1:
        attempt(codes[0], where)
    for code in codes:
        pid = os.fork()
        if pid == 0:
            attempt(code, where)
        status = os.waitpid(pid, 0)[1]
        if status != 0:
            os.write(1, b"status %d\n" % status)
