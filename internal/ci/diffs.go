package main

import (
	"bufio"
	"cmp"
	"fmt"
	"io"
	"path/filepath"
	"strings"

	"github.com/execbroker/execbroker/conformance"
)

// A move is from one backend to another, or to another configuration of it, as the documents
// explain it.
type move struct {
	from, to string
	// why tells the reasons behind lines of conformance.Diff, by the What of the line. A key that
	// ends in "." is about all that begin with it and have no reason of their own.
	why map[string]string
}

// moves are those that have a page.
var moves = []move{{"pyodide", "docker", map[string]string{
	"capabilities.features.pty":                            "A container has programs to give a terminal to; WebAssembly has no processes.",
	"capabilities.features.ports":                          "Code in Pyodide has no sockets, so nothing can listen there. Elsewhere `ports: true` in the configuration allows it.",
	"capabilities.features.command":                        "A container has programs to run; WebAssembly has no processes.",
	"capabilities.features.mixed-languages":                "One container has both interpreters over the same files; with Pyodide each language is a sandbox of its own.",
	"capabilities.features.parallel-runs":                  "Interpreters are processes side by side; Pyodide has one thread, for everything.",
	"capabilities.features.files-during-run":               "The supervisor reads and writes files beside the code; in Pyodide the code and the files are one thread's.",
	"capabilities.features.attach":                         "A container outlives the program and can be found again by its name; a Pyodide sandbox is a child of the program, and dies with it.",
	"capabilities.features.fencing":                        "Where there is no attach there is no later holder to fence against.",
	"capabilities.features.list":                           "The engine knows all containers; of child processes only their parent knows.",
	"capabilities.features.keep-alive":                     "A container has an idle time of its own; a Pyodide sandbox lives as long as its session.",
	"capabilities.features.limit-cpu":                      "Control groups share out processors; a process of Pyodide may use one for as long as the wall time lets it.",
	"capabilities.features.limit-processes":                "There is nothing to limit where code cannot start a process.",
	"capabilities.features.network-full":                   "A container can be given a network; the code in Pyodide never has one.",
	"capabilities.languages.python.version":                "Pyodide's Python is part of it; a container's is that of the image, so no version is declared.",
	"capabilities.languages.python.features.":              "Python in a container is a process of the operating system, with all that belongs to one.",
	"capabilities.languages.javascript.version":            "With Pyodide JavaScript is that of its host's engine; in a container it is the Node.js of the image, so no version is declared.",
	"capabilities.languages.javascript.features.":          "In a container JavaScript is Node.js, with processes and threads; with Pyodide it is one thread, with some of Node's modules.",
	"capabilities.languages.javascript.features.packages":  "Packages of npm come from a registry that the configuration names; with Pyodide JavaScript has the modules that its page lists, and no others.",
	"capabilities.languages.javascript.features.interrupt": "Node.js can be interrupted in the middle of a loop; the engine behind Pyodide can only be ended, with its state.",
	"capabilities.isolation":                               "A container shares the kernel of the host, and its code makes system calls; WebAssembly makes none, in a process that the operating system confines. A Spec with MinIsolation wasm or wasm-os is refused.",
	"capabilities.templates.small":                         "Templates are in the configuration on both; the one that was tested on Docker has this one.",
	"capabilities.max_limits.":                             "Pyodide keeps code and files in the memory of one process, which ends there; a container may have what the machine has, or what max_limits says.",
}}, {"pyodide", "bubblewrap", map[string]string{
	"capabilities.features.pty":                            "A sandbox has programs to give a terminal to; WebAssembly has no processes.",
	"capabilities.features.ports":                          "Code in Pyodide has no sockets, so nothing can listen there. Elsewhere `ports: true` in the configuration allows it.",
	"capabilities.features.command":                        "A sandbox has the programs of the machine; WebAssembly has no processes.",
	"capabilities.features.mixed-languages":                "One sandbox has both interpreters over the same files; with Pyodide each language is a sandbox of its own.",
	"capabilities.features.parallel-runs":                  "Interpreters are processes side by side; Pyodide has one thread, for everything.",
	"capabilities.features.files-during-run":               "The supervisor reads and writes files beside the code; in Pyodide the code and the files are one thread's.",
	"capabilities.features.attach":                         "A sandbox outlives the program and is found in the table of processes; a Pyodide sandbox is a child of the program, and dies with it.",
	"capabilities.features.fencing":                        "Where there is no attach there is no later holder to fence against.",
	"capabilities.features.list":                           "The table of processes has all sandboxes; a Pyodide sandbox is its program's alone.",
	"capabilities.features.keep-alive":                     "A sandbox has an idle time of its own; a Pyodide sandbox lives as long as its session.",
	"capabilities.features.limit-cpu":                      "Control groups share out processors; a process of Pyodide may use one for as long as the wall time lets it.",
	"capabilities.features.limit-processes":                "There is nothing to limit where code cannot start a process.",
	"capabilities.languages.python.version":                "Pyodide's Python is part of it; this is that of the machine, so no version is declared.",
	"capabilities.languages.python.features.":              "Python is a process of the operating system here, with all that belongs to one.",
	"capabilities.languages.python.features.packages":      "Packages are those of the machine or of the root that the configuration names: a session has no network to fetch others.",
	"capabilities.languages.javascript.version":            "With Pyodide JavaScript is that of its host's engine; here it is the Node.js of the machine, so no version is declared.",
	"capabilities.languages.javascript.features.":          "Here JavaScript is Node.js, with processes and threads; with Pyodide it is one thread, with some of Node's modules.",
	"capabilities.languages.javascript.features.interrupt": "Node.js can be interrupted in the middle of a loop; the engine behind Pyodide can only be ended, with its state.",
	"capabilities.isolation":                               "A sandbox shares the kernel of the machine, and its code makes system calls; WebAssembly makes none, in a process that the operating system confines. A Spec with MinIsolation wasm or wasm-os is refused.",
	"capabilities.templates.small":                         "Templates are in the configuration on both; the one that was tested has this one.",
	"capabilities.max_limits.":                             "Pyodide keeps code and files in the memory of one process, which ends there; a sandbox may have what the machine has, or what max_limits says.",
}}, {"bubblewrap", "docker", map[string]string{
	"capabilities.features.network-full":                  "A container can be given a network of the engine; bubblewrap could only give that of the machine, with all that listens there.",
	"capabilities.languages.python.features.packages":     "An engine fetches packages in a container that has a network; here they are those of the machine or of the root that the configuration names.",
	"capabilities.languages.javascript.features.packages": "An engine fetches packages in a container that has a network; here they are those of the machine or of the root that the configuration names.",
}}, {"docker", "kubernetes", map[string]string{
	"capabilities.features.aliases": "An alias needs a directory above it that can be written to, and nobody looks yet whether it would hide something of the image; a Spec with aliases is refused.",
}}, {"docker", "docker-gvisor", map[string]string{
	"capabilities.features.pty":             "gVisor has no /dev/tty, and its terminals neither edit lines nor send signals.",
	"capabilities.isolation":                "gVisor is a kernel in a process: code calls it, and it calls the host's for a few things.",
	"capabilities.features.limit-cpu":       "The host enforces a quota, of which gVisor's clocks of processor time know nothing: what code measures is more than it gets. A Spec that limits it is refused; the limit of the configuration is in force.",
	"capabilities.features.limit-memory":    "Code and its kernel share the limit of the container: beyond it the sandbox ends as a whole, with ErrNotFound for the run. A Spec that limits it is refused; the limit of the configuration is in force.",
	"capabilities.features.limit-processes": "gVisor counts no processes. The host bounds its tasks to sixteen times the usual number of processes; beyond it the sandbox ends as a whole.",
}}, {"docker", "flymachines", map[string]string{
	"mode":                             "The suite ran over an emulator of Fly's API, whose Machines are containers: what it says of Fly itself is only as good as that.",
	"capabilities.features.limit-disk": "A Machine has a root file system of about 8 GB, and nothing that would make it smaller; a Spec that limits it is refused.",
	"capabilities.isolation":           "A Machine is a virtual machine with a kernel of its own; containers share that of the host.",
	"capabilities.max_limits.":         "Machines come in sizes, of which this is the largest; a container may have what the machine of the engine has.",
}}, {"docker", "e2b", map[string]string{
	"mode":                               "The suite ran over a stand-in for E2B, whose sandboxes are containers: what it says of E2B itself is only as good as that.",
	"capabilities.features.limit-cpu":    "Processors are those of the template.",
	"capabilities.features.limit-memory": "Memory is that of the template. Build one for each size, and name them as templates.",
	"capabilities.features.limit-disk":   "The disk is that of the template.",
	"capabilities.isolation":             "A sandbox of E2B is a virtual machine, by the word of the service; a container shares the kernel of the host.",
	"capabilities.max_life":              "Plans of E2B bound the life of a sandbox: 1 hour or 24. max_life in the configuration says which.",
	"capabilities.templates.small":       "Templates are in the configuration on both; the one that was tested on Docker has this one.",
}}, {"pyodide", "flymachines", map[string]string{
	"capabilities.features.pty":                            "A Machine has programs to give a terminal to; WebAssembly has no processes.",
	"capabilities.features.ports":                          "Code in Pyodide has no sockets, so nothing can listen there. Elsewhere `ports: true` in the configuration allows it.",
	"mode":                                                 "The suite ran over an emulator of Fly's API, whose Machines are containers: what it says of Fly itself is only as good as that.",
	"capabilities.features.command":                        "A Machine has programs to run; WebAssembly has no processes.",
	"capabilities.features.mixed-languages":                "One Machine has both interpreters over the same files; with Pyodide each language is a sandbox of its own.",
	"capabilities.features.parallel-runs":                  "Interpreters are processes side by side; Pyodide has one thread, for everything.",
	"capabilities.features.files-during-run":               "The supervisor reads and writes files beside the code; in Pyodide the code and the files are one thread's.",
	"capabilities.features.attach":                         "A Machine outlives the program and can be found again by its name; a Pyodide sandbox is a child of the program, and dies with it.",
	"capabilities.features.fencing":                        "Where there is no attach there is no later holder to fence against.",
	"capabilities.features.list":                           "The API knows all Machines; of child processes only their parent knows.",
	"capabilities.features.keep-alive":                     "A Machine has an idle time of its own; a Pyodide sandbox lives as long as its session.",
	"capabilities.features.limit-cpu":                      "Machines come in sizes; a process of Pyodide may use one processor for as long as the wall time lets it.",
	"capabilities.features.limit-disk":                     "A Machine has a root file system of about 8 GB, and nothing that would make it smaller; a Spec that limits it is refused.",
	"capabilities.features.limit-processes":                "There is nothing to limit where code cannot start a process.",
	"capabilities.features.network-full":                   "A Machine can be given a network; the code in Pyodide never has one.",
	"capabilities.languages.python.version":                "Pyodide's Python is part of it; a Machine's is that of the image, so no version is declared.",
	"capabilities.languages.python.features.":              "Python in a Machine is a process of the operating system, with all that belongs to one.",
	"capabilities.languages.javascript.version":            "With Pyodide JavaScript is that of its host's engine; in a Machine it is the Node.js of the image, so no version is declared.",
	"capabilities.languages.javascript.features.":          "In a Machine JavaScript is Node.js, with processes and threads; with Pyodide it is one thread, with some of Node's modules.",
	"capabilities.languages.javascript.features.packages":  "Packages of npm come from a registry that the configuration names; with Pyodide JavaScript has the modules that its page lists, and no others.",
	"capabilities.languages.javascript.features.interrupt": "Node.js can be interrupted in the middle of a loop; the engine behind Pyodide can only be ended, with its state.",
	"capabilities.isolation":                               "A Machine is a virtual machine with a kernel of its own, by the word of the service; WebAssembly runs in a process on your machine, which the operating system confines.",
	"capabilities.templates.small":                         "Templates are in the configuration on both; the one that was tested on Fly Machines has this one.",
	"capabilities.max_limits.":                             "Pyodide keeps code and files in the memory of one process, which ends there; Machines come in sizes, of which this is the largest.",
}}, {"pyodide", "modal", map[string]string{
	"capabilities.features.pty":                            "A Sandbox has programs to give a terminal to; WebAssembly has no processes.",
	"capabilities.features.ports":                          "Code in Pyodide has no sockets, so nothing can listen there. Elsewhere `ports: true` in the configuration allows it.",
	"mode":                                                 "The suite ran over a stand-in for Modal, whose Sandboxes are containers: what it says of Modal itself is only as good as that.",
	"capabilities.features.command":                        "A Sandbox has programs to run; WebAssembly has no processes.",
	"capabilities.features.mixed-languages":                "One Sandbox has both interpreters over the same files; with Pyodide each language is a sandbox of its own.",
	"capabilities.features.parallel-runs":                  "Interpreters are processes side by side; Pyodide has one thread, for everything.",
	"capabilities.features.files-during-run":               "The supervisor reads and writes files beside the code; in Pyodide the code and the files are one thread's.",
	"capabilities.features.attach":                         "A Sandbox outlives the program and can be found again by its tags; a Pyodide sandbox is a child of the program, and dies with it.",
	"capabilities.features.fencing":                        "Where there is no attach there is no later holder to fence against.",
	"capabilities.features.list":                           "Modal lists all Sandboxes; of child processes only their parent knows.",
	"capabilities.features.keep-alive":                     "A Sandbox has an idle time of its own; a Pyodide sandbox lives as long as its session.",
	"capabilities.features.limit-cpu":                      "Modal enforces a limit; a process of Pyodide may use one processor for as long as the wall time lets it.",
	"capabilities.features.limit-disk":                     "A Sandbox of Modal has no limit of its disk; a Spec that limits it is refused.",
	"capabilities.features.limit-processes":                "There is nothing to limit where code cannot start a process.",
	"capabilities.features.network-full":                   "A Sandbox can be given a network; the code in Pyodide never has one.",
	"capabilities.languages.python.version":                "Pyodide's Python is part of it; a Sandbox's is that of the image, so no version is declared.",
	"capabilities.languages.python.features.":              "Python in a Sandbox is a process of the operating system, with all that belongs to one.",
	"capabilities.languages.javascript.version":            "With Pyodide JavaScript is that of its host's engine; in a Sandbox it is the Node.js of the image, so no version is declared.",
	"capabilities.languages.javascript.features.":          "In a Sandbox JavaScript is Node.js, with processes and threads; with Pyodide it is one thread, with some of Node's modules.",
	"capabilities.languages.javascript.features.packages":  "Packages of npm come from a registry that the configuration names; with Pyodide JavaScript has the modules that its page lists, and no others.",
	"capabilities.languages.javascript.features.interrupt": "Node.js can be interrupted in the middle of a loop; the engine behind Pyodide can only be ended, with its state.",
	"capabilities.isolation":                               "With `runtime: vm` a Sandbox is a virtual machine, by the word of the service; with gVisor it has less, as the guide says; WebAssembly runs in a process on your machine, which the operating system confines.",
	"capabilities.templates.small":                         "Templates are in the configuration on both; the one that was tested on Modal has this one.",
	"capabilities.max_limits.":                             "Pyodide keeps code and files in the memory of one process, which ends there; a Sandbox may have what Modal gives, or what max_limits says.",
}}, {"docker", "modal", map[string]string{
	"mode":                             "The suite ran over a stand-in for Modal, whose Sandboxes are containers: what it says of Modal itself is only as good as that.",
	"capabilities.features.limit-disk": "Modal has no limit of the disk of a Sandbox; a Spec that limits it is refused.",
	"capabilities.isolation":           "With `runtime: vm` a Sandbox is a virtual machine, by the word of the service; containers share the kernel of the host.",
}}, {"flymachines", "modal", map[string]string{
	"capabilities.max_limits.": "Machines come in sizes, of which this is the largest; Modal has limits of its own, and max_limits in the configuration says less.",
}}, {"e2b", "modal", map[string]string{
	"capabilities.features.limit-cpu":    "At E2B processors are those of the template; a Spec chooses those of a Sandbox.",
	"capabilities.features.limit-memory": "At E2B memory is that of the template; a Spec chooses that of a Sandbox.",
	"capabilities.max_life":              "Plans of E2B bound the life of a sandbox: 1 hour or 24. Modal's bound is 24 hours.",
	"capabilities.templates.small":       "Templates are in the configuration on both; the one that was tested on Modal has this one.",
}}, {"flymachines", "e2b", map[string]string{
	"capabilities.features.limit-cpu":    "Machines come in sizes that a Spec chooses from; at E2B processors are those of the template.",
	"capabilities.features.limit-memory": "Machines come in sizes that a Spec chooses from; at E2B memory is that of the template. Build one for each size, and name them as templates.",
	"capabilities.max_life":              "Plans of E2B bound the life of a sandbox: 1 hour or 24. max_life in the configuration says which.",
	"capabilities.max_limits.":           "Nothing can be asked for but processes.",
	"capabilities.templates.small":       "Templates are in the configuration on both; the one that was tested on Fly Machines has this one.",
}}, {"pyodide", "e2b", map[string]string{
	"capabilities.features.pty":                            "A sandbox of E2B has programs to give a terminal to; WebAssembly has no processes.",
	"capabilities.features.ports":                          "Code in Pyodide has no sockets, so nothing can listen there. Elsewhere `ports: true` in the configuration allows it.",
	"mode":                                                 "The suite ran over a stand-in for E2B, whose sandboxes are containers: what it says of E2B itself is only as good as that.",
	"capabilities.features.command":                        "A machine has programs to run; WebAssembly has no processes.",
	"capabilities.features.mixed-languages":                "One machine has both interpreters over the same files; with Pyodide each language is a sandbox of its own.",
	"capabilities.features.parallel-runs":                  "Interpreters are processes side by side; Pyodide has one thread, for everything.",
	"capabilities.features.files-during-run":               "The supervisor reads and writes files beside the code; in Pyodide the code and the files are one thread's.",
	"capabilities.features.attach":                         "A sandbox of E2B outlives the program and can be found again by its ID; a Pyodide sandbox is a child of the program, and dies with it.",
	"capabilities.features.fencing":                        "Where there is no attach there is no later holder to fence against.",
	"capabilities.features.list":                           "The service knows all sandboxes; of child processes only their parent knows.",
	"capabilities.features.keep-alive":                     "A sandbox of E2B has a time of its own; a Pyodide sandbox lives as long as its session.",
	"capabilities.features.limit-memory":                   "Memory is that of the template.",
	"capabilities.features.limit-disk":                     "The disk is that of the template.",
	"capabilities.features.limit-processes":                "There is nothing to limit where code cannot start a process.",
	"capabilities.features.network-":                       "A machine can be given a network; the code in Pyodide never has one.",
	"capabilities.features.network-full":                   "A machine can be given a network; the code in Pyodide never has one.",
	"capabilities.languages.python.version":                "Pyodide's Python is part of it; a sandbox's is that of the template, so no version is declared.",
	"capabilities.languages.python.features.":              "Python in a sandbox is a process of the operating system, with all that belongs to one.",
	"capabilities.languages.javascript.version":            "With Pyodide JavaScript is that of its host's engine; in a sandbox it is the Node.js of the template, so no version is declared.",
	"capabilities.languages.javascript.features.":          "In a sandbox JavaScript is Node.js, with processes and threads; with Pyodide it is one thread, with some of Node's modules.",
	"capabilities.languages.javascript.features.packages":  "Packages of npm come from a registry that the configuration names; with Pyodide JavaScript has the modules that its page lists, and no others.",
	"capabilities.languages.javascript.features.interrupt": "Node.js can be interrupted in the middle of a loop; the engine behind Pyodide can only be ended, with its state.",
	"capabilities.isolation":                               "A sandbox of E2B is a virtual machine, by the word of the service; WebAssembly runs in a process on your machine, which the operating system confines.",
	"capabilities.max_life":                                "Plans of E2B bound the life of a sandbox: 1 hour or 24. max_life in the configuration says which.",
	"capabilities.max_limits.":                             "Pyodide keeps code and files in the memory of one process, which ends there; in a sandbox nothing can be asked for but processes.",
}}, {"e2b", "e2b-code-interpreter", map[string]string{
	"capabilities.features.ports":                       "Connections are made by the runner, which this kernel does without.",
	"python/values/json":                                "E2B gives JSON only of values that are shown as JSON, not of plain containers.",
	"capabilities.features.aliases":                     "The supervisor makes other names of the working directory before there is code; this kernel has none.",
	"capabilities.features.typescript":                  "The kernel has no JavaScript, whose interpreters run TypeScript.",
	"capabilities.features.mixed-languages":             "The suite runs with this kernel in Python only, so its configuration names no other language. Sessions with several have them over the same files here, too.",
	"capabilities.features.limit-processes":             "The supervisor counts what it has started. Kernels of E2B are started by E2B's own service, beside it.",
	"capabilities.features.x-code-interpreter":          "What a Spec requires that wants this kernel and no other.",
	"capabilities.languages.python.features.stdin":      "E2B gives its kernels no standard input: input() raises there, and a request with one is refused.",
	"capabilities.languages.python.features.cell-names": "Tracebacks are as IPython words them: Cell In[3].",
	"capabilities.languages.python.features.packages":   "With this kernel packages are those of the template.",
	"capabilities.languages.python.features.linger":     "E2B's kernels end a run at its last statement, whatever it has left running.",
	"capabilities.languages.javascript":                 "The suite runs with this kernel in Python only. It has JavaScript all the same, and TypeScript, R, Java and Bash, if the configuration names them.",
	"python/output/binary":                              "The events of E2B's code interpreter carry text. What is no UTF-8 arrives as U+FFFD; write bytes to a file, or run a command.",
	"python/output/half-character":                      "The events of E2B's code interpreter carry text. What is no UTF-8 arrives as U+FFFD; write bytes to a file, or run a command.",
}}}

func (m move) page() string { return filepath.Join(reportsDir, m.from+"-to-"+m.to+".md") }

// because returns the reason of a line.
func (m move) because(what string) string {
	if why, ok := m.why[what]; ok {
		return why
	}
	for i := len(what); i > 0; i = strings.LastIndexByte(what[:i-1], '.') + 1 {
		if why, ok := m.why[what[:i]]; ok {
			return why
		}
	}
	return ""
}

// write writes what changes for a program that moves, each line with what it is about and why. A
// line without a reason is an error: somebody has to find out.
func (m move) write(w io.Writer, from, to *conformance.Report) error {
	changes, err := conformance.Diff(from, to)
	if err != nil {
		return err
	}
	b := bufio.NewWriter(w)
	fmt.Fprintf(b, "# From %s to %s\n\n", m.from, m.to)
	fmt.Fprintf(b, "What `execbroker conformance diff docs/reports/%s.json docs/reports/%s.json` prints, and why it is so. Made by `make matrix`.\n", m.from, m.to)
	fmt.Fprint(b, "What is not listed is the same on both, case by case.\n\n")
	fmt.Fprintf(b, "| | %s | %s | About | Why |\n|---|---|---|---|---|\n", m.from, m.to)
	cell := strings.NewReplacer("|", `\|`, "\n", " ")
	for _, c := range changes {
		why := m.because(c.What)
		if why == "" {
			return fmt.Errorf("%s: nobody has explained %s: %s > %s", m.page(), c.What, c.From, c.To)
		}
		fmt.Fprintf(b, "| `%s` | %s | %s | %s | %s |\n", c.What, cell.Replace(cmp.Or(c.From, "none")), cell.Replace(cmp.Or(c.To, "none")), cell.Replace(c.Doc), cell.Replace(why))
	}
	return b.Flush()
}
