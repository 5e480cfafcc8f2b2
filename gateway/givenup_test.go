//go:build unix

package gateway_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"strings"
	"testing"

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
