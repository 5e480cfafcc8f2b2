package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/internal/pause"
)

// ChangesPath is where the stream of changes is, below Prefix.
const ChangesPath = "/events"

// A Changed is one message of /events.
type Changed struct {
	Workflow *keep.WorkflowName `json:"workflow" doc:"null: of no workflow in particular"`
	Kinds    []feed.Kind        `json:"kinds"`
}

// streams registers /events.
func (s *Server) streams() {
	op := s.operation(http.MethodGet, ChangesPath, "follow", "Follow what changes, as server-sent events", access.Viewer)
	op.Description += " Each message names what changed, for you to read it again: event change, or reset if anything may " +
		"have changed. With Last-Event-ID nothing is missed in between. A comment comes when nothing else does."
	op.Parameters = []*huma.Param{{Name: "Last-Event-ID", In: "header", Schema: &huma.Schema{Type: huma.TypeString}}}
	register(s, op, func(context.Context, *struct{}) (*huma.StreamResponse, error) {
		return &huma.StreamResponse{Body: func(ctx huma.Context) {
			r, w := humago.Unwrap(ctx)
			s.follow(w, r)
		}}, nil
	}, func(schemas huma.Registry) map[string]*huma.Response {
		return map[string]*huma.Response{"200": {
			Description: "messages until the client leaves",
			Content:     map[string]*huma.MediaType{"text/event-stream": {Schema: schemas.Schema(typeOf[Changed](), true, "Changed")}},
		}}
	})
}

// follow sends changes until the client leaves, does not read, or has no right to
// them any more.
func (s *Server) follow(w http.ResponseWriter, r *http.Request) {
	after, hello := r.Header.Get("Last-Event-ID"), ": keep\n\n"
	if after == "" { // who is cut before the first change continues from here
		after = s.cfg.Changes.Last()
		hello = ": keep\nid: " + after + "\n\n"
	}
	sub := s.cfg.Changes.Subscribe(r.Context(), after)
	w.Header().Set("Content-Type", "text/event-stream")
	w.Header().Set("X-Accel-Buffering", "no")
	if r.Method == http.MethodHead { // what follows has no end
		return
	}
	c := http.NewResponseController(w)
	if err := s.send(c, w, hello); err != nil {
		return
	}
	for {
		batch, err := s.next(r.Context(), sub)
		if access.Still(r.Context()) != nil { // nothing more is for them
			return
		}
		text := messages(batch)
		switch {
		case errors.Is(err, errQuiet):
			text = ": still here\n\n"
		case err != nil:
			return
		}
		if err := s.send(c, w, text); err != nil {
			return
		}
		if len(batch) > 0 && pause.For(r.Context(), s.cfg.Gather) != nil {
			return
		}
	}
}

// errQuiet is the cause of a wait in which nothing changed.
var errQuiet = errors.New("nothing changed")

// next waits for changes, up to a heartbeat.
func (s *Server) next(ctx context.Context, sub *feed.Subscription) ([]feed.Change, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.cfg.Heartbeat, errQuiet)
	defer cancel()
	return sub.Next(ctx)
}

// send writes text and hands it to the network, in the time that is allowed.
func (s *Server) send(c *http.ResponseController, w io.Writer, text string) error {
	if err := c.SetWriteDeadline(time.Now().Add(s.cfg.Patience)); err != nil && !errors.Is(err, http.ErrNotSupported) {
		return err
	}
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return c.Flush()
}

// messages writes changes as server-sent events.
func messages(batch []feed.Change) string {
	text := ""
	for _, c := range batch {
		data, err := json.Marshal(Changed{Workflow: orNull(c.Workflow), Kinds: c.Kinds})
		if err != nil {
			panic(err) // names always marshal
		}
		event := "change"
		if c.IsReset() {
			event = "reset"
		}
		if c.ID != "" {
			text += "id: " + c.ID + "\n"
		}
		text += fmt.Sprintf("event: %s\ndata: %s\n\n", event, data)
	}
	return text
}
