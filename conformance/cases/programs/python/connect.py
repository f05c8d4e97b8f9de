import socket
import struct

token = {{token}}


def split(address):
    host, port = address.rsplit(":", 1)
    return host.strip("[]"), int(port)


def by_socket(address):
    with socket.create_connection(split(address), timeout=1) as c:
        c.sendall(token.encode() + b"\n")
        return c.recv(16)


def by_fetch(address):
    from pyodide.ffi import run_sync
    from pyodide.http import pyfetch

    return run_sync(pyfetch("http://%s/%s" % (address, token)))


def by_datagram(address):
    host, port = split(address)
    head = struct.pack(">6H", 1, 0x100, 1, 0, 0, 0)
    name = struct.pack("B", len(token)) + token.encode() + b"\x07invalid\x00"
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM) as c:
        c.settimeout(1)
        c.sendto(head + name + struct.pack(">2H", 1, 1), (host, port))
        return c.recv(512)


def attempt(way, address):
    try:
        if way(address):
            print("reached", address, flush=True)
    except Exception:
        pass


for address in {{tcp}}.split():
    attempt(by_socket, address)
    attempt(by_fetch, address)
for address in {{udp}}.split():
    attempt(by_datagram, address)
print("done")
