"""Drives kernels with Debian's nbclient and jupyter_kernel_test, over the gateway client of jupyter_server.

That client sends no key when it opens a WebSocket, so this program makes it send one.
"""
import functools
import os
import sys
import unittest

import jupyter_kernel_test
import nbformat
import websocket
from jupyter_client.utils import run_sync
from jupyter_server.gateway.managers import GatewayKernelClient, GatewayKernelManager
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

websocket.create_connection = functools.partial(websocket.create_connection, header={"Authorization": "token " + os.environ["JUPYTER_GATEWAY_AUTH_TOKEN"]})


def execute(*cells):
    nb = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(c) for c in cells])
    return NotebookClient(nb, kernel_name="python3", kernel_manager_class=GatewayKernelManager, timeout=240).execute()


class TestNotebook(unittest.TestCase):
    def test_runs(self):
        nb = execute("x = 6\nprint('hello')", "x * 7", "from IPython.display import HTML\ndisplay(HTML('<b>x</b>'))")
        self.assertEqual(nb.cells[0].outputs[0].text, "hello\n")
        self.assertEqual(nb.cells[1].outputs[0].data["text/plain"], "42")
        self.assertEqual(nb.cells[1].outputs[0].output_type, "execute_result")
        self.assertEqual(nb.cells[2].outputs[0].data["text/html"], "<b>x</b>")
        self.assertEqual([c.execution_count for c in nb.cells], [1, 2, 3])
        self.assertEqual(nb.metadata.language_info.name, "python")
        nbformat.validate(nb)

    def test_fails(self):
        with self.assertRaises(CellExecutionError) as caught:
            execute("1/0", "print('never')")
        self.assertEqual(caught.exception.ename, "ZeroDivisionError")


class Client(GatewayKernelClient):
    """Waits, as those clients do which the tests of kernels expect."""

    start_channels = run_sync(GatewayKernelClient.start_channels)
    get_shell_msg = run_sync(GatewayKernelClient._async_get_shell_msg)
    get_iopub_msg = run_sync(GatewayKernelClient._async_get_iopub_msg)


def start_new_kernel(kernel_name):
    manager = GatewayKernelManager(kernel_name=kernel_name, client_factory=Client)
    run_sync(manager.start_kernel)(kernel_name=kernel_name)
    manager.shutdown_kernel = run_sync(manager.shutdown_kernel)
    client = manager.client()
    client.start_channels()
    return manager, client


jupyter_kernel_test.start_new_kernel = start_new_kernel


class TestKernel(jupyter_kernel_test.KernelTests):
    kernel_name = "python3"
    language_name = "python"
    file_extension = ".py"
    code_hello_world = "print('hello, world')"
    code_stderr = "import sys\nprint('test', file=sys.stderr)"
    completion_samples = [{"text": "zi", "matches": {"zip"}}]
    complete_code_samples = ["1", "print('hello, world')", "def f(x):\n  return x*2\n"]
    incomplete_code_samples = ["print('''hello", "def f(x):\n  x*2"]
    code_generate_error = "raise ValueError('no')"
    code_execute_result = [{"code": "1+2+3", "result": "6"}, {"code": "[n*n for n in range(1, 4)]", "result": "[1, 4, 9]"}]
    code_display_data = [{"code": "from IPython.display import HTML, display\ndisplay(HTML('<b>test</b>'))", "mime": "text/html"}]
    code_history_pattern = "1?2*"
    supported_history_operations = ("tail", "range", "search")
    code_inspect_sample = "zip"


if __name__ == "__main__":
    ended = unittest.main(argv=[sys.argv[0], "-v"], exit=False).result
    sys.stderr.flush()
    os._exit(not ended.wasSuccessful())  # nbclient complains at the exit of each of its kernels
