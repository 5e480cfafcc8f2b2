package connectortest_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/testkit/connectortest"
)

// A test of a tool: it sends to an Oracle behind a Proxy, which lose its requests and answers, and the Oracle knows
// what was done.
func ExampleRun() {
	var t *testing.T                            // of func TestPay(t *testing.T)
	var pay func(base string) connector.Mutator // the tool that is tried
	connectortest.Run(t, func(tb testing.TB) *connectortest.Bench {
		o, err := connectortest.NewOracle()
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(o.Close)
		p, err := connectortest.NewProxy(o.Addr())
		if err != nil {
			tb.Fatal(err)
		}
		tb.Cleanup(p.Close)
		return &connectortest.Bench{
			Connection: &connector.Connection{Name: "bank", Tools: []connector.Tool{pay("http://" + p.Addr())}},
			Again: func(testing.TB) *connector.Connection { // as after a restart
				return &connector.Connection{Name: "bank", Tools: []connector.Tool{pay("http://" + p.Addr())}}
			},
			Tool:     "pay",
			Params:   func(n int) json.RawMessage { return json.RawMessage(fmt.Sprintf(`{"id":"P%d"}`, n)) },
			Effects:  func(n int) int { return o.EffectsOn(fmt.Sprintf("P%d", n)) },
			Refused:  []json.RawMessage{json.RawMessage(`{}`)},
			Troubles: connectortest.HTTPTroubles(p, o),
			Settle:   o.Settle,
		}
	})
}

// An Oracle does what it is told to do wrong, and counts what it did.
func ExampleOracle() {
	o, err := connectortest.NewOracle()
	if err != nil {
		fmt.Println(err)
		return
	}
	defer o.Close()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	o.Script(connectortest.Fault{Answer: connectortest.Lost})
	_, err = client.Post(o.URL()+"/plain", "application/json", strings.NewReader(`{"id": "17"}`))
	fmt.Println(err != nil, o.EffectsOn("17"))
	// Output:
	// true 1
}
