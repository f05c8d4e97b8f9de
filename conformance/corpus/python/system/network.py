# Without a network nothing is reached.
import socket

try:
    socket.create_connection(("127.0.0.1", 9), timeout=2)
    print("reached")
except OSError:
    print("refused")
