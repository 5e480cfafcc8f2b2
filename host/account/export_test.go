package account_test

import (
	"bytes"
	"errors"
	"path/filepath"
	"testing"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/host/account"
	"github.com/keep-run/keep/host/account/oauth"
	"github.com/keep-run/keep/host/account/seal"
	"github.com/keep-run/keep/store/memory"
)

// A paper is a file that an account was written to.
type paper struct{ text []byte }

// sink returns what writes to the file.
func (p *paper) sink() account.Sink {
	return account.Sink{Wrap: func(plain []byte) ([]byte, error) { return plain, nil }, Store: func(text []byte) error { p.text = text; return nil }}
}

// dying returns a manager whose process dies at a point.
func (w *world) dying(at account.Point) *account.Manager {
	return account.New(account.Config{Store: w.store, Ring: w.ring, Host: "dying", Trace: func(p account.Point) {
		if p == at {
			panic("killed")
		}
	}})
}

// export moves an account, and may die.
func (w *world) export(m *account.Manager, to account.Sink) (err error) {
	defer func() {
		if recover() != nil {
			err = errors.New("killed")
		}
	}()
	return m.Export(w.Context(), "mail", true, to)
}

// Law one-at-a-time: wherever a process dies that moves an account, one place at most has it.
// The move can be completed, or the account brought back or forgotten, without a loss: the
// service revokes all tokens when one is used twice, and takes each one once.
func TestMoveKilled(t *testing.T) {
	t.Parallel()
	for _, at := range []account.Point{"", account.MoveRecorded, account.MoveStored} {
		for _, end := range []string{"complete", "bring back", "forget"} {
			t.Run(string(at)+"/"+end, func(t *testing.T) {
				t.Parallel()
				here := newWorld(t)
				there := &world{T: t, service: here.service, url: here.url, store: memory.New(), ring: seal.Ring{Path: filepath.Join(t.TempDir(), "keep.key")}}
				h := here.host("here")
				here.connect(h, time.Hour)
				var file paper
				if err := here.export(here.dying(at), file.sink()); (err == nil) != (at == "") {
					t.Fatalf("the move ended with %v", err)
				}
				if a := here.account(); at != "" && a.Status != keep.AccountNeedsReconnect || at == "" && a.Status != keep.AccountRevoked {
					t.Errorf("here it is %s", a.Status)
				}
				here.unused(h)
				if at == account.MoveRecorded && file.text != nil || at != account.MoveRecorded && file.text == nil {
					t.Fatalf("the file has %d bytes", len(file.text))
				}
				if at == account.MoveRecorded && end == "forget" || at == "" && end == "complete" {
					return // it is nowhere, or there is nothing to complete
				}
				owner, m := there, there.host("there")
				if end == "complete" || file.text == nil {
					if err := here.export(here.dying(""), file.sink()); err != nil {
						t.Fatal(err)
					}
				}
				if end == "forget" {
					if _, err := h.Revoke(t.Context(), "mail", time.Time{}); err != nil || len(here.service.revoked) > 0 {
						t.Errorf("forgotten here: %v; the service was sent %v", err, here.service.revoked)
					}
				}
				if end == "bring back" {
					owner, m = here, h
				}
				if _, err := m.Import(t.Context(), file.text, "ada", false); err != nil {
					t.Fatal(err)
				}
				if owner == there {
					here.unused(h)
				}
				for range 3 {
					if a, err := m.Renew(t.Context(), "mail"); err != nil || a.Status != keep.AccountOK {
						t.Errorf("renewed it is %s, %v", a.Status, err)
					}
				}
			})
		}
	}
}

// unused checks that a place neither uses nor renews the account.
func (w *world) unused(m *account.Manager) {
	w.Helper()
	before := len(w.requests())
	if c, err := m.Credential(w.Context(), "mail"); err == nil {
		w.Errorf("the account that moves is used: %v", c)
	}
	if a, err := m.Renew(w.Context(), "mail"); err == nil && a.Status == keep.AccountOK {
		w.Errorf("the account that moves is renewed: %s", a.Status)
	}
	if n := len(w.requests()); n != before {
		w.Errorf("%d requests were sent for an account that moves", n-before)
	}
}

// While a host renews an account nothing of it moves, and what moves is what was renewed. A
// file that cannot be written leaves an account that nobody uses, and that can be written again.
func TestMoveOfWhatChanges(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	h := w.host("h")
	w.connect(h, time.Hour)
	renewed := false
	var file paper
	to := file.sink()
	to.Wrap = func(plain []byte) ([]byte, error) {
		if !renewed { // between reading the account and recording that it moves
			renewed = true
			if _, err := h.Renew(t.Context(), "mail"); err != nil {
				t.Error(err)
			}
		}
		return plain, nil
	}
	fails := to
	fails.Store = func([]byte) error { return errors.New("the disk is full") }
	if err := w.export(w.host("export"), fails); err == nil {
		t.Error("what could not be written moved")
	}
	w.unused(h)
	if err := w.export(w.host("export"), to); err != nil {
		t.Fatal(err)
	}
	if _, err := h.Import(t.Context(), file.text, "ada", false); err != nil {
		t.Fatal(err)
	}
	if c, err := h.Credential(t.Context(), "mail"); err != nil || c.Value != "access-token-1" {
		t.Errorf("brought back: %q, %v", c.Value, err)
	}
	if err := h.Export(t.Context(), "mail", false, to); !errors.Is(err, account.ErrWouldShare) {
		t.Errorf("a copy: %v", err)
	}

	for _, name := range []string{`mail\u001b[31m`, "../mail", ""} { // whoever wrote the file chose it
		hostile := bytes.Replace(file.text, []byte(`"name":"mail"`), []byte(`"name":"`+name+`"`), 1)
		if a, err := h.Import(t.Context(), hostile, "ada", false); err == nil {
			t.Errorf("an account of the name %q is stored", a.Name)
		}
	}

	// A request whose answer is lost, or of a host that died.
	dying := account.New(account.Config{Store: w.store, Ring: w.ring, Host: "dying", TTL: 300 * time.Millisecond,
		Clients: func(keep.Account, seal.Content) (account.Client, error) {
			return &oauth.Client{TokenURL: w.url, ID: "id"}, nil
		},
		Trace: func(p account.Point) {
			if p == account.Recorded {
				panic("killed")
			}
		}})
	func() {
		defer func() { _ = recover() }()
		_, _ = dying.Renew(t.Context(), "mail")
	}()
	if err := w.export(w.host("export"), to); err == nil || w.account().Status != keep.AccountOK {
		t.Errorf("moved while a request is open: %v, and it is %s", err, w.account().Status)
	}
}
