import type { Bytes, Output, Problem, Result } from "./api.js";
import { ExecbrokerError } from "./errors.js";

/** An event of a run, in the order in which things happened. */
export type RunEvent =
  | { kind: "started"; seq: number; time: string; cell?: number }
  | { kind: "stdout" | "stderr"; seq: number; time: string; data: Bytes }
  | { kind: "output"; seq: number; time: string; output: Output }
  /** Output was left out, because this program read it too slowly. The result has it. */
  | { kind: "dropped"; bytes: number };

/** The largest event in characters. A result has output, values and files up to some MiB. */
const maxEvent = 256 << 20;

/**
 * A run in progress. Iterate over it for its events, once, and await result for how it ended. Both
 * work alone: result reads the events if nobody iterates.
 */
export class Run implements AsyncIterable<RunEvent> {
  readonly #abort = new AbortController();
  readonly #result: Promise<Result>;
  readonly #events: AsyncGenerator<RunEvent, void, undefined>;
  #settle!: (r: Result) => void;
  #fail!: (e: unknown) => void;
  #taken = false;

  /** @internal */
  constructor(
    request: (signal: AbortSignal) => Promise<Response>,
    signal: AbortSignal | undefined,
    private readonly input: ((data: BodyInit | undefined, end: boolean) => Promise<void>) | undefined,
  ) {
    this.#result = new Promise<Result>((resolve, reject) => {
      this.#settle = resolve;
      this.#fail = reject;
    });
    this.#result.catch(() => undefined); // whoever iterates gets the error there
    const all = signal === undefined ? this.#abort.signal : AbortSignal.any([this.#abort.signal, signal]);
    // The request begins at once, so that the code runs even if nobody reads yet.
    const answer = request(all);
    answer.catch(() => undefined); // whoever reads gets the error
    this.#events = this.#read(answer);
  }

  /** How the run ended. It is rejected with an ExecbrokerError if there is no result. */
  get result(): Promise<Result> {
    if (!this.#taken) {
      this.#taken = true;
      void (async () => {
        for await (const _ of this.#events);
      })().catch(() => undefined); // the result has it
    }
    return this.#result;
  }

  [Symbol.asyncIterator](): AsyncIterator<RunEvent> {
    if (this.#taken) {
      throw new TypeError("the events of a run can be read only once, and before its result");
    }
    this.#taken = true;
    return this.#events;
  }

  /** Stops the code. The iteration and the result then fail with an AbortError. */
  stop(): void {
    this.#abort.abort();
  }

  /** Sends input to a run that was started with input: true. end is the last of it. */
  async send(data: string | Uint8Array, options?: { end?: boolean }): Promise<void> {
    await this.#write(data as BodyInit, options?.end ?? false);
  }

  /** Ends the input of the code. */
  async end(): Promise<void> {
    await this.#write(undefined, true);
  }

  async #write(data: BodyInit | undefined, end: boolean): Promise<void> {
    if (this.input === undefined) {
      throw new TypeError("only a run in a session with an id and input: true takes input");
    }
    await this.input(data, end);
  }

  async *#read(answer: Promise<Response>): AsyncGenerator<RunEvent, void, undefined> {
    let done = false;
    try {
      const response = await answer;
      for await (const { name, data } of events(response)) {
        const value: unknown = JSON.parse(data);
        switch (name) {
          case "done":
            done = true;
            this.#settle(value as Result);
            return;
          case "error": {
            const problem = value as Problem;
            throw new ExecbrokerError(problem.status, problem);
          }
          case "dropped":
            yield { kind: "dropped", bytes: (value as { bytes: number }).bytes };
            break;
          case "started":
          case "stdout":
          case "stderr":
          case "output":
            yield value as RunEvent;
            break;
          default: // a later version of the server has more
        }
      }
      throw new ExecbrokerError(response.status, undefined, undefined, "the connection ended before the run; the code may have run");
    } catch (e) {
      this.#fail(e);
      throw e;
    } finally {
      if (!done) {
        this.#fail(new DOMException("the run was stopped", "AbortError"));
        this.#abort.abort(); // somebody has left the loop
      }
    }
  }
}

/** Reads server-sent events. */
async function* events(response: Response): AsyncGenerator<{ name: string; data: string }> {
  if (!response.ok || response.body === null) {
    throw await ExecbrokerError.of(response);
  }
  const reader = response.body.getReader();
  const decoder = new TextDecoder();
  let pieces: string[] = []; // of the line that has not ended
  let size = 0;
  let name = "";
  let data: string[] = [];
  try {
    for (;;) {
      const { done, value } = await reader.read();
      const lines = decoder.decode(value, { stream: !done }).split("\n");
      const last = lines.pop() ?? "";
      for (const line of lines) {
        const whole = (pieces.join("") + line).replace(/\r$/, "");
        pieces = [];
        size = 0;
        if (whole === "") {
          if (data.length > 0) {
            yield { name, data: data.join("\n") };
          }
          name = "";
          data = [];
        } else if (whole.startsWith("event:")) {
          name = whole.slice(6).trim();
        } else if (whole.startsWith("data:")) {
          data.push(whole.slice(whole[5] === " " ? 6 : 5));
        } // others are comments, which keep the connection alive
      }
      if (done) {
        return;
      }
      pieces.push(last);
      if ((size += last.length) > maxEvent) {
        throw new ExecbrokerError(response.status, undefined, undefined, `an event has more than ${maxEvent} characters`);
      }
    }
  } finally {
    await reader.cancel().catch(() => undefined);
  }
}
