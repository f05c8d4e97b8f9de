// The clocks of the trusted thread: timers that can be long, and the steps by which a run is stopped.

const MAX = 2 ** 31 - 1; // ms that a timer of the platform holds

// after calls f in that many milliseconds, unless stop is called before.
export function after(ms, f) {
  const timer = {};
  const arm = (left) => {
    timer.id = setTimeout(() => (left > MAX ? arm(left - MAX) : f()), Math.min(left, MAX));
  };
  timer.stop = () => clearTimeout(timer.id);
  arm(ms);
  return timer;
}

// In ms: after the message about an interrupt until the signal; after that until both are repeated, and how often; and after all that
// until the code counts as stuck.
const BUSY = 5;
const PATIENCE = 300;
const AGAIN = 5;
const GRACE = 2000;

// Run is the run in progress.
export class Run {
  #receiver;
  #on;
  #timer = null;
  #stopping = false;
  #signalled = false;
  #deadline = 0;

  // on has functions: tell(again) sends the worker a message about an interrupt, late() and stuck() say so to the Go program.
  constructor(id, wall, receiver, on) {
    this.id = id;
    this.wall = wall;
    this.#receiver = receiver;
    this.#on = on;
  }

  // started starts the wall clock.
  started() {
    if (this.#stopping || this.wall < 0) return;
    this.#timer = after(this.wall, () => {
      this.#on.late();
      this.interrupt();
    });
  }

  // ended stops all clocks.
  ended() {
    this.#timer?.stop();
  }

  // interrupt asks the code to stop.
  //
  // Code that waits is told by a message, which its event loop gets. Code that computes is told by a signal. Both at once would do harm: a
  // signal that arrives in the event loop itself makes it lose a step of a task.
  interrupt() {
    if (this.#stopping) return;
    this.#stopping = true;
    this.#timer?.stop();
    this.#deadline = performance.now() + GRACE;
    this.#tell(false);
    this.#timer = after(BUSY, () => this.#signal());
  }

  // signal goes on to interrupt. That is needed: a finalizer, for one, drops an exception that is raised in it.
  #signal() {
    const again = this.#signalled;
    this.#signalled = true;
    if (!this.#receiver.heard) this.#receiver.interrupt();
    else if (again) this.#tell(true);
    if (performance.now() < this.#deadline) this.#timer = after(again ? AGAIN : PATIENCE, () => this.#signal());
    else this.#on.stuck();
  }

  #tell(again) {
    this.#receiver.tell();
    this.#on.tell(again);
  }
}
