// Package runner gives every sandbox that can start a process the same interpreters, commands and files.
//
// Docker, Fly and E2B offer a process, not a notebook. The runner is one Python program, standard library only, for Python 3.9 and
// later, that travels into the sandbox behind a short bootstrap in a command line, so that any image with python3 will do. This package
// holds the program and the client side of its connections. An adapter brings a byte stream: the attached stdin and stdout of a
// container, an exec session, a socket.
//
//	conn := ...                                     // to a process that was started as runner.Command("python3")
//	c, err := runner.Start(ctx, conn, runner.Config{IdleTTL: time.Hour, ...})
//	exit, err := c.Run(ctx, req, emit)              // the rules of driver.Session.Run
//	err = c.Reset(ctx, executor.Interpreter{})      // those of driver.Resetter
//	expires, err := c.KeepAlive(ctx, time.Hour)     // those of driver.KeepAliver
//	files := c.Files()                              // those of driver.Filer
//	err = c.Detach()                                // lets go of the connection; the sandbox lives on until its idle TTL
//
//	conn = ...                                      // to runner.BridgeCommand("python3", socket), executed in the same sandbox
//	c, err = runner.Attach(ctx, conn, fence)        // a further holder
//
// A machine that is reached over a network, instead of a container on an engine, runs GuestCommand, and connections are those of
// Endpoint.Dial: two streams of bytes over HTTP that outlive the TCP connections which carry them. What does not arrive is sent again
// from where it stopped, so an interruption in the middle of a run repeats nothing and loses nothing. There the supervisor has all rights
// of root: it makes the network namespace of the code, covers directories of the provider, and then gives the rights up.
//
// # Processes
//
// A supervisor owns the connections and the clocks. It is root with CAP_SETUID, CAP_SETGID and CAP_KILL only; what else it was given it
// gives up. Interpreters, commands and whatever they start run under another uid, without any capability and with no-new-privileges.
// They share files and can harm each other, but cannot signal, trace or speak for the supervisor. A helper with root's real uid and the
// user's file rights does the file operations, so that user code can neither kill it nor borrow rights from it.
//
// Whatever an interpreter or command starts carries a group of its own, which no process without rights can leave, so that it is found
// whoever its parent is. A process counts as dead when it has no thread that lives: its state is that of its first thread, which may end
// alone. Where user code has the user of the supervisor there are no groups, and its descendants are found because they stay below the
// supervisor.
//
// The end of a command leaves nothing, and neither does that of an interpreter. What a run has left running, that ended by itself, lives
// on with its interpreter. When a run is stopped, what it has started is killed also where its interpreter lives on; threads of the
// interpreter stay, and end with it. If something cannot be killed within two seconds, the sandbox ends, and the results say so.
//
// # Runs
//
// Runs of one interpreter are serialized: a second one is refused as busy. Interpreters and commands run side by side. A run that
// reaches its wall time or output limit, or is stopped by its holder, is interrupted (SIGINT to the process group) and keeps its state
// if it heeds that within Config.Grace; else the interpreter is killed with all it has started, and StateLost says so. On a busy machine
// code that has hardly had a processor since has three times that. The ceiling of the limits is that of the creator, whatever a later
// holder asks for.
//
// Text and values of a run arrive in the order in which its code made them, and what an earlier run has left running prints for nobody:
// see docs/decisions/0019. Output that comes a little at a time, but all the time, is passed on every millisecond.
//
// A command at a terminal is such a run. The user of the code owns the terminal, and the supervisor has both of its ends open: it ends
// with the command, and not when programs close it. Stopped means hung up, and so does a holder that is gone.
//
// # Holders
//
// Each connection is a holder. One that attaches with a fence shuts out those with a lower one: their calls fail with ErrClosed. A
// holder that does not read delays nobody but its own runs, which are stopped at their wall time all the same, and one that dies leaves
// its runs going, their output dropped, until they end or are reset. One that is shut out is told what of its requests was begun.
//
// # Life
//
// The supervisor ends the sandbox when nothing has used it for the idle TTL, or when its maximum life is over, by the monotonic or by
// the wall clock, whichever is first. In a container it is the main process, so that nothing is left.
package runner
