package api_test

import (
	"fmt"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
)

// A grant is replaced only by who names it: a generated client leaves an empty text out, and a list of tools that
// was made for a workflow without a grant would take away what somebody gave meanwhile.
func TestGrantIsReplacedByName(t *testing.T) {
	w := newWorld(t, nil)
	put := func(tool, more string) answer {
		return w.ask("ann admin", "PUT", api.Prefix+"/workflows/invoices/grant", fmt.Sprintf(`{"tools":[{"tool":%q}]%s}`, tool, more))
	}
	put("bank.pay", "").want(t, 200, `"id":"invoices/1"`)
	for _, over := range []string{"", `,"over":""`, `,"over":null`, `,"over":"invoices/2"`, `,"over":"other/1"`} {
		put("bank.list", over).want(t, 409, "stale", `invoices has the grant invoices/1; to replace it, say \"over\": \"invoices/1\"`)
	}
	w.ask("ann viewer", "GET", api.Prefix+"/workflows/invoices/grant", "").want(t, 200, `"id":"invoices/1"`, `"tool":"bank.pay"`)
	put("bank.list", `,"over":"invoices/1"`).want(t, 200, `"id":"invoices/2"`, `"tool":"bank.list"`)
	put("bank.list", `,"over":"invoices/1"`).want(t, 409, "invoices/2")
}

// A tool that cannot be granted is refused, unless the grant that is replaced has it so: a connection that was taken
// away must not keep anybody from giving or taking others.
func TestGrantOfNoTool(t *testing.T) {
	gone := ""
	w := newWorld(t, func(c *api.Config) {
		c.Ungrantable = func(tool keep.GrantedTool) string {
			if tool.Tool == gone || tool.Approve != "" {
				return tool.Tool + ": there is no such tool"
			}
			return ""
		}
	})
	put := func(body string) answer {
		return w.ask("ann admin", "PUT", api.Prefix+"/workflows/invoices/grant", body)
	}
	put(`{"tools":[{"tool":"bank.pay"}]}`).want(t, 200)
	gone = "bank.pay"
	put(`{"tools":[{"tool":"bank.pay"},{"tool":"bank.list"}],"over":"invoices/1"}`).want(t, 200)
	put(`{"tools":[{"tool":"bank.pay","when":"true"}],"over":"invoices/2"}`).want(t, 422, "bad-grant", "grant of invoices: bank.pay: there is no such tool")
	put(`{"tools":[{"tool":"bank.list","approve":"always"}],"over":"invoices/2"}`).want(t, 422, "bad-grant", "bank.list")
}
