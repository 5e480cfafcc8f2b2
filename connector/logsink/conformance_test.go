package logsink_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector/logsink"
	"github.com/keep-run/keep/testkit/connectortest"
)

func TestConformance(t *testing.T) {
	t.Run("file", func(t *testing.T) { connectortest.Run(t, fileBench) })
	t.Run("writer", func(t *testing.T) { connectortest.Run(t, writerBench) })
}

func fileBench(tb testing.TB) *connectortest.Bench {
	dir := filepath.Join(tb.TempDir(), "logs")
	if err := os.Mkdir(dir, 0o755); err != nil {
		tb.Fatal(err)
	}
	path := filepath.Join(dir, "audit.log")
	conn, err := logsink.New("audit", logsink.Config{Path: path})
	if err != nil {
		tb.Fatal(err)
	}
	b := bench(func() string { raw, _ := os.ReadFile(path); return string(raw) })
	b.Connection = conn
	b.Troubles = []connectortest.Trouble{{
		Name: "the directory is gone for a while", Want: keep.ClassPrecondition,
		Arm: func() { os.Rename(dir, dir+".away") },
		End: func() { os.Rename(dir+".away", dir) },
	}}
	return b
}

func writerBench(testing.TB) *connectortest.Bench {
	var buf bytes.Buffer
	b := bench(buf.String)
	b.Connection = logsink.NewWriter("audit", &buf)
	return b
}

func bench(content func() string) *connectortest.Bench {
	return &connectortest.Bench{
		Tool:    "write",
		Params:  func(n int) json.RawMessage { return json.RawMessage(fmt.Sprintf(`{"text":"line %d","data":[1]}`, n)) },
		Effects: func(n int) int { return strings.Count(content(), fmt.Sprintf(`"text":"line %d"`, n)) },
		Refused: []json.RawMessage{json.RawMessage(`{}`), json.RawMessage(`{"text":1}`), json.RawMessage(`{"text":"","x":1}`), json.RawMessage(`[]`)},
	}
}
