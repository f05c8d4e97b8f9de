package tool_test

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"testing"
	"time"

	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/internal/fake"
	"github.com/execbroker/execbroker/tool"
)

func TestCheck(t *testing.T) {
	some := tool.Options{
		MaxCode: 100, MaxTimeout: time.Minute,
		Packages: map[executor.Language][]string{executor.Python: {"scikit-learn", "numpy"}, executor.JavaScript: {"@scope/ms"}},
	}
	install := func(l executor.Language, names ...string) tool.Input {
		return tool.Input{Code: "1", Language: l, Packages: names}
	}
	file := func(names ...string) tool.Input {
		in := tool.Input{Code: "1"}
		for _, n := range names {
			in.Files = append(in.Files, tool.InputFile{Name: n})
		}
		return in
	}
	tests := map[string]struct {
		in   tool.Input
		c    executor.Capabilities // zero: all capabilities
		want string                // empty: no problem
	}{
		"fine":             {in: tool.Input{Code: "1", Language: executor.Python, Timeout: time.Minute}},
		"default-language": {in: tool.Input{Code: "1"}},
		"bash":             {in: tool.Input{Code: "ls", Language: tool.Bash}},
		"empty":            {in: tool.Input{Code: " \n"}, want: `"code" is empty`},
		"large":            {in: tool.Input{Code: strings.Repeat("x", 101)}, want: "The code has 101 bytes; at most 100 are allowed."},
		"nul":              {in: tool.Input{Code: "a\nb\x00"}, want: "NUL byte in line 2"},
		"not-utf8":         {in: tool.Input{Code: "'\xff'"}, want: "not valid UTF-8"},
		"language":         {in: tool.Input{Code: "1", Language: "r"}, want: `The language "r" is not available. Use python, javascript or bash.`},
		"bash-missing":     {in: tool.Input{Code: "ls", Language: tool.Bash}, c: fake.Without(fake.All(), executor.FeatureCommand), want: "Use python or javascript."},
		"timeout":          {in: tool.Input{Code: "1", Timeout: 61 * time.Second}, want: "A timeout of 61 s is too long; at most 60 s are allowed."},
		"several":          {in: tool.Input{Code: "\x00", Language: "r", Timeout: time.Hour}, want: "3600 s"},

		"package":              {in: install(executor.Python, "numpy")},
		"package-version":      {in: install(executor.Python, "NumPy >= 2, <3", "scikit_learn[all]==1.5")},
		"package-refused":      {in: install(executor.Python, "numpy", "Requests==2"), want: "Not allowed here: requests. Allowed packages for python: scikit-learn, numpy."},
		"package-url":          {in: install(executor.Python, "numpy @ https://example.org/x.whl"), want: "is not the name of a package"},
		"package-option":       {in: install(executor.Python, "--index-url=x"), want: "is not the name of a package"},
		"package-path":         {in: install(executor.Python, "./numpy"), want: "is not the name of a package"},
		"package-command":      {in: install(executor.Python, "numpy; rm -rf /"), want: "is not the name of a package"},
		"package-npm":          {in: install(executor.JavaScript, "@Scope/ms@^2")},
		"package-npm-refused":  {in: install(executor.JavaScript, "ms"), want: "Not allowed here: ms."},
		"package-npm-alias":    {in: install(executor.JavaScript, "ms@npm:evil"), want: "is not the name of a package"},
		"package-npm-git":      {in: install(executor.JavaScript, "github:a/b"), want: "is not the name of a package"},
		"package-bash":         {in: install(tool.Bash, "numpy"), want: "Packages cannot be installed for bash here."},
		"packages-unsupported": {in: install(executor.Python, "numpy"), c: fake.Without(fake.All(), executor.FeaturePackages), want: "cannot be installed for python"},
		"packages-many":        {in: install(executor.Python, make([]string, 51)...), want: "51 packages are too many"},

		"file":              {in: file("a.csv", "dir/b.csv", "/workspace/c.csv")},
		"file-above":        {in: file("../a"), want: `"../a" is no name for a file`},
		"file-elsewhere":    {in: file("/etc/passwd"), want: "is no name for a file"},
		"file-workdir":      {in: file("."), want: "is no name for a file"},
		"file-directory":    {in: file("a/"), want: "is no name for a file"},
		"file-nul":          {in: file("a\x00"), want: "is no name for a file"},
		"file-twice":        {in: file("a", "./a"), want: `The file "a" is there twice.`},
		"files-many":        {in: file(make([]string, 101)...), want: "101 files are too many"},
		"files-unsupported": {in: file("a"), c: fake.Without(fake.All(), executor.FeatureFiles), want: "Files cannot be passed here."},
		"nothing-there":     {in: tool.Input{Code: "1"}, c: executor.Capabilities{Isolation: executor.IsolationWasm}, want: "No language is available"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if test.c.Isolation == "" {
				test.c = fake.All()
			}
			err := tool.Check(test.in, test.c, some)
			if test.want == "" {
				if err != nil {
					t.Errorf("got %v, want nothing wrong", err)
				}
				return
			}
			var bad *tool.InputError
			if !errors.As(err, &bad) || !strings.Contains(bad.Error(), test.want) {
				t.Errorf("got %v, want an InputError with %q", err, test.want)
			}
		})
	}
	all := tool.Check(tool.Input{Code: "\x00", Language: "r", Timeout: time.Hour}, fake.All(), some)
	if bad := (*tool.InputError)(nil); !errors.As(all, &bad) || len(bad.Problems) != 3 {
		t.Errorf("got %v, want all three problems", all)
	}
	if err := tool.Check(install(executor.Python, "anything"), fake.All(), tool.Options{}); err != nil {
		t.Errorf("without a list: %v", err)
	}
}

func TestExplain(t *testing.T) {
	refused := func(kind error, text string) *executor.Error {
		return &executor.Error{Op: "run", Backend: "docker", Session: "secret-id", Kind: kind, Ran: executor.RanNo, Err: errors.New(text)}
	}
	rate := refused(executor.ErrDenied, "guard: runs_per_minute: the subject has had 3 runs within a minute; the next is possible in 12s")
	rate.RetryAfter = 11500 * time.Millisecond
	in := func(d time.Duration) *executor.Error {
		e := refused(executor.ErrDenied, "guard: quota")
		e.RetryAfter = d
		return e
	}
	const quota = "Refused by a rule of this service: quota. Try again in "
	maybe := refused(executor.ErrUnavailable, "dial tcp 10.0.0.7:2375: connection refused")
	maybe.Ran = executor.RanMaybe
	fetching := refused(executor.ErrUnavailable, "")
	fetching.Err = &executor.PackageError{Packages: executor.Packages{Language: executor.Python, Names: []string{"six"}}, Err: errors.New("dial 10.0.0.7:443")}
	missing := refused(executor.ErrUnsupported, "")
	missing.Missing = []string{"stdin:python"}
	tests := map[string]struct {
		err  error
		want string
	}{
		"nil":      {nil, ""},
		"input":    {&tool.InputError{Problems: []string{"One.", "Two."}}, "One. Two."},
		"rate":     {rate, "Refused by a rule of this service: runs_per_minute: the subject has had 3 runs within a minute; the next is possible in 12s. Try again in 12 seconds."},
		"minutes":  {in(2*time.Minute + time.Second), quota + "3 minutes."},
		"hours":    {in(79514 * time.Second), quota + "23 hours."},
		"days":     {in(20 * 24 * time.Hour), quota + "20 days."},
		"packages": {refused(executor.ErrDenied, "guard: packages: x is not on the list of python packages; allowed are: numpy"), "Refused by a rule of this service: packages: x is not on the list of python packages; allowed are: numpy. The same call will be refused again."},
		"wrapped":  {fmt.Errorf("call: %w", refused(executor.ErrBusy, "")), "An earlier run of this conversation is still going. Wait until it has ended."},
		"away":     {refused(executor.ErrUnavailable, "dial unix /var/run/docker.sock"), "No sandbox is available at the moment. Try again later, or answer without running code."},
		"maybe":    {maybe, "No sandbox is available at the moment. Try again later, or answer without running code. The code may have run: look at what is there before you run it again."},
		"index":    {fetching, "The packages could not be fetched, so nothing was run: packages: python [\"six\"]: dial …. Use others, do without, or try again later."},
		"missing":  {missing, "This sandbox cannot do that; it lacks: stdin:python. Find a way without."},
		"gone":     {refused(executor.ErrNotFound, ""), "The sandbox has ended, with its variables and files. The next call gets a new one."},
		"invalid":  {refused(executor.ErrInvalid, "open /home/app/x: see https://10.1.1.1/a, /workspace/b or 10.2.3.4:99, [::1]:80, C:\\x"), "The call was refused: open …: see … /workspace/b or …, …, …."},
		"canceled": {refused(context.Canceled, "stop"), "The run was cancelled."},
		"internal": {refused(executor.ErrInternal, "frame"), "The sandbox could not be used because of a failure of the service, which the code has not caused."},
		"file":     {refused(fs.ErrNotExist, "x"), "The sandbox could not be used because of a failure of the service, which the code has not caused."},
		"other":    {errors.New("no space on /dev/sda1"), "The sandbox could not be used because of a failure of the service, which the code has not caused. The code may have run: look at what is there before you run it again."},
		"context":  {context.Canceled, "The run was cancelled."},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := tool.Explain(test.err); got != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
		})
	}
}
