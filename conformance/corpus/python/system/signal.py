# A signal handler can be set.
import signal

print(callable(signal.getsignal(signal.SIGINT)))
