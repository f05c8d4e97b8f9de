// The clocks of the trusted thread: long timers, and the steps to stop a run.

const MAX = 2 ** 31 - 1; // the longest timer of the platform, in ms

// after calls f after a number of milliseconds, unless stop is called before.
export function after(ms, f) {
  const timer = {};
  const arm = (left) => {
    timer.id = setTimeout(() => (left > MAX ? arm(left - MAX) : f()), Math.min(left, MAX));
  };
  timer.stop = () => clearTimeout(timer.id);
  arm(ms);
  return timer;
}

// Times in ms: from the message about an interrupt until the signal; from then until both are
// repeated, and between repetitions; and after all of that until the code counts as stuck.
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
  #began = 0;
  #over = 0;

  // on has functions: tell(again) sends the worker a message about an interrupt; late() and stuck()
  // tell the Go program.
  constructor(id, wall, receiver, on) {
    this.id = id;
    this.wall = wall;
    this.#receiver = receiver;
    this.#on = on;
  }

  // started starts the wall clock.
  started() {
    this.#began = performance.now();
    if (this.#stopping || this.wall < 0) return;
    this.#timer = after(this.wall, () => {
      this.#on.late();
      this.interrupt();
    });
  }

  // ended stops all clocks. A later request to stop the code would stop the code of the next run.
  ended() {
    this.#stopping = true;
    this.#timer?.stop();
    this.#over = performance.now();
  }

  // left returns how much of the wall time the code has not used, in ms.
  get left() {
    return this.wall < 0 ? Infinity : Math.max(0, this.wall - (this.#over - this.#began));
  }

  // interrupt asks the code to stop.
  //
  // Code that waits gets a message, through its event loop. Code that computes gets a signal.
  // Sending both at once would do harm: a signal that arrives in the event loop itself makes the
  // loop lose a step of a task.
  interrupt() {
    if (this.#stopping) return;
    this.#stopping = true;
    this.#timer?.stop();
    this.#deadline = performance.now() + GRACE;
    this.#tell(false);
    this.#timer = after(BUSY, () => this.#signal());
  }

  // signal repeats the interrupt. That is necessary, for example because a finalizer drops an
  // exception that is raised in it.
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

// Times in ms: between two questions whether the event loop of the worker is free, and between two
// checks for an answer; how much an answer without delay restores; and how much is always allowed,
// because a busy machine also delays answers.
const PAUSE = 1000;
const LOOK = 50;
const BACK = 100;
const LEAST = 5000;
const CALLS = 60; // consecutive pauses without a check while the worker handles a call, whose caller may have stopped waiting

// Leftovers limits what code leaves running when its run is over. Time in which the event loop of
// the worker does not answer counts. When there is too much of it, the worker must end.
//
// The code of the next run is passed to the worker only after an answer. So a worker that ends
// without an answer has not had that code.
export class Leftovers {
  #on;
  #most = Infinity; // ms at the beginning
  #left = Infinity; // ms that remain
  #asked = null; // time of the question; null: there is none
  #timer = null;
  #free = null; // called when the event loop is free
  #busy = 0; // consecutive pauses

  // on has functions: ask() and answered() are about the question, busy() says that the worker
  // handles a call, and over() ends the worker.
  constructor(on) {
    this.#on = on;
  }

  // begin starts the clock: a run is over, and ms of its wall time are left.
  begin(ms) {
    this.#most = this.#left = Math.max(ms, LEAST);
    this.#pause();
  }

  // hurry says that another run waits. It calls free when the event loop is free.
  hurry(free) {
    if (!this.#timer) return free(); // no code has run yet
    this.#free = free;
    const waited = this.#asked === null ? 0 : performance.now() - this.#asked;
    this.#left = Math.min(this.#left, waited + LEAST);
    if (this.#asked === null) this.#ask();
  }

  // stop stops the clock: the next run has started.
  stop() {
    this.#timer?.stop();
    this.#asked = null;
  }

  #pause() {
    this.#timer?.stop();
    this.#asked = null;
    this.#timer = after(PAUSE, () => {
      this.#busy = this.#on.busy() ? this.#busy + 1 : 0;
      if (this.#busy > 0 && this.#busy <= CALLS) this.#pause();
      else this.#ask();
    });
  }

  #ask() {
    this.#asked = performance.now();
    this.#on.ask();
    this.look();
  }

  // look is called when there may be an answer.
  look() {
    if (this.#asked === null) return;
    this.#timer.stop();
    const waited = performance.now() - this.#asked;
    if (!this.#on.answered()) {
      if (waited >= this.#left) return this.#on.over();
      this.#timer = after(LOOK, () => this.look());
      return;
    }
    this.#left = waited > 2 * LOOK ? this.#left - waited : Math.min(this.#most, this.#left + BACK);
    this.#pause();
    const free = this.#free;
    this.#free = null;
    free?.();
  }
}
