package connectortest

import (
	"context"
	"fmt"
	"net/http"
	"time"

	"github.com/keep-run/keep"
)

// A Scripted service does wrong what it is told, as an Oracle does.
type Scripted interface {
	Script(faults ...Fault)
}

// HTTPTroubles are the troubles of a tool that reaches a service through a
// Proxy, with one connection for each change. One that sends with [http.DefaultClient], which may send a change twice, is
// found even if it reads no answers.
func HTTPTroubles(p *Proxy, o Scripted) []Trouble {
	list := []Trouble{
		{Name: "a refused connection", Want: keep.ClassTransient, Arm: p.Down, End: func() { p.Up() }},
		{Name: "silence after half a request", Want: keep.ClassUnknown, Stalls: true, Arm: func() { p.Next(Cut{Request: 60, Response: All, Stall: true}) }},
		{Name: "silence instead of an answer", Want: keep.ClassUnknown, Stalls: true, Arm: func() { p.Next(Cut{Request: All, Stall: true}) }, End: p.Settle},
		{Name: "a reset instead of an answer", Want: keep.ClassUnknown, Arm: func() { p.Next(Cut{Request: All, Reset: true}) }},
	}
	for _, n := range []int{0, 1, 20, 150} {
		list = append(list, Trouble{
			Name: fmt.Sprintf("a cut at byte %d of the request", n), Want: keep.ClassUnknown,
			Arm: func() { p.Next(Cut{Request: n, Response: All}) },
		}, Trouble{
			Name: fmt.Sprintf("a cut at byte %d of the answer", n), Want: keep.ClassUnknown,
			Arm: func() { p.Next(Cut{Request: All, Response: n}) },
		})
	}
	list = append(list, unheard(p)...)
	for _, f := range []struct {
		name  string
		fault Fault
		want  keep.Class
	}{
		{"an effect without an answer", Fault{Answer: Lost}, keep.ClassUnknown},
		{"an effect and a reset", Fault{Answer: Reset}, keep.ClassUnknown},
		{"no effect and no answer", Fault{Skip: true, Answer: Lost}, keep.ClassUnknown},
		{"an answer that ends early", Fault{Answer: Truncated}, keep.ClassUnknown},
		{"an effect that comes late", Fault{Late: true, Answer: Lost}, keep.ClassUnknown},
		{"an effect and 500", Fault{Status: 500}, keep.ClassUnknown},
		{"no effect and 503", Fault{Skip: true, Status: 503}, ""},
		{"429", Fault{Skip: true, Status: 429, RetryAfter: 1}, keep.ClassTransient},
		{"422", Fault{Skip: true, Status: 422, Body: `{"error":"no"}`}, keep.ClassLogic},
		{"401", Fault{Skip: true, Status: 401}, keep.ClassPermission},
		{"a redirect", Fault{Skip: true, Status: 307}, keep.ClassUnknown},
		{"an HTML page instead of the answer", Fault{Answer: WrongBody}, keep.ClassUnknown},
	} {
		list = append(list, Trouble{Name: f.name, Want: f.want, Arm: func() {
			warm(p)
			o.Script(f.fault)
		}})
	}
	return list
}

// gatewayPage is what a gateway answers whose service is away.
const gatewayPage = "HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/html\r\nContent-Length: 31\r\nConnection: close\r\n\r\n<html>503 Service Unavailable!\n"

// unheard are an effect without an answer after which the service is not heard, either, when it is asked: that is no absence.
func unheard(p *Proxy) []Trouble {
	after := func(name string, then func(), end func()) Trouble {
		return Trouble{Name: "an effect without an answer and " + name, Want: keep.ClassUnknown, End: end, Arm: func() {
			p.Next(Cut{Request: All, Response: 0, Then: then})
		}}
	}
	return []Trouble{
		after("a refused connection", p.Down, func() { p.Up() }),
		after("half an answer to the question", func() { p.Always(Cut{Request: All, Response: 130}) }, func() { p.Always(Pass) }),
		after("a page of a gateway", func() { p.front(gatewayPage) }, func() { p.front("") }),
	}
}

// warm leaves a connection that was used to [http.DefaultClient]: a tool that sends with it, and reads no answers, has none, and
// its change would not be sent again when the connection ends without an answer.
func warm(p *Proxy) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodHead, "http://"+p.Addr()+"/", nil)
	if err != nil {
		return
	}
	if resp, err := http.DefaultClient.Do(req); err == nil { // whatever it is
		resp.Body.Close()
	}
}

// MCPTroubles are HTTPTroubles for MCP servers, which answer 422 for the error of a tool, too: it
// is no proof that nothing happened.
func MCPTroubles(p *Proxy, o Scripted) []Trouble {
	list := HTTPTroubles(p, o)
	for i := range list {
		if list[i].Name == "422" {
			list[i].Want = keep.ClassUnknown
		}
	}
	return list
}
