package connector_test

import (
	"context"
	"encoding/json"
	"fmt"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
)

type transfer struct {
	ID     string `json:"id"`
	Amount int    `json:"amount"`
}

// A bank is a service that keeps the key of each transfer.
type bank struct{ byKey map[string]transfer }

// A tool that reads is a function of its params.
func ExampleNewReader() {
	balance := connector.NewReader(connector.Spec{Name: "balance"}, func(_ context.Context, p struct {
		Account string `json:"account"`
	}) (int, error) {
		if p.Account == "" {
			return 0, keep.Failf(keep.ClassLogic, "no-account", "say which account")
		}
		return 100, nil
	})
	out, err := balance.Read(context.Background(), json.RawMessage(`{"account": "ada"}`))
	fmt.Println(string(out), err)
	_, err = balance.Read(context.Background(), json.RawMessage(`{}`))
	fmt.Println(err)
	// Output:
	// 100 <nil>
	// say which account
}

// A tool that changes something gives the service the key, and finds by it whether the change happened when its answer was lost.
func ExampleNewMutator() {
	b := bank{make(map[string]transfer)}
	pay := connector.NewMutator(connector.Spec{Name: "pay", Identity: []string{"id"}}, connector.Change[transfer, string]{
		Do: func(_ context.Context, key string, p transfer) (string, error) {
			if p.Amount <= 0 { // nothing was done, nor ever will be
				return "", keep.Failf(keep.ClassLogic, "no-amount", "transfer %s has no amount", p.ID)
			}
			b.byKey[key] = p
			return "", fmt.Errorf("the connection ended") // it may have happened
		},
		Find: func(_ context.Context, key string, _ transfer) (string, bool, error) {
			p, found := b.byKey[key]
			return "receipt of " + p.ID, found, nil
		},
	})
	fmt.Println("level", pay.Spec().Level)
	call := keep.Mutation{Token: "key-1", Payload: json.RawMessage(`{"id": "17", "amount": 5}`)}
	_, err := pay.Mutate(context.Background(), call)
	fmt.Println(err)
	answer, err := pay.(connector.Reconciler).Reconcile(context.Background(), call)
	fmt.Println(answer.Verdict, string(answer.Result), err)
	// Output:
	// level C
	// the connection ended
	// happened "receipt of 17" <nil>
}
