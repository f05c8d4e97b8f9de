import multiprocessing
import os
import time
from concurrent.futures import ThreadPoolExecutor


def work():
    time.sleep({{ms}} / 1000)
    print("work")


def child():
    time.sleep({{ms}} / 1000)
    os.write(1, b"child\n")


pool = ThreadPoolExecutor(2)  # stays, and is idle when the work is done
future = pool.submit(work)
future.add_done_callback(lambda future: print("callback"))
processes = multiprocessing.get_context("fork")
processes.Process(target=child).start()
processes.Process(target=time.sleep, args=[3600], daemon=True).start()
