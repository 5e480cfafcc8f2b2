// Command go sends reminders for invoices through a mailer that loses answers, by a workflow
// written in Go. Each customer gets one mail.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/url"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/connector"
	"github.com/keep-run/keep/connector/once"
	"github.com/keep-run/keep/handler"
	"github.com/keep-run/keep/host"
	"github.com/keep-run/keep/store/memory"
)

type invoice struct {
	ID string `json:"id"`
	To string `json:"to"`
}

var reminders = &handler.Workflow{
	Name:   "reminders",
	Topics: []keep.TopicName{"overdue"},
	Handlers: []handler.Handler{
		handler.Producer{Name: "look", Schedule: keep.Schedule{Interval: time.Hour}, Run: look},
		handler.Consumer[invoice, handler.NoResult]{
			Name: "remind", Subscribe: []keep.TopicName{"overdue"}, Prepare: prepare, Mutate: mutate,
		},
	},
}

func look(ctx context.Context, in *handler.Ingress) error {
	var list []invoice
	if err := in.Read(ctx, "books.overdue", nil, &list); err != nil {
		return err
	}
	for _, i := range list {
		if err := in.Publish(ctx, "overdue", handler.Message{ID: keep.MessageID(i.ID), Payload: i}); err != nil {
			return err
		}
	}
	return nil
}

func prepare(_ context.Context, _ *handler.Reader, ev *handler.Event) (p handler.Prepared[invoice], err error) {
	if ev == nil {
		return p, nil
	}
	p.Reserve, p.Title = []keep.EventRef{ev.Ref()}, "Remind of "+string(ev.MessageID)
	return p, ev.Decode(&p.Data)
}

func mutate(_ context.Context, _ *handler.Getter, p handler.Prepared[invoice]) (handler.Call, error) {
	return handler.Call{Tool: "mailer.send", Params: p.Data}, nil
}

// A mailbox is the other side: a service that sends a mail for each POST, loses the answer, and can be asked by key.
type mailbox struct {
	url string

	mu   sync.Mutex // protects sent
	sent map[string]mail
}

type mail struct {
	ID  string `json:"id"`
	Key string `json:"key"`
}

func (m *mailbox) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if r.Method == http.MethodGet {
		found, ok := m.sent[r.URL.Query().Get("key")]
		if !ok {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		check(json.NewEncoder(w).Encode(found))
		return
	}
	var i invoice
	check(json.NewDecoder(r.Body).Decode(&i))
	key := r.Header.Get("Idempotency-Key")
	m.sent[key] = mail{ID: fmt.Sprint("mail-", len(m.sent)+1), Key: key}
	fmt.Println("mailer: sends to", i.To, "and loses the answer")
	panic(http.ErrAbortHandler)
}

// client sends a request once. That of net/http may send it twice.
var client = once.NewClient()

func (m *mailbox) send(ctx context.Context, key string, i invoice) (string, error) {
	body, err := json.Marshal(i)
	if err != nil {
		return "", err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, m.url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	req.Header.Set("Idempotency-Key", key)
	resp, err := client.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		return receipt(resp.Body, key)
	case http.StatusTooManyRequests: // nothing was done, and it may be tried again
		return "", keep.Failf(keep.ClassTransient, "busy", "the mailer answered %s", resp.Status)
	case http.StatusUnprocessableEntity: // nothing was done, nor ever will be
		return "", keep.Failf(keep.ClassLogic, "refused", "the mailer answered %s", resp.Status)
	case http.StatusUnauthorized:
		return "", keep.Failf(keep.ClassPermission, "refused", "the mailer answered %s", resp.Status)
	}
	return "", fmt.Errorf("the mailer answered %s", resp.Status) // it may have been done
}

func (m *mailbox) find(ctx context.Context, key string, _ invoice) (string, bool, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, m.url+"?key="+url.QueryEscape(key), nil)
	if err != nil {
		return "", false, err
	}
	resp, err := client.Do(req)
	if err != nil {
		return "", false, err
	}
	defer resp.Body.Close()
	switch resp.StatusCode {
	case http.StatusOK:
		id, err := receipt(resp.Body, key)
		return id, err == nil, err
	case http.StatusNotFound:
		return "", false, nil
	}
	return "", false, fmt.Errorf("the mailer answered %s", resp.Status) // it is asked again
}

// receipt reads which mail was sent under the key. What is cut off, is a page of a gateway, or is about another mail says
// nothing.
func receipt(body io.Reader, key string) (string, error) {
	var m mail
	if err := json.NewDecoder(body).Decode(&m); err != nil {
		return "", fmt.Errorf("the mailer's answer: %w", err)
	}
	if m.ID == "" || m.Key != key {
		return "", fmt.Errorf("the mailer answered mail %q of key %q", m.ID, m.Key)
	}
	return m.ID, nil
}

func main() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	check(err)
	box := &mailbox{url: "http://" + l.Addr().String(), sent: make(map[string]mail)}
	server := &http.Server{Handler: box}
	var serving sync.WaitGroup
	serving.Go(func() { _ = server.Serve(l) }) // until Close
	books := connector.Connection{Name: "books", Connector: "go", Tools: []connector.Tool{
		connector.NewReader(connector.Spec{Name: "overdue", Effect: connector.List}, func(context.Context, struct{}) ([]invoice, error) {
			return []invoice{{"INV-1", "ada@example.com"}, {"INV-2", "bob@example.com"}}, nil
		}),
	}}
	mailer := connector.Connection{Name: "mailer", Connector: "go", Tools: []connector.Tool{
		connector.NewMutator(connector.Spec{Name: "send", Identity: []string{"id"}}, connector.Change[invoice, string]{Do: box.send, Find: box.find}),
	}}
	ctx := context.Background()
	// sqlite.New("keep.db", sqlite.Config{Host: true}) in the place of memory.New() forgets nothing.
	h, err := host.Open(ctx, memory.New(), host.Config{Connections: []connector.Connection{books, mailer}})
	check(err)
	w, err := h.LoadGo(reminders)
	check(err)
	_, err = h.Deploy(ctx, w)
	check(err)
	check(h.RunUntilIdle(ctx)) // or h.Run(ctx), until ctx is done
	check(h.Close())
	check(server.Close())
	serving.Wait()
	box.mu.Lock()
	defer box.mu.Unlock()
	fmt.Println(len(box.sent), "mails for 2 invoices")
}

func check(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
