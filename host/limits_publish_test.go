package host_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/script/sandbox"
)

// What a producer publishes has an id, or says that a repeat is wanted; else nothing of
// the run is published.
func TestProducerNeedsMessageIDs(t *testing.T) {
	for name, tt := range map[string]struct {
		message string
		code    string // of the failure; empty: it is published
		part    string // of the failure, or of the message id
	}{
		"id":            {`{ messageId: "a", n: 1 }`, "", "a"},
		"number":        {`{ messageId: 7, n: 1 }`, "", "7"},
		"none":          {`{ n: 1 }`, "message-id-needed", "once: false"},
		"undefined":     {`{ messageId: undefined, n: 1 }`, "message-id-needed", "messageId"},
		"once":          {`{ once: true, n: 1 }`, "message-id-needed", "once: false"},
		"not once":      {`{ once: false, n: 1 }`, "", "/w.js:"},
		"both":          {`{ once: false, messageId: "a" }`, "bad-publish", "leave one of them out"},
		"odd once":      {`{ once: "no", messageId: "a" }`, "bad-publish", "true or false"},
		"null once":     {`{ once: null, messageId: "a" }`, "bad-publish", "true or false"},
		"half of emoji": {`{ messageId: "😀".slice(0, 1) }`, "bad-publish", "surrogate"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deploy(script("w", `producers: { async p(ctx) { await ctx.publish("in", { messageId: "first" }); await ctx.publish("in", `+tt.message+`) } }`))
			w.run()
			r, events := w.lastRun("w"), w.events("w", "in")
			if tt.code != "" {
				if r.Status != keep.StatusLogic || r.Error == nil || r.Error.Code != tt.code || !strings.Contains(r.Error.Message, tt.part) {
					t.Errorf("run is %s (%v), want failed:logic %s that says %q", r.Status, r.Error, tt.code, tt.part)
				}
				if len(events) != 0 {
					t.Errorf("%d events were published, want none", len(events))
				}
				return
			}
			if len(events) != 2 || !strings.Contains(string(events[0].MessageID), tt.part) || strings.Contains(string(events[0].Payload), "once") {
				t.Errorf("events %+v, want one more with an id of %q and no once in its payload (run %s: %v)", events, tt.part, r.Status, r.Error)
			}
		})
	}
}

// smallLimits makes limits that are quick to reach: a busy machine takes long for the
// usual ones, which are part of the policy.
func smallLimits(w *world) {
	w.policy.Limits.Publishes, w.policy.Limits.PublishBytes = 100, 64<<10
	w.policy.Limits.LogLines, w.policy.Limits.LogBytes = 100, 64<<10
	w.limits = sandbox.Limits{HostCalls: 20}
}

// A run publishes as many events and bytes as the policy says, whatever the limit of
// host calls.
func TestPublishLimits(t *testing.T) {
	if l := policy.Default().Limits; l.Publishes != 10_000 || l.PublishBytes != 64<<20 {
		t.Errorf("the usual limits are %d events and %d bytes, want 10,000 and 64 MiB", l.Publishes, l.PublishBytes)
	}
	for name, tt := range map[string]struct {
		count, bytes int
		code         string
	}{
		"many":      {100, 1, ""},
		"too many":  {101, 1, "too-many-publishes"},
		"large":     {64, 1000, ""},
		"too large": {66, 1000, "publishes-too-large"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			smallLimits(w)
			w.deploy(script("w", fmt.Sprintf(`producers: { async p(ctx) {
				const text = "x".repeat(%d);
				for (let i = 0; i < %d; i++) await ctx.publish("in", { messageId: i, text }) } }`, tt.bytes, tt.count)))
			w.run()
			r := w.lastRun("w")
			if tt.code == "" && r.Status != keep.StatusCommitted || tt.code != "" && (r.Error == nil || r.Error.Code != tt.code) {
				t.Errorf("run is %s (%v), want %q", r.Status, r.Error, tt.code)
			}
		})
	}
}

// A run keeps as many lines and bytes of its log as the policy says, and a last line
// that says so. Logging more is no failure: the run does its work.
func TestLogLimits(t *testing.T) {
	if l := policy.Default().Limits; l.LogLines != 10_000 || l.LogBytes != 4<<20 {
		t.Errorf("the usual limits are %d lines and %d bytes, want 10,000 and 4 MiB", l.LogLines, l.LogBytes)
	}
	for name, tt := range map[string]struct{ code, last string }{
		"lines":    {`for (let i = 0; i < 120; i++) ctx.log("x")`, "100 lines"},
		"bytes":    {`for (let i = 0; i < 20; i++) ctx.log("x".repeat(4000))`, "65536 bytes"},
		"in items": {`for (let i = 0; i < 12; i++) await ctx.withItem("i" + i, "t", async (ctx) => { for (let i = 0; i < 10; i++) console.log(i) })`, "100 lines"},
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			smallLimits(w)
			w.deploy(script("w", `jobs: { async j(ctx) { `+tt.code+` } }`))
			w.run()
			r := w.lastRun("w")
			lines, err := w.database().Logs(t.Context(), r.ID)
			if err != nil {
				t.Fatal(err)
			}
			size := 0
			for _, l := range lines {
				size += len(l.Text)
			}
			if r.Status != keep.StatusCommitted || len(lines) > 101 || size > 64<<10+200 {
				t.Errorf("run is %s (%v) with %d lines of %d bytes, want it committed with at most 101 of 64 KiB", r.Status, r.Error, len(lines), size)
			}
			if len(lines) == 0 || !strings.Contains(lines[len(lines)-1].Text, tt.last) || lines[len(lines)-1].Level != "warn" {
				t.Errorf("the last of %d lines is not %q", len(lines), tt.last)
			}
		})
	}
}

// Ids that differ in half of a character are refused: as stored text they would be one.
func TestHalfCharactersInIDs(t *testing.T) {
	const half = `"a" + "😀".slice(0, 1)`
	for name, code := range map[string]string{
		"item":    `jobs: { async j(ctx) { await ctx.withItem(` + half + `, "t", async () => {}) } }`,
		"subkey":  `jobs: { async j(ctx) { await ctx.withItem("a", "t", async (ctx) => { await ctx.svc.create({ id: "a", subkey: ` + half + ` }) }) } }`,
		"param":   `jobs: { async j(ctx) { await ctx.withItem("a", "t", async (ctx) => { await ctx.svc.create({ id: ` + half + ` }) }) } }`,
		"input":   `producers: { async p(ctx) { await ctx.registerInput({ source: "s", type: "t", id: ` + half + ` }) } }`,
		"source":  `producers: { async p(ctx) { await ctx.registerInput({ source: ` + half + `, type: "t", id: "a" }) } }`,
		"kv":      `producers: { async p(ctx) { await ctx.kv.set(` + half + `, 1) } }`,
		"message": `producers: { async p(ctx) { await ctx.publish("in", { messageId: ` + half + ` }) } }`,
	} {
		t.Run(name, func(t *testing.T) {
			w := newWorld(t)
			w.deploy(script("w", code))
			w.run()
			if r := w.lastRun("w"); r.Status != keep.StatusLogic {
				t.Errorf("run is %s (%v), want failed:logic", r.Status, r.Error)
			}
			if n := w.service.total(); n != 0 {
				t.Errorf("%d calls were made, want none", n)
			}
		})
	}
}
