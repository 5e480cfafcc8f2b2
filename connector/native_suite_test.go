package connector_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/url"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/once"
	"github.com/keep-run/keep/testkit/connectortest"
)

// A payments is a service as a program in Go reaches it.
type payments struct{ base string }

var client = once.NewClient()

type payment struct {
	ID string `json:"id"`
}

func (s payments) pay(ctx context.Context, key string, p payment) (done payment, err error) {
	body, err := json.Marshal(p)
	if err != nil {
		return done, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, s.base+"/marked", bytes.NewReader(body))
	if err != nil {
		return done, err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := client.Do(req)
	if err != nil {
		return done, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusCreated:
	case http.StatusTooManyRequests:
		return done, keep.Failf(keep.ClassTransient, "busy", "%s", resp.Status)
	case http.StatusUnprocessableEntity:
		return done, keep.Failf(keep.ClassLogic, "refused", "%s", resp.Status)
	case http.StatusUnauthorized:
		return done, keep.Failf(keep.ClassPermission, "refused", "%s", resp.Status)
	default:
		return done, fmt.Errorf("the answer is %s", resp.Status)
	}
	return p, json.NewDecoder(resp.Body).Decode(&done)
}

func (s payments) find(ctx context.Context, key string, p payment) (done payment, found bool, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base+"/effects?ref="+url.QueryEscape(key), nil)
	if err != nil {
		return done, false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return done, false, err
	}
	defer resp.Body.Close()
	var list struct{ Data []json.RawMessage }
	if resp.StatusCode != http.StatusOK {
		return done, false, fmt.Errorf("the answer is %s", resp.Status)
	}
	err = json.NewDecoder(resp.Body).Decode(&list)
	return p, len(list.Data) > 0, err
}

// A tool of two Go functions, which sends with the client of package once, keeps all promises of connectors.
func TestNativeSuite(t *testing.T) {
	connectortest.Run(t, func(tb testing.TB) *connectortest.Bench {
		o, err := connectortest.NewOracle()
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(o.Close)
		px, err := connectortest.NewProxy(o.Addr())
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(px.Close)
		s := payments{"http://" + px.Addr()}
		return &connectortest.Bench{
			Connection: &connector.Connection{Name: "bank", Connector: "go", Tools: []connector.Tool{connector.NewMutator(connector.Spec{
				Name: "pay", Description: "Pays.", Identity: []string{"id"}, Params: json.RawMessage(`{"type": "object", "required": ["id"], "properties": {"id": {"type": "string"}}, "additionalProperties": false}`),
				VerifyByHand: "Look at the list of effects.",
			}, connector.Change[payment, payment]{Do: s.pay, Find: s.find, Target: func(p payment) string { return "payments/" + p.ID }})}},
			Tool:     "pay",
			Params:   func(n int) json.RawMessage { return json.RawMessage(fmt.Sprintf(`{"id":"P%d"}`, n)) },
			Effects:  func(n int) int { return o.EffectsOn(fmt.Sprintf("P%d", n)) },
			Refused:  []json.RawMessage{json.RawMessage(`{}`), json.RawMessage(`{"id":7}`), json.RawMessage(`{"id":"P1","more":1}`), json.RawMessage(`[]`)},
			Troubles: connectortest.HTTPTroubles(px, o), Settle: o.Settle,
		}
	})
}
