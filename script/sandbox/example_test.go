package sandbox_test

import (
	"context"
	"encoding/json"
	"fmt"
	"time"

	"github.com/keep-run/keep/script/sandbox"
)

// greeter is a host with one tool.
type greeter struct{}

func (greeter) Call(_ context.Context, c sandbox.HostCall) (json.RawMessage, error) {
	if c.Name != "people.greet" {
		return nil, fmt.Errorf("there is no %s", c.Name)
	}
	return json.RawMessage(`"hello, ` + string(c.Args[0][1:])), nil
}

func Example() {
	ctx := context.Background()
	rt, err := sandbox.Open(ctx, sandbox.Config{Limits: sandbox.Limits{CPU: time.Second}})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer rt.Close()
	bundle, err := sandbox.BuildSource("greet.ts", []byte(`
		export default Keep.workflow({
			name: "greet",
			async greet(ctx, name: string) {
				const text = await ctx.people.greet(name);
				return { text, at: new Date() };
			},
			async fail(ctx) { await ctx.people.insult("Bob"); },
		});`))
	if err != nil {
		fmt.Println(err)
		return
	}
	program, err := rt.Load(ctx, bundle)
	if err != nil {
		fmt.Println(err)
		return
	}
	now := time.Date(2026, 11, 20, 9, 0, 0, 0, time.UTC)
	result, err := program.Call(ctx, sandbox.Call{
		Path: []string{"greet"}, Args: []json.RawMessage{json.RawMessage(`"Ann"`)}, Now: now, Host: greeter{},
	})
	fmt.Println(string(result), err)
	_, err = program.Call(ctx, sandbox.Call{Path: []string{"fail"}, Now: now, Host: greeter{}})
	fmt.Println(err)
	// Output:
	// {"text":"hello, Ann","at":"2026-11-20T09:00:00.000Z"} <nil>
	// people.insult: there is no people.insult (at greet.ts:8:39)
}
