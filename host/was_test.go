package host_test

import (
	"context"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/law/budget"
	"github.com/keep-run/keep/law/policy"
	"github.com/keep-run/keep/operator"
	"github.com/keep-run/keep/script/sandbox"
	"github.com/keep-run/keep/store/memory"
)

// payer is a workflow that publishes one event and makes one call for it, by the names that it has.
type payer struct{ name, was keep.WorkflowName }

// load reads it as a script, or as one in Go.
func (p payer) load(w *world, kind string) *host.Workflow {
	w.t.Helper()
	if kind == "script" {
		loaded, err := w.load(`export default Keep.workflow({
			name: "` + string(p.name) + `", was: ` + map[bool]string{true: "undefined", false: `"` + string(p.was) + `"`}[p.was == ""] + `, topics: { due: {} },
			producers: { look: { schedule: { interval: "1h" }, async handler(ctx) { await ctx.publish("due", { messageId: "a" }); } } },
			consumers: { pay: Keep.consumer({
				subscribe: ["due"],
				async prepare(ctx, trigger) {
					if (!trigger) return { reservations: [], data: {} };
					return { reservations: [{ topic: "due", ids: [trigger.messageId] }], data: {} };
				},
				async mutate(ctx) { await ctx.svc.create({ id: "a" }); },
			}) },
		});`)
		if err != nil {
			w.t.Fatal(err)
		}
		return loaded
	}
	loaded, err := w.open().LoadGo(&handler.Workflow{Name: p.name, Was: p.was, Topics: []keep.TopicName{"due"}, Handlers: []handler.Handler{
		handler.Producer{Name: "look", Schedule: keep.Schedule{Interval: time.Hour}, Run: func(ctx context.Context, in *handler.Ingress) error {
			return in.Publish(ctx, "due", handler.Message{ID: "a"})
		}},
		paying("pay"),
	}})
	if err != nil {
		w.t.Fatal(err)
	}
	return loaded
}

// paying is a consumer that makes one call for each event.
func paying(name keep.HandlerName) handler.Consumer[string, handler.NoResult] {
	return handler.Consumer[string, handler.NoResult]{
		Name: name, Subscribe: []keep.TopicName{"due"},
		Prepare: func(_ context.Context, _ *handler.Reader, ev *handler.Event) (p handler.Prepared[string], err error) {
			if ev != nil {
				p.Reserve, p.Data = []keep.EventRef{ev.Ref()}, string(ev.MessageID)
			}
			return p, nil
		},
		Mutate: func(_ context.Context, _ *handler.Getter, p handler.Prepared[string]) (handler.Call, error) {
			return handler.Call{Tool: "svc.create", Params: map[string]any{"id": p.Data}}, nil
		},
	}
}

// A workflow that says which one it was is continued by the library as by the command: nothing is done again, by
// whichever call it is deployed, and also while the outcome of its call is not known.
func TestWorkflowWas(t *testing.T) {
	deploys := map[string]func(ctx context.Context, h *host.Host, w *host.Workflow, over keep.Version) error{
		"Deploy": func(ctx context.Context, h *host.Host, w *host.Workflow, _ keep.Version) error {
			_, err := h.Deploy(ctx, w)
			return err
		},
		"Replace": func(ctx context.Context, h *host.Host, w *host.Workflow, over keep.Version) error {
			_, err := h.Replace(ctx, w, over)
			return err
		},
		"DeployGranted": func(ctx context.Context, h *host.Host, w *host.Workflow, _ keep.Version) error {
			_, err := h.DeployGranted(ctx, w, nil, operator.Consent{Giver: operator.Giver{By: "ann", From: "test"}, Calls: []keep.ToolName{"svc.create"}, Give: true})
			return err
		},
	}
	for how, deploy := range deploys {
		for _, kind := range []string{"script", "go"} {
			for _, outcome := range []string{"known", "in doubt"} {
				t.Run(how+"/"+kind+"/"+outcome, func(t *testing.T) {
					synctest.Test(t, func(t *testing.T) { continued(t, kind, outcome == "in doubt", deploy) })
				})
			}
		}
	}
}

func continued(t *testing.T, kind string, doubt bool, deploy func(context.Context, *host.Host, *host.Workflow, keep.Version) error) {
	w := newBubbleWorld(t)
	if doubt {
		w.service.onCall = func(context.Context, keep.Mutation, int) (bool, error) { return true, errReset }
		w.service.settle = time.Hour
	}
	w.build = "build 1"
	if err := deploy(t.Context(), w.open(), payer{name: "pay"}.load(w, kind), keep.Version{}); err != nil {
		t.Fatal(err)
	}
	w.run()
	w.build = "build 2"
	renamed := payer{name: "payments", was: "pay"}.load(w, kind)
	if err := deploy(t.Context(), w.open(), renamed, keep.Version{Major: 1}); err != nil {
		t.Fatal(err)
	}
	if renamed.Name != "payments" {
		t.Errorf("the workflow that was loaded is called %s now", renamed.Name)
	}
	w.start()
	time.Sleep(2 * time.Hour) // virtual
	w.idle()
	all, err := w.database().Workflows(t.Context())
	if err != nil || len(all) != 1 || all[0].Name != "pay" || all[0].Version != (keep.Version{Major: 2}) {
		t.Errorf("workflows %+v, %v; want version 2.0 of pay alone", all, err)
	}
	if n := w.service.total(); n != 1 {
		t.Errorf("paid %d times, want once", n)
	}
	if ms := w.mutations("pay"); len(ms) != 1 || ms[0].State != keep.Applied {
		t.Errorf("mutations %+v, want one, applied", ms)
	}
}

// No two workflows of a program are one: they would take each other's place at each start. One that is deployed again is
// itself.
func TestWorkflowWasTwice(t *testing.T) {
	w := newWorld(t)
	w.build = "build"
	for _, step := range []struct {
		payer
		refused string
	}{
		{payer{name: "payments", was: "pay"}, ""},
		{payer{name: "bills", was: "pay"}, "deploy: this program has the workflow pay as payments already, and bills would be it, too"},
		{payer{name: "pay"}, "deploy: this program has the workflow pay as payments already, and pay would be it, too"},
		{payer{name: "bills", was: "payments"}, "deploy: this program has the workflow payments as payments already, and bills would be it, too"},
		{payer{name: "payments", was: "pay"}, ""},
		{payer{name: "bills"}, ""},
		{payer{name: "payments"}, ""},
		{payer{name: "pay"}, ""},
	} {
		_, err := w.open().Deploy(t.Context(), step.load(w, "go"))
		if step.refused == "" && err != nil || step.refused != "" && (err == nil || !strings.Contains(err.Error(), step.refused)) {
			t.Errorf("Deploy of %+v = %v, want %q", step.payer, err, step.refused)
		}
	}
}

// A name that the database does not know says nothing, and two that it knows are refused.
func TestWorkflowWasNotKnown(t *testing.T) {
	for _, kind := range []string{"script", "go"} {
		t.Run(kind, func(t *testing.T) {
			w := newWorld(t)
			w.build = "build"
			deploy := func(p payer) error {
				_, err := w.open().Deploy(t.Context(), p.load(w, kind))
				return err
			}
			if err := deploy(payer{name: "payments", was: "pay"}); err != nil {
				t.Fatal(err)
			}
			if all, err := w.database().Workflows(t.Context()); err != nil || len(all) != 1 || all[0].Name != "payments" {
				t.Errorf("workflows %+v, %v; want payments alone", all, err)
			}
			w.close() // another program has the other one
			if err := deploy(payer{name: "pay"}); err != nil {
				t.Fatal(err)
			}
			w.close()
			err := deploy(payer{name: "payments", was: "pay"})
			if want := "the workflow payments says that it was pay, and the database has both; remove " + map[string]string{"script": "was", "go": "Was"}[kind] + ", or run it on another database"; err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Deploy = %v, want %q", err, want)
			}
		})
	}
}

// A name that the program had in between is known, too: a second rename names it, or the first one, and nothing is
// done again.
func TestSecondRename(t *testing.T) {
	for _, kind := range []string{"script", "go"} {
		for _, was := range []keep.WorkflowName{"payments", "pay"} {
			t.Run(kind+"/"+string(was), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					w := newBubbleWorld(t)
					for _, p := range []payer{{"pay", ""}, {"payments", "pay"}, {"bills", was}, {"bills", was}, {"pay", "bills"}} {
						w.build += string(p.name)
						if _, err := w.open().Deploy(t.Context(), p.load(w, kind)); err != nil {
							t.Fatalf("Deploy(%s, was %s) = %v", p.name, p.was, err)
						}
						w.start()
						time.Sleep(2 * time.Hour) // virtual
						w.idle()
						w.close()
					}
					all, err := w.database().Workflows(t.Context())
					if err != nil || len(all) != 1 || all[0].Name != "pay" {
						t.Errorf("workflows %+v, %v; want pay alone", all, err)
					}
					if n := w.service.total(); n != 1 {
						t.Errorf("paid %d times, want once", n)
					}
				})
			})
		}
	}
}

// A configuration that has a workflow by its new name alone would not hold for it: the workflow is refused.
func TestOnlyByTheNewName(t *testing.T) {
	w := newWorld(t)
	w.build = "build"
	if _, err := w.open().Deploy(t.Context(), payer{name: "pay"}.load(w, "go")); err != nil {
		t.Fatal(err)
	}
	w.close()
	w.only = []keep.WorkflowName{"payments"}
	renamed := payer{name: "payments", was: "pay"}.load(w, "go")
	_, err := w.open().Deploy(t.Context(), renamed)
	if want := "Config.Only is about the workflow payments, which the database continues under its first name, pay"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Deploy = %v, want %q", err, want)
	}
	w.close()
	w.only = append(w.only, "pay")
	if _, err := w.open().Deploy(t.Context(), renamed); err != nil {
		t.Errorf("with both names: %v", err)
	}
}

// So are budgets, those that came with Reconfigure as those of Open.
func TestBudgetByTheNewName(t *testing.T) {
	w := newWorld(t)
	h := w.open()
	if _, err := h.Deploy(t.Context(), payer{name: "pay"}.load(w, "script")); err != nil {
		t.Fatal(err)
	}
	configure := func(workflows ...keep.WorkflowName) {
		t.Helper()
		rules := []budget.Rule{{Name: "day", Workflows: workflows, Limit: 5 * keep.AmountUnit, Per: 24 * time.Hour}}
		if err := h.Reconfigure([]connector.Connection{w.connection()}, policy.Retention{}, rules, keep.Breaker{}); err != nil {
			t.Fatal(err)
		}
	}
	renamed := payer{name: "payments", was: "pay"}.load(w, "script")
	configure("payments")
	_, err := h.Deploy(t.Context(), renamed)
	if want := "the budget day of Config.Budgets is about the workflow payments, which the database continues under its first name, pay"; err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("Deploy = %v, want %q", err, want)
	}
	configure("payments", "pay")
	if _, err := h.Deploy(t.Context(), renamed); err != nil {
		t.Errorf("with both names: %v", err)
	}
}

// What a person took from a workflow stays taken when its tool gets another name, and what it has is given under that one, too.
func TestTakenUnderAnotherName(t *testing.T) {
	type bill struct {
		ID string `json:"id"`
	}
	bank := func(name string, was ...string) connector.Connection {
		return connector.Connection{Name: name, Was: was, Connector: "go", Tools: []connector.Tool{connector.NewMutator(connector.Spec{Name: "pay", Identity: []string{"id"}},
			connector.Change[bill, string]{Do: func(context.Context, string, bill) (string, error) { return "", nil }})}}
	}
	for taken, want := range map[bool]int{true: 0, false: 1} {
		db := memory.New()
		deploy := func(c connector.Connection) operator.Deployed {
			h, err := host.Open(t.Context(), db, host.Config{Connections: []connector.Connection{c}, Sandbox: sandbox.Config{CacheDir: cacheDir}, Logger: slog.New(slog.DiscardHandler)})
			if err != nil {
				t.Fatal(err)
			}
			defer h.Close()
			w, err := h.LoadGo(&handler.Workflow{Name: "payouts", Topics: []keep.TopicName{"due"}, Handlers: []handler.Handler{paying("pay")}})
			if err != nil {
				t.Fatal(err)
			}
			out, err := h.DeployGranted(t.Context(), w, nil, operator.Consent{Giver: operator.Giver{By: "ann", From: "cli"}, Calls: []keep.ToolName{keep.ToolName(c.Name + ".pay")}, Give: true})
			if err != nil {
				t.Fatal(err)
			}
			return out
		}
		if out := deploy(bank("bank")); len(out.Given) != 1 {
			t.Fatalf("the first deploy gave %v", out.Given)
		}
		if taken {
			o, err := operator.New(db, operator.Config{Logger: slog.New(slog.DiscardHandler)})
			if err == nil {
				_, err = o.TakeGrant(t.Context(), "payouts", operator.Giver{By: "bob", From: "cli"}, nil)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
		if out := deploy(bank("money", "bank")); len(out.Given) != want {
			t.Errorf("taken: %t; the tool has another name, and a deploy gave %v, want %d", taken, out.Given, want)
		}
	}
}
