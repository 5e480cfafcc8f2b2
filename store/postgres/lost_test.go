package postgres_test

import (
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/internal/pgtest"
	"github.com/keep-run/keep/store/postgres"
)

// A past is a database with one host that committed.
type past struct {
	*testing.T
	url         string
	host, other *postgres.DB
	w           keep.WorkflowName
	lease       keep.Lease
	commits     int
}

// newPast returns a database of two workflows, to one of which the host committed.
func newPast(t *testing.T) *past {
	t.Helper()
	t.Parallel()
	p := &past{T: t, url: pgtest.SchemaURL(t)}
	p.host = openDB(t, p.url+"&application_name="+strings.ReplaceAll(t.Name(), "/", "_"), postgres.Config{Host: true})
	p.other = openDB(t, p.url, postgres.Config{})
	l, second := newLoad(1), newLoad(2)
	p.w = l.Workflow
	for _, c := range []keep.Commit{l.Deploy(), second.Deploy()} {
		if err := p.other.Commit(t.Context(), c); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := p.host.Heartbeat(t.Context(), keep.Host{ID: "a"}, time.Hour); err != nil {
		t.Fatal(err)
	}
	leases, err := p.host.Claim(t.Context(), "a", 1, []keep.WorkflowName{p.w})
	if err != nil || len(leases) != 1 {
		t.Fatalf("Claim = %v, %v", leases, err)
	}
	p.lease = leases[0]
	p.must(p.commit(p.host, p.lease.Epoch))
	return p
}

// loses makes the database forget what f commits.
func (p *past) loses(f func()) {
	p.exec(`CREATE TABLE past AS SELECT * FROM lease`)
	f()
	p.exec(`DELETE FROM event; DELETE FROM lease; INSERT INTO lease SELECT * FROM past`)
}

func (p *past) must(err error) {
	p.Helper()
	if err != nil {
		p.Fatal(err)
	}
}

func (p *past) exec(sql string) {
	p.Helper()
	p.must(p.other.Exec(p.Context(), sql))
}

// commit commits something of the workflow that changes no other commit's meaning.
func (p *past) commit(db *postgres.DB, epoch int64) error {
	p.commits++
	return db.Commit(p.Context(), keep.Commit{Workflow: p.w, Epoch: epoch, At: time.UnixMilli(int64(p.commits)),
		Changes: []keep.Change{keep.SetKV{Producer: "p", Key: "k", Value: []byte("1")}}})
}

// decide commits a decision of a person by the host's process. It numbers no row.
func (p *past) decide() {
	p.Helper()
	p.commits++
	p.must(p.host.Commit(p.Context(), keep.Commit{Workflow: p.w, At: time.UnixMilli(int64(p.commits)), Changes: []keep.Change{keep.SetPaused{Paused: true}}}))
}

// publish commits an event by a process. Its number is higher than all before, of which some may be lost.
func (p *past) publish(db *postgres.DB, id keep.MessageID) error {
	p.commits++
	at := time.UnixMilli(1<<42 + int64(p.commits))
	return db.Commit(p.Context(), keep.Commit{Workflow: p.w, At: at, Changes: []keep.Change{keep.Publish{Event: keep.Event{
		Workflow: p.w, Topic: "t", MessageID: id, Payload: []byte("1"), Status: keep.EventPending, CreatedAt: at, UpdatedAt: at}}}})
}

// cut ends the connections of the host, as the end of a server does.
func (p *past) cut() {
	p.exec(`SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = '` + strings.ReplaceAll(p.Name(), "/", "_") + `'`)
}

// retried returns what a call returns that is tried again for every connection that was cut.
func retried(f func() error) (err error) {
	for range 12 {
		err = f()
		if e, ok := errors.AsType[*pgconn.PgError](err); err == nil || errors.Is(err, keep.ErrReplaced) || ok && e.Code != "57P01" {
			return err
		}
	}
	return err
}

// paused fails the test unless every workflow is paused, or none.
func (p *past) paused(want bool) {
	p.Helper()
	all, err := p.other.Workflows(p.Context())
	p.must(err)
	for _, w := range all {
		if w.Paused != want || strings.Contains(w.PauseNote, "keep db restored") != want {
			p.Errorf("workflow %s: paused %v, %q; want %v", w.Name, w.Paused, w.PauseNote, want)
		}
		list, err := p.other.Decided(p.Context(), w.Name.Subject())
		p.must(err)
		if d := list; want && (len(d) != 1 || d[0].Decision.Action != keep.Pause || d[0].Decision.From != "host" || d[0].Decision.Note != w.PauseNote || d[0].Decision.At.IsZero()) {
			p.Errorf("workflow %s: the pause is recorded as %+v", w.Name, d)
		}
	}
}

// A host that finds a server which lacks what the host was told is committed would do it again. It
// pauses every workflow and does nothing more.
func TestDatabaseWentBack(t *testing.T) {
	worked := func(p *past) { p.must(p.commit(p.host, p.lease.Epoch)) }
	published := func(p *past) { p.must(p.publish(p.host, "a")); p.must(p.publish(p.host, "b")) }
	for name, c := range map[string]struct{ lost, then func(*past) }{
		"new connections": {worked, (*past).cut},
		// Its number is the highest again.
		"another process committed":               {worked, func(p *past) { p.must(p.commit(p.other, 0)); p.cut() }},
		"a pooler keeps them":                     {worked, func(*past) {}},
		"a decision":                              {(*past).decide, (*past).cut},
		"a decision, and a pooler":                {(*past).decide, func(*past) {}},
		"two events, and another process has one": {published, func(p *past) { p.must(p.publish(p.other, "c")); p.cut() }},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPast(t)
			p.loses(func() { c.lost(p) })
			c.then(p)
			if err := retried(func() error { return p.commit(p.host, p.lease.Epoch) }); !errors.Is(err, keep.ErrReplaced) || !strings.Contains(err.Error(), "keep db restored") {
				t.Fatalf("Commit = %v, want ErrReplaced", err)
			}
			p.paused(true)
			if err := p.commit(p.host, p.lease.Epoch); !errors.Is(err, keep.ErrReplaced) {
				t.Errorf("the next Commit = %v, want ErrReplaced", err)
			}
			if _, err := p.host.Poll(t.Context(), "a"); !errors.Is(err, keep.ErrReplaced) {
				t.Errorf("Poll = %v, want ErrReplaced", err)
			}
			if _, err := p.host.Heartbeat(t.Context(), keep.Host{ID: "a"}, time.Hour); !errors.Is(err, keep.ErrReplaced) {
				t.Errorf("Heartbeat = %v, want ErrReplaced", err)
			}
			p.must(p.host.Deregister(t.Context(), "a"))
			p.must(p.commit(p.other, 0))
			p.must(p.other.Commit(t.Context(), keep.Commit{Workflow: p.w, At: time.UnixMilli(99), Changes: []keep.Change{keep.SetPaused{}}}))
			p.exec(`UPDATE workflow SET paused = FALSE, pause_note = ''`)
			p.must(p.commit(openDB(t, p.url, postgres.Config{Host: true}), 0))
			p.paused(false) // nothing is remembered in a new process
		})
	}
}

// A host that has lost nothing is never stopped.
func TestDatabaseDidNotGoBack(t *testing.T) {
	for name, then := range map[string]func(p *past){
		"its connections broke":     (*past).cut,
		"another process committed": func(p *past) { p.must(p.commit(p.other, 0)); p.cut() },
		"another host has it": func(p *past) {
			p.must(p.host.Release(p.Context(), "a", []keep.WorkflowName{p.w}))
			_, err := p.other.Heartbeat(p.Context(), keep.Host{ID: "b"}, time.Hour)
			p.must(err)
			leases, err := p.other.Claim(p.Context(), "b", 1, []keep.WorkflowName{p.w})
			p.must(err)
			p.must(p.commit(p.other, leases[0].Epoch))
			p.cut()
			if err := retried(func() error { return p.commit(p.host, p.lease.Epoch) }); !errors.Is(err, keep.ErrFenced) {
				p.Errorf("Commit = %v, want ErrFenced", err)
			}
			p.lease.Epoch = 0
		},
		// Whether it was made is not known, so that it is missing says nothing.
		"the answer of a commit was lost": func(p *past) {
			p.exec(`CREATE FUNCTION hang_up() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN PERFORM pg_terminate_backend(pg_backend_pid()); RETURN NULL; END $$;
				CREATE CONSTRAINT TRIGGER hang_up AFTER UPDATE ON lease DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION hang_up()`)
			if err := p.commit(p.host, p.lease.Epoch); err == nil {
				p.Error("a commit without an answer succeeded")
			}
			p.exec(`DROP FUNCTION hang_up CASCADE`)
		},
		// As a pooler that has a replica answer reads.
		"a server that is behind answered first": func(p *past) { p.must(p.host.Judge(p.Context())) },
		"a commit was refused": func(p *past) {
			err := p.host.Commit(p.Context(), keep.Commit{Workflow: p.w, Epoch: p.lease.Epoch, At: time.UnixMilli(1 << 40), Changes: []keep.Change{
				keep.PutItem{Item: keep.Item{Workflow: p.w, ID: "i", Status: "none", Attempt: 1}}}})
			if err == nil {
				p.Error("a commit of nonsense succeeded")
			}
			p.cut()
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPast(t)
			then(p)
			p.must(retried(func() error { return p.commit(p.host, p.lease.Epoch) }))
			p.must(retried(func() error { _, err := p.host.Poll(t.Context(), "a"); return err }))
			p.paused(false)
		})
	}
}
