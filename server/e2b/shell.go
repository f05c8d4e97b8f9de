package e2b

import (
	"context"
	"errors"
	"io/fs"
	"maps"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/execbroker/execbroker/executor"
)

// bash is a language of E2B that backends need not have: it runs as a command.
const bash executor.Language = "bash"

const (
	maxShellWord = 96 << 10 // the kernel takes 128 KiB
	maxShellCode = 1 << 20  // the kernel takes twice that for all words and the environment
)

// shellScript runs code with what the code before it has left: variables, functions, aliases,
// options and the directory. Its arguments are the file that keeps the state, the names of the
// variables that are those of this run, in one word, and the code in pieces. The code is in
// arguments because that is where guards and audits look. The script becomes one line, so that the
// first line of the code is line 1 in messages.
var shellScript = strings.ReplaceAll(`
__execbroker_file=$1; __execbroker_names=" $2 "; printf -v __execbroker_code %s "${@:3}"; set -- $2;
__execbroker_env=();
for __execbroker_n in "$@"; do __execbroker_env+=("$__execbroker_n=${!__execbroker_n}"); unset "$__execbroker_n"; done;
__execbroker_save() {
	[ -z "${__execbroker_saved:-}" ] || return "${1:-0}";
	__execbroker_saved=1;
	local __execbroker_options="$(set +o; shopt -p)";
	set +euvx;
	(
		umask 077; unset -f __execbroker_save;
		{
			printf 'builtin cd -- %q\n' "$PWD";
			compgen -A variable | while IFS= read -r __execbroker_n; do
				case $__execbroker_n in
				BASH*|COMP_*|DIRSTACK|EPOCH*|EUID|FUNCNAME|GROUPS|HISTCMD|LINENO|OPTIND|PIPESTATUS|PPID|PWD|RANDOM|SECONDS|SHELLOPTS|SHLVL|SRANDOM|UID|_|__execbroker_*) ;;
				*) [[ $__execbroker_names = *" $__execbroker_n "* ]] || declare -p "$__execbroker_n" ;;
				esac;
			done;
			printf '%s\n' "$__execbroker_kept";
			declare -f; alias -p;
			while IFS= read -r __execbroker_n; do
				case $__execbroker_n in
				*noexec|*onecmd|*verbose|*xtrace|*monitor|*history|*privileged|*restricted_shell) ;;
				*) printf '%s\n' "$__execbroker_n" ;;
				esac;
			done <<< "$__execbroker_options";
		} > "$__execbroker_file.new" && command -p mv -f "$__execbroker_file.new" "$__execbroker_file"
	) 2>/dev/null;
	return "${1:-0}";
};
trap __execbroker_save EXIT; shopt -s expand_aliases;
[ ! -r "$__execbroker_file" ] || . "$__execbroker_file" 2>/dev/null;
__execbroker_kept=$(for __execbroker_n in "$@"; do declare -p "$__execbroker_n"; done 2>/dev/null) || :;
set --;
for __execbroker_n in ${__execbroker_env[@]+"${__execbroker_env[@]}"}; do export "$__execbroker_n"; done;
eval "$__execbroker_code"; __execbroker_save $?
`, "\n", " ")

var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// hasShell reports whether sandboxes run Bash by commands. A backend may have the language itself.
func hasShell(caps executor.Capabilities) bool {
	_, itself := caps.Runtime(bash)
	return !itself && len(caps.MissingForRequest(shellRequest(executor.Request{Dir: executor.Workdir}, ""))) == 0
}

// shellRequest makes a command of code.
func shellRequest(req executor.Request, file string) executor.Request {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(req.Env)) {
		if variableName.MatchString(name) {
			names = append(names, name)
		}
	}
	req.Command = []string{"/bin/bash", "-c", shellScript, "bash", file, strings.Join(names, " ")}
	piece, code := 0, strings.ReplaceAll(req.Code, "\x00", "") // Bash ignores them as well
	for i, r := range code {
		if i+utf8.RuneLen(r)-piece > maxShellWord {
			req.Command = append(req.Command, code[piece:i])
			piece = i
		}
	}
	req.Command = append(req.Command, code[piece:])
	req.Language, req.Context, req.Code, req.Linger = "", "", "", nil
	return req
}

// checkShell refuses code that is too long for a command line.
func checkShell(code string) error {
	if len(code) > maxShellCode {
		return refuse(http.StatusRequestEntityTooLarge, "the code has %d bytes, and Bash takes %d; upload it as a file and run that", len(code), maxShellCode)
	}
	return nil
}

// shellState is the file with the state of a context. It belongs to the user.
func (x *codeContext) shellState() string { return "/tmp/.execbroker-bash-" + x.ID }

var errRestarted = errors.New("the context was restarted")

// nextShell makes a command of the next code of x. The context that it returns ends with a restart,
// too.
func (x *codeContext) nextShell(ctx context.Context, req executor.Request) (context.Context, context.CancelCauseFunc, executor.Request) {
	ctx, stop := context.WithCancelCause(ctx)
	x.mu.Lock()
	defer x.mu.Unlock()
	x.stop = stop
	req.Dir = x.dir // what was kept has another one
	return ctx, stop, shellRequest(req, x.shellState())
}

// cell returns the number of a run that has started.
func (x *codeContext) cell() int {
	x.mu.Lock()
	defer x.mu.Unlock()
	x.runs++
	return x.runs
}

// restartShell ends what runs in a context of Bash, and removes what it has kept.
func (b *sandbox) restartShell(ctx context.Context, x *codeContext) error {
	x.mu.Lock()
	if x.stop != nil {
		x.stop(errRestarted)
	}
	x.mu.Unlock()
	give, err := take(ctx, x.turn)
	if err != nil {
		return err
	}
	defer give()
	err = b.session.Files().Remove(ctx, x.shellState())
	if errors.Is(err, fs.ErrNotExist) { // no run has come to its end
		return nil
	}
	return b.seen(err)
}
