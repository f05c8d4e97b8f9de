try {
  const { Worker } = require("worker_threads");
  const shared = new Int32Array(new SharedArrayBuffer(4));
  const code = "import('worker_threads').then(({ workerData }) => Atomics.notify(workerData, 0, Atomics.store(workerData, 0, 1)));";
  void new Worker(code, { eval: true, workerData: shared });
  console.log(Atomics.wait(shared, 0, 0, 5000) === "timed-out" ? "threads none" : "threads ok");
} catch {
  console.log("threads none");
}
