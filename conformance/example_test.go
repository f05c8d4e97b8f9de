package conformance_test

import (
	"context"
	"fmt"

	"github.com/execbroker/execbroker/conformance"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

// target is what the examples test: a backend in memory.
func target(declared executor.Capabilities) conformance.Target {
	b := fake.New(fake.Options{Capabilities: declared})
	return conformance.Target{
		Implementation: conformance.Implementation{Name: "example", Version: "1"},
		Mode:           conformance.Fake,
		Open: func(_ context.Context, params map[string]string) (executor.Executor, error) {
			return b.Open(driver.Env{Owner: params[conformance.ParamOwner]})
		},
		Programs: []conformance.Programs{{Language: executor.Python, Source: fake.Programs(executor.Python)}},
		Must:     conformance.Must{Languages: map[executor.Language][]executor.Feature{executor.Python: {executor.FeatureStdin}}},
		Only:     []string{"declares", "python/stdin/line", "python/state/once"},
	}
}

func ExampleRun() {
	report, err := conformance.Run(context.Background(), target(fake.Without(fake.All(executor.Python), executor.FeatureStdin)))
	if err != nil {
		fmt.Println(err)
	}
	for _, l := range report.Cases {
		if l.Outcome != conformance.Unchecked {
			fmt.Printf("%s: %s\n", l.ID, l.Outcome)
		}
	}
	// Output:
	// declares: failed
	// python/state/once: passed
	// python/stdin/line: refused
}

func ExampleDiff() {
	ctx := context.Background()
	from, err := conformance.Run(ctx, target(fake.All(executor.Python)))
	if err != nil {
		fmt.Println(err)
	}
	to, err := conformance.Run(ctx, target(fake.Without(fake.All(executor.Python), executor.FeatureStdin, executor.FeatureKeepAlive)))
	if err != nil {
		fmt.Println(err)
	}
	changes, err := conformance.Diff(from, to)
	if err != nil {
		fmt.Println(err)
	}
	for _, c := range changes {
		fmt.Printf("%s: %s, then %s\n", c.What, c.From, c.To)
	}
	// Output:
	// capabilities.features.keep-alive: yes, then no
	// capabilities.languages.python.features.stdin: yes, then no
	// declares: passed, then failed
}
