import type { Problem } from "./api.js";

/**
 * A request that has no result, because of the request or of the infrastructure. What code does is
 * never an ExecbrokerError: see Result.status.
 */
export class ExecbrokerError extends Error {
  /** The HTTP status, or that of the problem at the end of a stream. */
  readonly status: number;
  /** What went wrong, for programs: "denied", "unavailable", ... */
  readonly kind: string;
  /** Whether the code may have run. Repeat a request only if it is "no". */
  readonly ran: "no" | "maybe" | "yes";
  /** Seconds until another attempt makes sense, if the server says so. */
  readonly retryAfter: number | undefined;
  /** The answer of the server, if it was one. */
  readonly problem: Problem | undefined;

  constructor(status: number, problem: Problem | undefined, retryAfter?: number, message?: string) {
    super(problem?.message ?? message ?? `the server answered with status ${status}`);
    this.name = "ExecbrokerError";
    this.status = status;
    this.kind = problem?.kind ?? "unknown";
    this.ran = problem?.ran ?? "maybe";
    this.retryAfter = retryAfter;
    this.problem = problem;
  }

  /** Returns the error of an answer whose status is not that of success. */
  static async of(response: Response): Promise<ExecbrokerError> {
    const text = await response.text();
    let problem: Problem | undefined;
    try {
      const value: unknown = JSON.parse(text);
      if (typeof value === "object" && value !== null && "kind" in value) {
        problem = value as Problem;
      }
    } catch {
      // It is the answer of something in front of the server.
    }
    const after = Number(response.headers.get("Retry-After") ?? NaN);
    return new ExecbrokerError(response.status, problem, Number.isFinite(after) ? after : undefined);
  }
}
