package backends_test

import (
	"context"
	"fmt"

	"github.com/execbroker/execbroker/backends"
	"github.com/execbroker/execbroker/executor"
	"github.com/execbroker/execbroker/executor/driver"
	"github.com/execbroker/execbroker/internal/fake"
)

// A program lists the adapters that it links. Programs that want all of this module use
// backends/all.Registry.
func exampleRegistry() *backends.Registry {
	b := fake.New(fake.Options{})
	return backends.NewRegistry(driver.NewFactory(fake.Type, func(_ context.Context, env driver.Env, _ struct{}) (executor.Executor, error) {
		return b.Open(env)
	}, nil))
}

// A program gets one Executor for all that the file describes.
func ExampleOpen() {
	ctx := context.Background()
	cfg, err := backends.Parse([]byte("backends: {local: {type: fake}}"))
	if err != nil {
		fmt.Println(err)
		return
	}
	box, err := backends.Open(ctx, driver.Env{Owner: "shop-prod"}, exampleRegistry(), cfg)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer box.Close()
	res, err := executor.Run(ctx, box, executor.Spec{Subject: "user-7"}, executor.Request{Language: executor.Python, Code: "print(6*7)"})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Printf("%s on %s: %s", res.Status, res.Origin.Backend, res.Stdout)
	// Output: ok on local: 42
}

// All errors are reported at once, in the order of the text.
func ExampleParse() {
	cfg, err := backends.Parse([]byte("backends:\n  box: {type: fkae}\n  cloud: {tyop: fake}\nbakends: {}\n"))
	for _, m := range append(executor.FieldErrors(err), executor.FieldErrors(cfg.Check(exampleRegistry()))...) {
		fmt.Println(m)
	}
	// Output:
	// unknown field "bakends"; did you mean "backends"? (line 4, column 1)
	// backends.box.type: unknown type "fkae"; did you mean "fake"? (line 2, column 9)
	// backends.cloud: unknown field "tyop"; did you mean "type"? (line 3, column 11)
}
