for await (const chunk of process.stdin) void process.stdout.write(chunk);
