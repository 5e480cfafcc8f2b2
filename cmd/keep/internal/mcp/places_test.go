package mcp_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/cmd/keep/internal/mcp"
	"github.com/keep-run/keep/llm"
	"github.com/keep-run/keep/script/sandbox"
)

// What executes a script for an agent waits for a place, within its time, and gives it back: runs of the host need the same
// sandbox. Law: bounded.
func TestScriptsOfAgentsHavePlaces(t *testing.T) {
	rt, err := sandbox.Open(t.Context(), sandbox.Config{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = rt.Close() })
	places := make(chan struct{}, 1)
	call := func(context.Context, func(*api.Client) error) error { return errors.New("it is at the API") }
	said := func(limit time.Duration, tool, args string) string {
		t.Helper()
		tools, err := mcp.OpenToolbox(t.Context(), mcp.Config{Role: access.Author, Call: call, Deploy: call, Places: places, Time: limit,
			Open: func(context.Context, bool) (mcp.Bench, error) { return mcp.Bench{Runtime: rt}, nil }}, tool)
		if err != nil {
			t.Fatal(err)
		}
		defer tools.Close()
		res, err := tools.Call(t.Context(), llm.Call{Name: tool, Arguments: []byte(args)})
		if err != nil {
			t.Fatal(err)
		}
		return res.Text
	}
	const script = `"source":"export default Keep.workflow({name: \"w\", jobs: {j: {interval: \"1h\", handler: async (ctx) => {}}}})"`
	for tool, args := range map[string]string{
		"check": `{` + script + `}`, "propose": `{` + script + `}`, "plan": `{` + script + `}`,
		"test": `{` + script + `,"tests":"[[test]]\nname = \"t\"\n"}`,
	} {
		places <- struct{}{} // of another agent
		if got := said(time.Millisecond, tool, args); !strings.Contains(got, "other scripts are being tried") {
			t.Errorf("%s without a place: %s", tool, got)
		}
		<-places
		if got := said(time.Minute, tool, args); strings.Contains(got, "other scripts") || len(places) != 0 {
			t.Errorf("%s with a place: %d are taken: %s", tool, len(places), got)
		}
	}
}
