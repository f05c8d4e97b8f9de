import socket
import struct
import threading

address = {{address}}
listener = socket.socket(socket.AF_INET6 if ":" in address else socket.AF_INET)
listener.bind((address, 0))
listener.listen(100)


def serve(conn):
    with conn, conn.makefile("rb") as f:
        what = f.readline().strip()
        if what == b"echo":
            while data := f.read1(65536):
                conn.sendall(data)
            conn.sendall(b"end")
        elif what == b"flood":
            while True:
                conn.sendall(b"x" * 65536)
        elif what == b"half":
            conn.sendall(b"half")
            conn.shutdown(socket.SHUT_WR)
            while f.read1(65536):
                pass
        elif what == b"reset":
            conn.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        elif what == b"mute":
            threading.Event().wait()


def serve_quietly(conn):
    try:
        serve(conn)
    except OSError:
        pass  # the other side has gone


def accept(listener):
    while True:
        threading.Thread(target=serve_quietly, args=(listener.accept()[0],), daemon=True).start()


threading.Thread(target=accept, args=(listener,), daemon=True).start()
print(listener.getsockname()[1])
