// The types of the HTTP API. Made from server/openapi.json by go test ./clients/npm -update; do not edit.

/** What the subjects of one arm got. Intervals are those of one look, at 95 percent. */
export type Arm = {
  answered: Rate;
  /** The assigned one. */
  backend: string;
  code: Rate;
  cold: Times;
  /** In the currency of the prices. */
  cost: string;
  /** Turns without a result, by kind. */
  errors?: Record<string, number>;
  /** Turns by how they ended: ok, code, fallback, outage, capacity; and what counts for no arm: refused, quota, caller. */
  outcomes?: Record<string, number>;
  /** Sessions that are not at their horizon. */
  pending: number;
  session_cost: Mean;
  /** Sessions that users wanted, without those that a rule refused or the caller spoiled. */
  sessions: number;
  /** The part of new subjects that it gets now, from 0 to 1. */
  share: number;
  success: Rate;
  /** From the request for a session to the result. */
  turns: number;
  /** Sessions whose server ended before their horizon. */
  unobserved: number;
  warm: Times;
};

/** What one arm of a route has done since the server started. */
export type ArmStatus = {
  answered: number;
  /** The backend that the split selected. */
  assigned: string;
  /** The backend that served. */
  backend?: string;
  /** Of the run and of the sandbox meanwhile, as a decimal number in the currency of the configured prices. */
  cost?: string;
  /** The other turns, by kind. */
  errors?: Record<string, number>;
  /** Of turns. */
  p50_seconds: number;
  p95_seconds: number;
  /** Not given: the backend was used directly. */
  route?: string;
  turns: number;
};

/** A file that the run created or changed. */
export type Artifact = {
  data?: Bytes;
  /** From the content. */
  mime: string;
  mod_time: string;
  /** Relative to /workspace. */
  name: string;
  /** In bytes. */
  size: number;
};

/** Requests the files that the run creates or changes below /workspace. */
export type ArtifactRequest = {
  /** Whether the answer has the contents. */
  contents?: boolean;
  /** Relative to /workspace, "**" for any depth. None: all files. */
  globs?: string[];
  /** Of all contents together; 8 MiB if not given. */
  max_bytes?: number;
  /** 100 if not given. */
  max_files?: number;
};

/** What a backend or a session can do. */
export type BackendCapabilities = {
  default_limits?: Limits;
  /** Of every session. */
  features: string[];
  /** process, wasm, wasm-os, container, gvisor or microvm. */
  isolation: string;
  /** The first is the default. */
  languages: Runtime[];
  /** Of a sandbox. */
  max_life_seconds?: number;
  max_limits?: Limits;
  max_run?: RunLimits;
  /** In addition to the default. */
  templates?: string[];
  /** Of some sessions. */
  varies?: string[];
};

/** What a backend has now. */
export type BackendStatus = {
  /** closed, open or trying. Not given: it has none. */
  breaker?: string;
  name: string;
  pools?: PoolStatus[];
  /** It is no longer configured, but has sessions. */
  removed?: boolean;
  /** With those that are warm. */
  sessions: number;
  /** Requests for a session in the queue. */
  waiting: number;
};

/** Text, or bytes that are not text. */
export type Bytes = string | {
  base64: string;
};

/** What the backend can do, and what the key may request. */
export type Capabilities = {
  backend: string;
  /** Which the key may choose for a session. */
  backends?: string[];
  capabilities: BackendCapabilities;
  limits: Limits;
  /** Of a JSON request. */
  max_body_bytes: number;
  max_file_bytes: number;
  /** Of a session. */
  max_idle_seconds: number;
  /** Runs of the key at the same time. */
  max_runs: number;
  /** Of the key. */
  max_sessions: number;
  /** Of a run. */
  max_timeout_seconds: number;
  network: Network;
  /** The key is that of an operator. */
  operator?: boolean;
};

export type Conversation = {
  /** Other names of the working directory. */
  aliases?: string[];
  /** Its name in the configuration. */
  backend: string;
  capabilities: BackendCapabilities;
  /** When its sandbox was made. */
  created: string;
  /** This request made the sandbox. */
  fresh: boolean;
  kept?: Kept;
  key: string;
  languages: string[];
  limits: Limits;
  /** An earlier sandbox is gone, with all that is not in kept. */
  lost: boolean;
  template?: string;
  /** Why it is gone, if that is known: gone, unavailable, abandoned, evicted, moved, or forked for the first session of a copy. */
  why?: string;
};

/** A run in a conversation. Exactly one of code and command is required. The id can be used once in the conversation, at whichever server. */
export type ConversationRequest = {
  artifacts?: ArtifactRequest;
  /** Source text. */
  code?: string;
  /** An argument vector, run without a shell, instead of code. */
  command?: string[];
  /** Another interpreter of the language. Requires the feature contexts. */
  context?: string;
  /** Working directory of this run. */
  dir?: string;
  /** Environment variables of this run. */
  env?: Record<string, string>;
  /** Names the run in its session. It can be used only once, so that a repeated request does not run twice. 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'. */
  id?: string;
  /** Standard input is sent while the code runs, to /v1/sessions/{id}/runs/{run}/input. Only in a session, with an id and without stdin. */
  input?: boolean;
  /** python, javascript, ... Empty: the first of the session. */
  language?: string;
  /** How long the run waits for what its code has started; 0: not at all. If not given, until all of that has ended, if the backend has the feature linger. */
  linger_seconds?: number;
  /** A new sandbox, if the conversation has none. Without ports. */
  session?: SessionRequest;
  /** What the code reads from standard input. */
  stdin?: string;
  terminal?: TerminalSize;
  /** After this time the code is stopped; 30 if not given. */
  timeout_seconds?: number;
};

/** A change of a rollout, with its figures. */
export type Decision = {
  arms: Figures[];
  /** Who, if it was by hand. */
  by?: string;
  guards?: Finding[];
  /** The share of the new arm in percent, afterwards. */
  step: number;
  time: string;
  what: string;
  why: string;
};

/** For the kind denied: the rule that refused, and its numbers. */
export type Denial = {
  /** The size of the request, or what the subject has already. */
  have?: number;
  /** What the rule allows, in the unit of the rule. */
  limit?: number;
  /** The package that is not allowed. */
  package?: string;
  /** Whose quota it is: subject, or an attribute with its value. */
  quota?: string;
  /** When the quota begins anew. */
  renews?: string;
  /** code-size, rate, runs-at-once, sessions, owner, package, quota-runs, quota-time or quota-cost. */
  rule?: string;
};

/** An uncaught error of the language. */
export type Exception = {
  /** Line of the code, from 1. */
  line?: number;
  message?: string;
  traceback?: string;
  /** ZeroDivisionError, for example. */
  type: string;
};

/** A route whose split compares backends. Every figure is that of the arm that was assigned, whatever backend served. */
export type Experiment = {
  arms: Arm[];
  /** How long a session is observed before it is judged. */
  horizon_seconds: number;
  /** The only server whose figures these are; empty: all that share the session store. */
  replica: string;
  rollout?: Rollout;
  route: string;
  /** When counting began. */
  since?: string;
  verdict: Verdict;
};

export type ExperimentList = {
  experiments: Experiment[];
};

/** A request that failed. */
export type FailedRequest = {
  kind: string;
  /** What the client was told. */
  message: string;
  operation: string;
  request_id: string;
  status: number;
  subject: string;
  time: string;
};

/** What an arm has done in a step, as far as its horizon has passed. */
export type Figures = {
  bad: number;
  /** In millionths of the currency. */
  cost: number;
  failed: number;
  sessions: number;
  subjects: number;
  turns: number;
};

export type File = {
  kind: "file" | "directory" | "link" | "other";
  modified: string;
  name: string;
  /** In bytes. */
  size: number;
};

export type FileList = {
  files: File[];
  /** Whether there are more files. */
  more: boolean;
};

export type FileOfARun = {
  content?: Bytes;
  /** Relative to /workspace. */
  name: string;
};

/** What is known of a guard. */
export type Finding = {
  /** success, p95, cost or code. */
  guard: string;
  /** It has been shown to be worse. */
  harm: boolean;
  high: number;
  /** Of the interval of the difference: how much worse the new arm is. It holds at every look. */
  low: number;
  /** How much worse it may be. */
  margin: number;
  new: number;
  old: number;
  pairs: number;
  /** It has been shown to be no worse. */
  shown: boolean;
};

export type Gap = {
  /** Offset in the bytes of the stream that are there. */
  at: number;
  /** Number of missing bytes. */
  bytes: number;
  /** stdout or stderr. */
  stream: string;
};

export type Health = {
  status: "ok" | "draining";
};

/** What a new sandbox got back from the last checkpoint, and what it did not. At most a hundred of each list. */
export type Kept = {
  /** How many runs came after the checkpoint, of which nothing was kept. */
  behind?: number;
  files?: string[];
  /** When the checkpoint was made. */
  made: string;
  /** Variables, functions, classes and imports of Python. */
  names?: string[];
  /** What was not kept. */
  omitted?: Omission[];
  /** Why nothing was restored although there was a checkpoint. */
  refused?: string;
};

/** Limits of a sandbox. A missing field means that no limit is known. */
export type Limits = {
  cpus?: number;
  disk_bytes?: number;
  memory_bytes?: number;
  processes?: number;
};

/** A session of any key, without its ID. */
export type LiveSession = {
  backend: string;
  busy: boolean;
  created: string;
  /** It ends this long after its last use. */
  idle_seconds: number;
  languages: string[];
  subject: string;
};

/** A mean, with the interval of the normal approximation. */
export type Mean = {
  count: number;
  high: number;
  low: number;
  mean: number;
};

/** What sandboxes can reach. */
export type Network = {
  /** The hosts of an allowlist. */
  hosts?: string[];
  /** none, allowlist or full. */
  mode?: string;
};

export type Omission = {
  kind: string;
  name: string;
  reason: string;
};

/** A run in a new sandbox. Exactly one of code and command is required. */
export type OnceRequest = {
  artifacts?: ArtifactRequest;
  /** Source text. */
  code?: string;
  /** An argument vector, run without a shell, instead of code. */
  command?: string[];
  /** Another interpreter of the language. Requires the feature contexts. */
  context?: string;
  /** Working directory of this run. */
  dir?: string;
  /** Environment variables of this run. */
  env?: Record<string, string>;
  /** Written before the code runs. */
  files?: FileOfARun[];
  /** Names the run in its session. It can be used only once, so that a repeated request does not run twice. 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'. */
  id?: string;
  /** Standard input is sent while the code runs, to /v1/sessions/{id}/runs/{run}/input. Only in a session, with an id and without stdin. */
  input?: boolean;
  /** python, javascript, ... Empty: the first of the session. */
  language?: string;
  /** How long the run waits for what its code has started; 0: not at all. If not given, until all of that has ended, if the backend has the feature linger. */
  linger_seconds?: number;
  /** Installed before the code runs. */
  packages?: string[];
  /** What the code reads from standard input. */
  stdin?: string;
  /** One of the templates in the capabilities. Not given: the default. */
  template?: string;
  terminal?: TerminalSize;
  /** After this time the code is stopped; 30 if not given. */
  timeout_seconds?: number;
};

/** Where the code ran, and why it ran there. */
export type Origin = {
  /** The backend that the split selected; differs from backend after a fallback. */
  assigned?: string;
  /** The backend that ran the code. */
  backend: string;
  /** The route that matched. */
  route?: string;
};

export type Output = {
  /** By media type. Images are bytes. */
  data: Record<string, Bytes>;
  /** Whether it is the value of the last expression. */
  main?: boolean;
};

/** What happens at a server. */
export type Overview = {
  arms: ArmStatus[];
  backends: BackendStatus[];
  /** The last requests that failed, the newest first. */
  failures: FailedRequest[];
  /** Of each key that has been used. */
  keys: Stats[];
  /** The oldest first, at most 500. */
  sessions: LiveSession[];
  uptime_seconds: number;
  /** On this day, in UTC: what is limited by a quota or has a price. */
  used: Used[];
};

export type PackagesRequest = {
  /** Empty: the first of the session. */
  language?: string;
  names: string[];
};

/** A pool of warm sessions. */
export type PoolStatus = {
  /** Warm sessions that could not be created, or were dead. */
  failed: number;
  hits: number;
  /** Sessions that were created cold. */
  misses: number;
  starting: number;
  warm: number;
};

/** Why a request failed. */
export type Problem = {
  denied?: Denial;
  /** The server that has the conversation, for the kind elsewhere: send the request there. */
  instance?: string;
  /** unauthorized, draining, origin, method, upgrade, no-input, no-terminal, no-such-operation, repeated, or a kind of failure: invalid, unsupported, denied, not-found, busy, too-large, exhausted, no-server, unavailable, internal, file-not-found, ... */
  kind: string;
  /** For people. */
  message: string;
  /** What the backend lacks. */
  missing?: string[];
  /** Whether the code may have run. Repeat a request only if it is no. */
  ran: "no" | "maybe" | "yes";
  /** The value of X-Request-Id, which the log of the server has too. */
  request_id: string;
  /** The status of the answer. */
  status: number;
};

/** A quantile in seconds, with the interval of order statistics. */
export type Quantile = {
  /** Absent: so few values do not bound it. */
  high?: number;
  low: number;
  seconds: number;
};

/** A part of a number, with Wilson's score interval. */
export type Rate = {
  high: number;
  low: number;
  of: number;
  part: number;
  /** From 0 to 1. */
  share: number;
};

/** Which interpreters to end. Empty fields match all. */
export type ResetRequest = {
  context?: string;
  language?: string;
};

export type Result = {
  /** If the request has artifacts. */
  artifacts?: Artifact[];
  /** The number of further files that matched. */
  artifacts_omitted?: number;
  /** The number of runs of this interpreter, including this one. */
  cell?: number;
  conversation?: Turn;
  /** Where output was left out, beyond 1 MiB of each stream. */
  dropped?: Gap[];
  /** From the start of the code to its end. */
  duration_seconds: number;
  exception?: Exception;
  /** -1 if the code was stopped. */
  exit_code: number;
  /** The files were lost too. */
  files_lost?: boolean;
  /** The id of the run. */
  id: string;
  /** Names of what still runs in the interpreter after the run, whichever run started it. */
  left_running?: string[];
  /** What the user should be told, as a quota that is exceeded but does not refuse. */
  notices?: string[];
  origin: Origin;
  /** Values and images, in order. */
  outputs?: Output[];
  /** From the request to the start of the code. */
  queued_seconds: number;
  /** What stopped it: wall-time, memory, processes, disk, output, signal, reset, lifetime, code or sandbox. */
  reason?: string;
  /** SIGSEGV, for example. */
  signal?: string;
  started: string;
  /** The run began without the variables of earlier runs. */
  state_fresh?: boolean;
  /** The variables were lost in this run. */
  state_lost?: boolean;
  /** How the code ended. */
  status: "ok" | "failed" | "timed_out" | "killed" | "canceled" | "lost";
  stderr?: Bytes;
  stdout?: Bytes;
  usage?: Usage;
};

/** How a rollout is doing. */
export type Rollout = {
  /** The old and the new one, in this step. */
  arms: Figures[];
  guards: Finding[];
  /** The last decisions. */
  log: Decision[];
  route: string;
  /** Of the new backend, in percent. */
  share: number;
  /** When the step began. */
  since: string;
  /** running, paused, rolled-back, aborted or promoted. */
  status: string;
  /** The new backend. */
  to?: string;
};

/** Limits of a run. A missing field means that no limit is known. */
export type RunLimits = {
  output_bytes?: number;
  wall_time_seconds?: number;
};

/** Exactly one of code and command is required. */
export type RunRequest = {
  artifacts?: ArtifactRequest;
  /** Source text. */
  code?: string;
  /** An argument vector, run without a shell, instead of code. */
  command?: string[];
  /** Another interpreter of the language. Requires the feature contexts. */
  context?: string;
  /** Working directory of this run. */
  dir?: string;
  /** Environment variables of this run. */
  env?: Record<string, string>;
  /** Names the run in its session. It can be used only once, so that a repeated request does not run twice. 1 to 64 of A-Z, a-z, 0-9, '.', '_' and '-'. */
  id?: string;
  /** Standard input is sent while the code runs, to /v1/sessions/{id}/runs/{run}/input. Only in a session, with an id and without stdin. */
  input?: boolean;
  /** python, javascript, ... Empty: the first of the session. */
  language?: string;
  /** How long the run waits for what its code has started; 0: not at all. If not given, until all of that has ended, if the backend has the feature linger. */
  linger_seconds?: number;
  /** What the code reads from standard input. */
  stdin?: string;
  terminal?: TerminalSize;
  /** After this time the code is stopped; 30 if not given. */
  timeout_seconds?: number;
};

export type Runtime = {
  /** Of sessions with the language. */
  features: string[];
  /** If it is weaker than that of the backend. */
  isolation?: string;
  language: string;
  /** Of some of them. */
  varies?: string[];
  version?: string;
};

export type Session = {
  /** Other names of the working directory. */
  aliases?: string[];
  backend: string;
  /** An operation is in progress. */
  busy: boolean;
  /** Not in a listing. */
  capabilities?: BackendCapabilities;
  created: string;
  id: string;
  /** The session ends this long after its last use. */
  idle_seconds: number;
  languages: string[];
  limits: Limits;
  template?: string;
};

export type SessionList = {
  sessions: Session[];
};

export type SessionRequest = {
  /** Other names of the working directory, such as /mnt/data. */
  aliases?: string[];
  /** One of the backends in the capabilities, for keys of operators. Not given: the routes decide. Not for conversations. */
  backend?: string;
  /** Environment variables of every run. */
  env?: Record<string, string>;
  /** The session ends this long after its last use. Not given: the longest allowed time. */
  idle_seconds?: number;
  /** The first is the default of runs. None: the first of the backend. */
  languages?: string[];
  /** Of the first language. */
  packages?: string[];
  /** Lets clients connect to servers in the sandbox. Requires the feature ports. */
  ports?: boolean;
  /** One of the templates in the capabilities. Not given: the default. */
  template?: string;
};

export type Stats = {
  /** Runs without a result. */
  run_errors: number;
  /** Current runs. */
  running: number;
  /** Ended runs, by status. */
  runs: Record<string, number>;
  /** Current sessions. */
  sessions: number;
  sessions_created: number;
  /** The owner of the key. */
  subject: string;
  /** Time since the start of the server. */
  uptime_seconds: number;
};

/** Gives a command a terminal of this size. Requires the feature pty. What the terminal shows is stdout, and what is typed is stdin. */
export type TerminalSize = {
  /** 1 to 65535. */
  columns: number;
  /** 1 to 65535. */
  rows: number;
};

/** Quantiles of durations. They are at most 3 percent too high. */
export type Times = {
  count: number;
  p50: Quantile;
  p95: Quantile;
  p99: Quantile;
};

/** What a conversation has kept. */
export type Turn = {
  /** This request made the sandbox. */
  fresh: boolean;
  kept?: Kept;
  /** An earlier sandbox is gone, with all that is not in kept. */
  lost: boolean;
  /** Why it is gone, if that is known: gone, unavailable, abandoned, evicted, moved, or forked for the first session of a copy. */
  why?: string;
};

/** What the run consumed, as far as it is known. */
export type Usage = {
  /** Of the run and of the sandbox meanwhile, as a decimal number in the currency of the configured prices. */
  cost?: string;
  /** Processor time. */
  cpu_seconds?: number;
  /** In bytes. */
  peak_memory?: number;
};

/** What an account has used. */
export type Used = {
  /** subject=alice, or an attribute with a quota: plan=pro. */
  account: string;
  /** Of the run and of the sandbox meanwhile, as a decimal number in the currency of the configured prices. */
  cost?: string;
  runs: number;
  /** Of runs. */
  seconds: number;
};

/** What the rollout says of the new arm. */
export type Verdict = {
  text: string;
  /** no-worse, no-harm-seen or worse. Absent: nothing has been compared. */
  word?: string;
};

export type Written = {
  name: string;
  /** In bytes. */
  size: number;
};
