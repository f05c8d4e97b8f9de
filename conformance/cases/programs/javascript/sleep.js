console.log({{text}});
Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 3600000);
