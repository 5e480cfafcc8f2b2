//go:build unix

package gateway_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/gateway"
)

// The gateway of a front ends with requests that the agent gave up: the next one is not asked for them, and makes the others. Law: once.
func TestFrontGivenUp(t *testing.T) {
	call := `{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":` + createParams("%s") + `}`
	cancel := `{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":%d}}`
	for name, frames := range map[string][]string{
		"alone":            {fmt.Sprintf(call, 7, "x"), fmt.Sprintf(call, 8, "y"), fmt.Sprintf(cancel, 7)},
		"in a batch":       {"[" + fmt.Sprintf(call, 7, "x") + "," + fmt.Sprintf(call, 8, "y") + "]", fmt.Sprintf(cancel, 7)},
		"all of a batch":   {fmt.Sprintf(call, 8, "y"), "[" + fmt.Sprintf(call, 7, "x") + "," + fmt.Sprintf(call, 9, "x") + "]", "[" + fmt.Sprintf(cancel, 7) + "," + fmt.Sprintf(cancel, 9) + "]"},
		"in its own batch": {fmt.Sprintf(call, 8, "y"), "[" + fmt.Sprintf(call, 7, "x") + "," + fmt.Sprintf(cancel, 7) + "]"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s, links := setup{Dir: t.TempDir(), Agent: "ann"}, 0
			c := frontTo(t, func(context.Context) (gateway.Link, error) {
				if links++; links > 1 {
					return startLink(s)
				}
				front, back := gateway.NewLink()
				go func() { // a gateway that ends before it has worked on anything
					defer back.Close()
					lines := bufio.NewReader(back)
					for left := len(frames); left > 0; {
						line, err := lines.ReadString('\n')
						switch {
						case err != nil:
							return
						case strings.Contains(line, `"initialize"`):
							_, _ = io.WriteString(back, `{"jsonrpc":"2.0","id":1,"result":{}}`+"\n")
						case !strings.Contains(line, `"notifications/initialized"`):
							left--
						}
					}
				}()
				return front, nil
			})
			c.ask(1, "initialize", `{"protocolVersion":"2025-03-26","capabilities":{}}`) // which has batches
			for _, frame := range frames {
				c.send(frame)
			}
			for text := ""; !strings.Contains(text, `"id":8,`); {
				line, err := c.out.ReadString('\n')
				if err != nil {
					t.Fatal(err)
				}
				text += line
			}
			c.ask(3, "ping", `{}`)
			if x, y := effects(t, s.Dir, "x"), effects(t, s.Dir, "y"); x != 0 || y != 1 {
				t.Errorf("%d effects of what was given up, %d of what was not", x, y)
			}
		})
	}
}

// The agent gives a request up while there is no gateway: the next one is not asked for it, but for the other one. Law: once.
func TestFrontGivenUpBetween(t *testing.T) {
	t.Parallel()
	gone, told, asked := make(chan struct{}), make(chan struct{}), make(chan string, 10)
	links := 0
	c := frontTo(t, func(context.Context) (gateway.Link, error) {
		links++
		isLast := links > 1
		if links == 2 {
			close(gone)
			select {
			case <-told:
			case <-time.After(5 * time.Second): // nothing is read until there is a gateway
			}
		}
		front, back := gateway.NewLink()
		go func() { // the first one ends before it has worked on anything
			defer back.Close()
			lines := bufio.NewReader(back)
			for left := 2; isLast || left > 0; {
				line, err := lines.ReadString('\n')
				_, frame, _ := strings.Cut(line, " ")
				var m struct {
					ID     json.RawMessage
					Method string
				}
				if err != nil || json.Unmarshal([]byte(frame), &m) != nil {
					return
				}
				if m.Method == "tools/call" {
					asked <- string(m.ID)
					left--
				}
				if m.ID != nil && (isLast || m.Method != "tools/call") {
					fmt.Fprintf(back, `{"jsonrpc":"2.0","id":%s,"result":{}}`+"\n", m.ID)
				}
			}
		}()
		return front, nil
	})
	for id, title := range map[int]string{7: "x", 8: "y"} {
		c.send(fmt.Sprintf(`{"jsonrpc":"2.0","id":%d,"method":"tools/call","params":%s}`, id, createParams(title)))
	}
	<-gone
	for range 2 {
		<-asked
	}
	go func() {
		c.send(`{"jsonrpc":"2.0","id":4,"method":"ping"}`) // what comes before it cannot be passed on, either
		c.send(`{"jsonrpc":"2.0","method":"notifications/cancelled","params":{"requestId":7}}`)
		c.send(`{"jsonrpc":"2.0","id":3,"method":"ping"}`) // which is read after that was
		close(told)
	}()
	for text := ""; !strings.Contains(text, `"id":8,`) || !strings.Contains(text, `"id":3,`) || !strings.Contains(text, `"id":4,`); {
		line, err := c.out.ReadString('\n')
		if err != nil {
			t.Fatal(err)
		}
		text += line
	}
	if id := <-asked; id != "8" || len(asked) != 0 {
		t.Errorf("the next gateway was asked for %s and %d more, want 8 alone", id, len(asked))
	}
}
