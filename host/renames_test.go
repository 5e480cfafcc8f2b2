package host_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/handler"
)

// names are what a program calls a workflow and what it has.
type names struct {
	workflow, wasWorkflow keep.WorkflowName
	job, producer, topic  string
	was, isNew            bool // of the one that has another name than in the version before
}

// program is a workflow with each kind of what has a name.
func (n names) program() *handler.Workflow {
	was := func(name, first string) keep.HandlerName {
		if n.was && name != first {
			return keep.HandlerName(first)
		}
		return ""
	}
	topic := keep.TopicName(n.topic)
	w := &handler.Workflow{Name: n.workflow, New: n.isNew && n.workflow != "bills", Topics: []keep.TopicName{topic}}
	if n.was && n.workflow != "bills" {
		w.Was = "bills"
	}
	if n.was && n.topic != "due" {
		w.TopicWas = map[keep.TopicName]keep.TopicName{topic: "due"}
	}
	if n.isNew && n.topic != "due" {
		w.NewTopics = []keep.TopicName{topic}
	}
	pay := paying("pay")
	pay.Subscribe = w.Topics
	w.Handlers = []handler.Handler{pay,
		handler.Producer{Name: keep.HandlerName(n.producer), Was: was(n.producer, "look"), New: n.isNew, Schedule: keep.Schedule{Interval: 24 * time.Hour},
			Run: func(ctx context.Context, in *handler.Ingress) error {
				var came bool
				if _, err := in.Load(ctx, "came", &came); err != nil || came {
					return err
				}
				if err := in.Store(ctx, "came", true); err != nil {
					return err
				}
				return in.Publish(ctx, topic, handler.Message{ID: "a"})
			}},
		handler.Job{Name: keep.HandlerName(n.job), Was: was(n.job, "sweep"), New: n.isNew, Schedule: keep.Schedule{Interval: 24 * time.Hour},
			Run: func(ctx context.Context, w *handler.Worker) error {
				return w.Item(ctx, "17", "", func(ctx context.Context, it *handler.Item) error {
					if it.Done() {
						return nil
					}
					return it.Call(ctx, "svc.create", map[string]any{"id": "17"}, nil)
				})
			}},
	}
	return w
}

// What of a program has work and is gone, while something of its kind appears, is asked about: nothing is done again in silence.
func TestProgramIsNotRenamedInSilence(t *testing.T) {
	before := names{workflow: "bills", job: "sweep", producer: "look", topic: "due"}
	for _, tt := range []struct {
		name    string
		rename  func(n *names)
		refused string
	}{
		{"workflow", func(n *names) { n.workflow = "invoices" },
			`the workflow bills has work in the database and is gone, and the workflow invoices is new: if they are one, what was done under the old name would be done again; write Was: "bills" in the handler.Workflow invoices`},
		{"job", func(n *names) { n.job = "go" }, `the job sweep of workflow bills has work in the database and is gone, and the job go is new`},
		{"producer", func(n *names) { n.producer = "poll" }, `write Was: "look" in the producer poll if it is the same, New: true`},
		{"topic", func(n *names) { n.topic = "owed" }, `write TopicWas: map[keep.TopicName]keep.TopicName{"owed": "due"} in its handler.Workflow if it is the same, name it in NewTopics`},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newBubbleWorld(t)
				w.build = "1"
				w.deployGo(before.program())
				w.run()
				made := w.service.total()
				w.build = "2"
				after := before
				tt.rename(&after)
				loaded, err := w.open().LoadGo(after.program())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := w.open().Deploy(t.Context(), loaded); err == nil || !strings.Contains(err.Error(), tt.refused) {
					t.Fatalf("Deploy = %v, want %q", err, tt.refused)
				}
				if all, err := w.database().Workflows(t.Context()); err != nil || len(all) != 1 || all[0].Version != (keep.Version{Major: 1}) {
					t.Errorf("workflows %+v, %v; want the one that was there, as it was", all, err)
				}
				after.was = true
				w.deployGo(after.program())
				w.start()
				time.Sleep(48 * time.Hour) // virtual
				w.idle()
				if n := w.service.total(); n != made {
					t.Errorf("%d calls, want the %d of before", n, made)
				}
			})
		})
	}
}

// What says that it is new is another one, and is not asked about.
func TestProgramWithWhatIsNew(t *testing.T) {
	w := newWorld(t)
	w.build = "1"
	w.deployGo(names{workflow: "bills", job: "sweep", producer: "look", topic: "due"}.program())
	w.run()
	w.build = "2"
	w.deployGo(names{workflow: "bills", job: "go", producer: "poll", topic: "owed", isNew: true}.program())
	w.deployGo(names{workflow: "invoices", job: "sweep", producer: "look", topic: "due", isNew: true}.program())
}

// A workflow that the program deployed before is not gone, however alike another one is.
func TestProgramHasBoth(t *testing.T) {
	w := newWorld(t)
	for _, build := range []string{"1", "2"} {
		w.build = build
		w.deployGo(names{workflow: "bills", job: "sweep", producer: "look", topic: "due"}.program())
		if build == "2" {
			w.deployGo(names{workflow: "invoices", job: "sweep", producer: "look", topic: "due"}.program())
		}
		w.run()
	}
}

// A connection or tool that records name, and that the program has no more, is asked about where another one appears.
func TestConnectionOfAProgramIsNotRenamedInSilence(t *testing.T) {
	for _, tt := range []struct {
		name    string
		rename  func(c *connector.Connection)
		refused string
		say     func(c *connector.Connection)
	}{
		{"connection", func(c *connector.Connection) { c.Name = "bank" },
			`the connection svc has work in the database and is gone, and the connection bank is new: if they are one, what was done under the old name would be done again; write Was: connector.Names{"svc"} in the connector.Connection bank if it is the same, New: true if it is another one`,
			func(c *connector.Connection) { c.Was = connector.Names{"svc"} }},
		{"new", func(c *connector.Connection) { c.Name = "bank" }, `the connection svc has work in the database and is gone`,
			func(c *connector.Connection) { c.New = true }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			w := newWorld(t)
			w.build = "1"
			before := names{workflow: "bills", job: "sweep", producer: "look", topic: "due"}
			w.deployGo(before.program())
			w.run()
			w.build, w.connect = "2", tt.rename
			loaded, err := w.open().LoadGo(before.program())
			if err != nil {
				t.Fatal(err)
			}
			if _, err := w.open().Deploy(t.Context(), loaded); err == nil || !strings.Contains(err.Error(), tt.refused) {
				t.Errorf("Deploy = %v, want %q", err, tt.refused)
			}
			w.close()
			w.connect = func(c *connector.Connection) { tt.rename(c); tt.say(c) }
			w.deployGo(before.program())
		})
	}
}
