await (async () => {
  const block = Buffer.alloc(65536, "x");
  const listener = require("net").createServer({ allowHalfOpen: true }, (conn) => {
    conn.on("error", () => {}); // the other side has gone
    let head = Buffer.alloc(0);
    const begin = (data) => {
      head = Buffer.concat([head, data]);
      const end = head.indexOf(10);
      if (end < 0) return;
      conn.off("data", begin);
      const rest = head.subarray(end + 1);
      switch (head.subarray(0, end).toString()) {
        case "echo":
          conn.write(rest);
          conn.on("data", (data) => conn.write(data) || conn.pause()).on("drain", () => conn.resume());
          conn.on("end", () => conn.end("end"));
          break;
        case "flood": {
          const more = () => { while (conn.write(block)); };
          conn.on("drain", more).on("end", () => conn.destroy());
          more();
          break;
        }
        case "half":
          conn.end("half");
          conn.resume();
          break;
        case "reset":
          conn.resetAndDestroy();
          break;
        case "mute":
          conn.pause();
          break;
        default:
          conn.destroy();
      }
    };
    conn.on("data", begin);
  });
  await new Promise((resolve) => listener.listen(0, {{address}}, resolve));
  listener.unref();
  console.log(listener.address().port);
})();
