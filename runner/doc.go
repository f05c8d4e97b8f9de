// Package runner makes a backend of whatever can start a process.
//
// Containers, machines and remote hosts offer a process, not an interpreter with state, files and
// interrupts. The runner is a Python program that travels into the sandbox on the standard input of
// that process, and brings everything else. It needs Python 3.9 or later there, Node.js for
// JavaScript, and nothing installed. An adapter is a [Transport] that brings four things: how a
// process is started in a new sandbox, how a further one is started in the same sandbox, how the
// sandbox has ended, and how it is removed. [Open] makes an executor.Executor of it.
//
//	func Open(_ context.Context, env driver.Env, cfg Config) (executor.Executor, error) {
//		return runner.Open(env, &transport{cfg}, runner.Options{
//			Options: driver.Options{Type: "example"},
//			Capabilities: executor.Capabilities{
//				Isolation: executor.IsolationContainer,
//				Features:  []executor.Feature{executor.FeatureNetworkNone},
//			},
//		})
//	}
//
// docs/guides/write-an-adapter.md builds one step by step.
//
// # Who provides what
//
// Open declares what the runner brings, and by which interfaces a Transport and its Sandboxes
// implement what they bring themselves. The adapter declares the rest in Options.Capabilities: what
// is declared has to be enforced, and what is not declared is refused by name.
//
//	feature                                 what it needs of the transport
//	code, state, contexts, streaming,       a process as root of the sandbox, with a stream that
//	rich-output, artifacts, files, stdin,   carries bytes in both directions; with Config.SameUser
//	env, dir, exit-code, interrupt, linger  any user, whose code can then harm the runner
//	command, parallel-runs, subprocess,     the same
//	threads, files-during-run, keep-alive
//	workdir, HOME, the temporary directory  writable directories at these names, sized if limit-disk
//	                                        is declared
//	typescript                              Node.js
//	pty                                     a kernel with pseudo-terminals; else see Options.Without
//	wall time, output limit, idle TTL,      nothing: the runner has the clocks. A provider with a
//	maximum life                            clock of its own implements driver.KeepAliver
//	survival of a cut connection            Sandbox.Connect
//	attach, fencing                         Finder, and Connect from any process
//	list                                    driver.Lister
//	last contact with a holder              Observer
//	limit-processes                         root, and a uid that no other sandbox on the kernel has;
//	                                        the runner sets Config.Rlimits from it
//	limit-cpu, limit-memory, limit-disk     the Transport enforces them in Start
//	network-none, network-allowlist,        the Transport enforces them in Start, except for a
//	network-full                            Guest, whose runner makes the network namespace
//	aliases                                 root, and directories that only root can write to
//	ports                                   a loopback interface; the adapter declares the feature if
//	                                        its configuration allows it
//	packages                                Base, and sandboxes with a network that may fetch them;
//	                                        Options.Packages says what may be installed
//	suspension                              nothing, or Suspender; Options.Suspends declares it
//
// A Transport with Base also starts faster: what the first sandbox has compiled of the runner, the
// others of the same base need not compile.
//
// # Machines
//
// A machine that is reached by a network, instead of a process with streams, runs [GuestCommand] as
// its main process and is spoken to with [Endpoint.Dial]: two streams of bytes over HTTP that
// outlive the TCP connections which carry them. What does not arrive is sent again from where it
// stopped, so an interruption in the middle of a run repeats nothing and loses nothing. There the
// supervisor has all rights of root: it makes the network namespace of the code, covers directories
// of the provider, and then gives the rights up. Config.Guest says so.
//
// # Processes
//
// A supervisor owns the connections and the clocks. It is root with CAP_SETUID, CAP_SETGID and
// CAP_KILL only; what else it was given it gives up. Interpreters, commands and whatever they start
// run under another uid, without any capability and with no-new-privileges. They share files and
// can harm each other, but cannot signal, trace or speak for the supervisor. A helper with root's
// real uid and the user's file rights does the file operations, so that user code can neither kill
// it nor borrow rights from it.
//
// Whatever an interpreter or command starts carries a group of its own, which no process without
// rights can leave, so that it is found whoever its parent is. A process counts as dead when it has
// no thread that lives: its state is that of its first thread, which may end alone. Where user code
// has the user of the supervisor there are no groups, and its descendants are found because they
// stay below the supervisor.
//
// The end of a command leaves nothing, and neither does that of an interpreter. What a run has left
// running, that ended by itself, lives on with its interpreter. When a run is stopped, what it has
// started is killed also where its interpreter lives on; threads of the interpreter stay, and end
// with it. If something cannot be killed within two seconds, the sandbox ends, and the results say
// so.
//
// # Runs
//
// Runs of one interpreter are serialized: a second one is refused as busy. Interpreters and
// commands run side by side. A run that reaches its wall time or output limit, or is stopped by its
// holder, is interrupted (SIGINT to the process group) and keeps its state if it heeds that within
// Config.Grace; else the interpreter is killed with all it has started, and StateLost says so. On a
// busy machine code that has hardly had a processor since has three times that. The ceiling of the
// limits is that of the creator, whatever a later holder asks for.
//
// Text and values of a run arrive in the order in which its code made them, and what an earlier run
// has left running prints for nobody: see docs/decisions/0019. Output that comes a little at a
// time, but all the time, is passed on every millisecond.
//
// A command at a terminal is such a run. The user of the code owns the terminal, and the supervisor
// has both of its ends open: it ends with the command, and not when programs close it. Stopped
// means hung up, and so does a holder that is gone.
//
// # Holders
//
// Each connection is a holder. One that attaches with a fence shuts out those with a lower one:
// their calls fail with ErrClosed. A holder that does not read delays nobody but its own runs,
// which are stopped at their wall time all the same, and one that dies leaves its runs going, their
// output dropped, until they end or are reset. One that is shut out is told what of its requests
// was begun. One that is idle sends a ping every 20 seconds, so that somebody else can ask when a
// holder was last heard: a connection whose first frame is a ping gets that answer, is no holder
// and wakes nothing.
//
// # Life
//
// The supervisor ends the sandbox when nothing has used it for the idle TTL, or when its maximum
// life is over, by the monotonic or by the wall clock, whichever is first. In a container it is the
// main process, so that nothing is left. Where it is not, the Transport sees to it that the sandbox
// ends with the process that Start has started.
package runner
