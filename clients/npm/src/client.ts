import type * as api from "./api.js";
import { ExecbrokerError } from "./errors.js";
import { Run } from "./stream.js";

/** Options of a Client. */
export interface ClientOptions {
  /** Where the server is. Default: http://127.0.0.1:3000. */
  url?: string;
  /** The key of this client. In a browser, use a key that its user may have. */
  key: string;
  /** What sends the requests. Default: the global fetch. */
  fetch?: typeof globalThis.fetch;
}

/** Options of a call. */
export interface CallOptions {
  /** Ends the request. A run that is ended so is stopped. */
  signal?: AbortSignal;
}

type Body = object | string | Uint8Array | undefined;

/** What sends requests to a server. */
class Transport {
  readonly #url: string;
  readonly #key: string;
  readonly #fetch: typeof globalThis.fetch;

  constructor(o: ClientOptions) {
    this.#url = (o.url ?? "http://127.0.0.1:3000").replace(/\/+$/, "");
    this.#key = o.key;
    this.#fetch = o.fetch ?? globalThis.fetch.bind(globalThis);
  }

  async send(method: string, path: string, body?: Body, signal?: AbortSignal): Promise<Response> {
    const raw = typeof body === "string" || body instanceof Uint8Array;
    const headers: Record<string, string> = { Authorization: `Bearer ${this.#key}` };
    if (body !== undefined) {
      headers["Content-Type"] = raw ? "application/octet-stream" : "application/json";
    }
    return this.#fetch(this.#url + path, {
      method,
      headers,
      body: body === undefined ? null : raw ? (body as BodyInit) : JSON.stringify(body),
      signal: signal ?? null,
      redirect: "error", // a redirect would get the key
    });
  }

  async ok(method: string, path: string, body?: Body, signal?: AbortSignal): Promise<Response> {
    const response = await this.send(method, path, body, signal);
    if (!response.ok) {
      throw await ExecbrokerError.of(response);
    }
    return response;
  }

  async json<T>(method: string, path: string, body?: Body, o?: CallOptions): Promise<T> {
    return (await (await this.ok(method, path, body, o?.signal)).json()) as T;
  }

  async nothing(method: string, path: string, body?: Body, o?: CallOptions): Promise<void> {
    await (await this.ok(method, path, body, o?.signal)).arrayBuffer();
  }
}

/** A client of one server, with one key. */
export class Client {
  readonly #t: Transport;

  constructor(options: ClientOptions) {
    this.#t = new Transport(options);
  }

  /** What the backend can do, and what the key may request. */
  capabilities(o?: CallOptions): Promise<api.Capabilities> {
    return this.#t.json("GET", "/v1/capabilities", undefined, o);
  }

  /** What the key uses and has used. */
  stats(o?: CallOptions): Promise<api.Stats> {
    return this.#t.json("GET", "/v1/stats", undefined, o);
  }

  /** Runs code in a sandbox of its own. */
  run(request: api.OnceRequest, o?: CallOptions): Promise<api.Result> {
    return this.#t.json("POST", "/v1/run", request, o);
  }

  /** Runs code in a sandbox of its own, with events while it runs. */
  stream(request: api.OnceRequest, o?: CallOptions): Run {
    return new Run((signal) => this.#t.send("POST", "/v1/run/stream", request, signal), o?.signal, undefined);
  }

  /** Makes a sandbox that keeps variables and files until it is removed or idle for too long. */
  async createSession(request: api.SessionRequest = {}, o?: CallOptions): Promise<Session> {
    const made = await this.#t.json<api.Session>("POST", "/v1/sessions", request, o);
    return new Session(this.#t, made.id);
  }

  /** The sessions of this key. */
  async sessions(o?: CallOptions): Promise<api.Session[]> {
    return (await this.#t.json<api.SessionList>("GET", "/v1/sessions", undefined, o)).sessions;
  }

  /** A session by its ID. It asks nothing. */
  session(id: string): Session {
    return new Session(this.#t, id);
  }

  /** A conversation: a session under a name of your choice, which its first run makes. */
  conversation(key: string): Conversation {
    return new Conversation(this.#t, key);
  }
}

/** What sessions and conversations have in common. */
abstract class Place<Request extends api.RunRequest> {
  /** The files in the working directory. */
  readonly files: Files;

  /** @internal */
  protected constructor(
    /** @internal */ protected readonly t: Transport,
    /** @internal */ protected readonly path: string,
  ) {
    this.files = new Files(t, `${path}/files`);
  }

  /** Runs code. Variables and files of earlier runs are there. */
  run(request: Request, o?: CallOptions): Promise<api.Result> {
    return this.t.json("POST", `${this.path}/run`, request, o);
  }

  /** Runs code, with events while it runs. */
  stream(request: Request, o?: CallOptions): Run {
    return new Run((signal) => this.t.send("POST", `${this.path}/run/stream`, request, signal), o?.signal, this.input(request));
  }

  /** @internal */
  protected input(_: Request): ((data: BodyInit | undefined, end: boolean) => Promise<void>) | undefined {
    return undefined;
  }

  /** Makes packages importable. The result is that of the installer. */
  install(names: string[], language?: string, o?: CallOptions): Promise<api.Result> {
    return this.t.json("POST", `${this.path}/packages`, language === undefined ? { names } : { names, language }, o);
  }

  /** Ends interpreters, with their variables. Files stay. */
  reset(request: api.ResetRequest = {}, o?: CallOptions): Promise<void> {
    return this.t.nothing("POST", `${this.path}/reset`, request, o);
  }

  /** Removes the sandbox, with its variables and files. */
  remove(o?: CallOptions): Promise<void> {
    return this.t.nothing("DELETE", this.path, undefined, o);
  }
}

/** A sandbox that keeps variables and files. */
export class Session extends Place<api.RunRequest> {
  /** @internal */
  constructor(t: Transport, readonly id: string) {
    super(t, `/v1/sessions/${encodeURIComponent(id)}`);
  }

  /** What the session is. */
  info(o?: CallOptions): Promise<api.Session> {
    return this.t.json("GET", this.path, undefined, o);
  }

  /** Gives the terminal of a running command another size. */
  resize(run: string, size: api.TerminalSize, o?: CallOptions): Promise<void> {
    return this.t.nothing("PUT", `${this.path}/runs/${encodeURIComponent(run)}/terminal`, size, o);
  }

  /** @internal */
  protected override input(request: api.RunRequest) {
    const { id, input } = request;
    if (id === undefined || input !== true) {
      return undefined;
    }
    const path = `${this.path}/runs/${encodeURIComponent(id)}/input`;
    return (data: BodyInit | undefined, end: boolean) => this.t.nothing("POST", path + (end ? "?end=true" : ""), (data ?? "") as string);
  }
}

/** A session under a name of your choice, at any of several servers. */
export class Conversation extends Place<api.ConversationRequest> {
  /** @internal */
  constructor(t: Transport, readonly key: string) {
    super(t, `/v1/conversations/${encodeURIComponent(key)}`);
  }

  /** Makes the sandbox, if there is none, and says what it is. */
  open(request: api.SessionRequest = {}, o?: CallOptions): Promise<api.Conversation> {
    return this.t.json("PUT", this.path, request, o);
  }

  /** What the sandbox is. */
  info(o?: CallOptions): Promise<api.Conversation> {
    return this.t.json("GET", this.path, undefined, o);
  }
}

/** Files below the working directory. Names are relative to it, with slashes. */
export class Files {
  readonly #t: Transport;
  readonly #path: string;

  /** @internal */
  constructor(t: Transport, path: string) {
    this.#t = t;
    this.#path = path;
  }

  #of(name: string): string {
    return `${this.#path}/${name.split("/").map(encodeURIComponent).join("/")}`;
  }

  /** What is in a directory. */
  list(dir = "", o?: CallOptions): Promise<api.FileList> {
    return this.#t.json("GET", `${this.#path}?dir=${encodeURIComponent(dir)}`, undefined, o);
  }

  /** The content of a file. */
  async read(name: string, o?: CallOptions): Promise<Uint8Array> {
    return new Uint8Array(await (await this.#t.ok("GET", this.#of(name), undefined, o?.signal)).arrayBuffer());
  }

  /** Writes a file, with the directories above it. */
  write(name: string, data: string | Uint8Array, o?: CallOptions): Promise<api.Written> {
    return this.#t.json("PUT", this.#of(name), data, o);
  }

  /** Removes a file, or a directory with all in it. */
  remove(name: string, o?: CallOptions): Promise<void> {
    return this.#t.nothing("DELETE", this.#of(name), undefined, o);
  }
}
