package files_test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/files"
	"github.com/keep-run/keep/testkit/connectortest"
)

func TestConformance(t *testing.T) {
	for name, bench := range map[string]func(testing.TB) *connectortest.Bench{"write": writeBench, "append": appendBench} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			connectortest.Run(t, bench)
		})
	}
}

func writeBench(tb testing.TB) *connectortest.Bench {
	b, root := bench(tb)
	b.Tool, b.NoMore = "write", true
	b.Params = func(n int) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"name":"d/%d.txt","text":"x"}`, n))
	}
	b.Effects = func(n int) int {
		if _, err := os.Stat(filepath.Join(root, fmt.Sprintf("d/%d.txt", n))); err != nil {
			return 0
		}
		return 1
	}
	return b
}

func appendBench(tb testing.TB) *connectortest.Bench {
	b, root := bench(tb)
	b.Tool = "append"
	b.Params = func(n int) json.RawMessage {
		return json.RawMessage(fmt.Sprintf(`{"name":"log-%d.txt","text":"line %d\n"}`, n, n))
	}
	b.Effects = func(n int) int {
		raw, _ := os.ReadFile(filepath.Join(root, fmt.Sprintf("log-%d.txt", n)))
		return strings.Count(string(raw), fmt.Sprintf("line %d\n", n))
	}
	return b
}

func bench(tb testing.TB) (*connectortest.Bench, string) {
	root := filepath.Join(tb.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		tb.Fatal(err)
	}
	return &connectortest.Bench{
		Connection: open(tb, files.Config{Root: root}),
		Again:      func(tb testing.TB) *connector.Connection { return open(tb, files.Config{Root: root}) },
		Refused: []json.RawMessage{
			json.RawMessage(`{}`), json.RawMessage(`{"name":"a"}`), json.RawMessage(`{"name":"","text":""}`),
			json.RawMessage(`{"name":"a","text":"","base64":""}`), json.RawMessage(`{"name":"a","text":1}`), json.RawMessage(`[]`),
		},
		Troubles: []connectortest.Trouble{{
			Name: "the root is gone for a while", Want: keep.ClassPrecondition,
			Arm: func() { os.Rename(root, root+".away") },
			End: func() { os.Rename(root+".away", root) },
		}},
	}, root
}
