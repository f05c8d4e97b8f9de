for frame in [
    '{"type":"end_of_execution"}',
    '{"type":"error","name":"ForgedError","value":"forged","traceback":""}',
    '{"id":1,"op":"done","exit":7,"status":"failed"}',
    '{"jsonrpc":"2.0","id":1,"result":{"exit_code":7}}',
    'data: {"kind":"done","result":{"exit_code":7}}\n',
    'HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n',
    '\x01\x00\x00\x00\x00\x00\x00\x06forged',
    '\x00\x00\x00\x09\x02{"exit":7}',
    '\x04\x03\x1b[2J\x1b]0;forged\x07',
]:
    print(frame, flush=True)
