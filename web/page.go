package web

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/operator"
)

// A page is what a view shows.
type page struct {
	Title   string
	Section string // which link of the navigation is current
	Data    any

	// Watch are the kinds of changes that make the page be read again, of the
	// workflow Of or of all. None: the page does not change by itself.
	Watch []feed.Kind
	Of    keep.WorkflowName

	Status int // of the answer; 0 is 200
}

// A frame is a page with what is around it.
type frame struct {
	page
	Who     access.Identity
	MayAct  bool
	Secrets bool   // may set secrets here
	Open    int    // questions that wait
	Live    string // where changes are told; empty: nowhere
	Notice  string // what the last action did
	Places  []link // where the palette leads
	Version string
}

// A link is a place that the palette leads to.
type link struct{ Link, Name, Kind string }

// maxPlaces bounds the workflows in the palette.
const maxPlaces = 200

// places returns the pages, then the workflows.
func (s *site) places(ctx context.Context) ([]link, error) {
	out := []link{{"/", "Home", "page"}, {"/inputs", "Inputs", "page"}, {"/inbox", "Inbox", "page"}, {"/runs", "Runs", "page"},
		{"/runs?open=1", "Unfinished runs", "page"}, {"/workflows", "Workflows", "page"}, {"/proposals", "Proposals", "page"}, {"/items", "Items", "page"},
		{"/mutations", "Mutations", "page"}, {"/connections", "Connections", "page"}, {"/accounts", "Accounts", "page"}, {"/hooks", "Hooks", "page"}, {"/budgets", "Budgets", "page"}, {"/keys", "Keys", "page"}, {"/settings", "Settings", "page"}}
	if who, _ := access.From(ctx); s.setsSecrets(who) {
		out = append(out, link{"/secrets", "Secrets", "page"})
	}
	if who, _ := access.From(ctx); who.Role.Covers(access.Admin) {
		out = append(out, link{"/audit", "Audit", "page"})
	}
	names, err := s.names(ctx)
	for _, n := range names[:min(len(names), maxPlaces)] {
		out = append(out, link{"/workflows/" + string(n), string(n), "workflow"})
	}
	return out, err
}

// openQuestions returns how many questions wait for an answer.
func (s *site) openQuestions(ctx context.Context) (int, error) {
	counts, err := s.cfg.Store.CountEscalations(ctx, keep.EscalationFilter{Open: true})
	return sum(counts), err
}

// reader is a handler that shows a page, or fails.
type reader func(r *http.Request) (page, error)

// action is a handler that does something and says where to continue, and what it did:
// a key of notices.
type action func(r *http.Request) (to, did string, err error)

// allow answers only those who have a role.
func (s *site) allow(need access.Role, next http.HandlerFunc) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		if id, _ := access.From(r.Context()); !id.Role.Covers(need) {
			s.fail(w, r, &forbiddenError{need})
			return
		}
		next(w, r)
	}
}

// show routes to a page; one that is reached by POST needs an operator.
func (s *site) show(mux *http.ServeMux, pattern, name string, v reader) {
	need := access.Viewer
	if strings.HasPrefix(pattern, "POST ") {
		need = access.Operator
	}
	s.showTo(mux, need, pattern, name, v)
}

// showTo routes to a page for those who have a role.
func (s *site) showTo(mux *http.ServeMux, need access.Role, pattern, name string, v reader) {
	s.showUpTo(mux, need, maxForm, pattern, name, v)
}

// showUpTo is showTo for a form of at most so many bytes.
func (s *site) showUpTo(mux *http.ServeMux, need access.Role, most int64, pattern, name string, v reader) {
	mux.HandleFunc(pattern, s.allow(need, func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, most)
		after := ""
		if s.cfg.Feed != nil {
			after = s.cfg.Feed.Last() // before the page reads
		}
		p, err := v(r)
		if err != nil {
			s.fail(w, r, err)
			return
		}
		s.render(w, r, name, p, after)
	}))
}

// do routes to an action of an operator.
func (s *site) do(mux *http.ServeMux, pattern string, a action) {
	s.doAs(mux, access.Operator, pattern, a)
}

// doAs routes to an action, and shows another page after it: to load that again
// does nothing twice.
func (s *site) doAs(mux *http.ServeMux, need access.Role, pattern string, a action) {
	s.doUpTo(mux, need, maxForm, pattern, a)
}

// doUpTo is doAs for a form of at most so many bytes.
func (s *site) doUpTo(mux *http.ServeMux, need access.Role, most int64, pattern string, a action) {
	mux.HandleFunc(pattern, s.allow(need, func(w http.ResponseWriter, r *http.Request) {
		r.Body = http.MaxBytesReader(w, r.Body, most)
		to, did, err := a(r)
		if err != nil {
			_ = parseForm(r) // if a did not: its page shows what was typed
			s.fail(w, r, err)
			return
		}
		// The notice is a key, so a link that somebody made can show no text of his own.
		if did != "" {
			sep := "?"
			if strings.Contains(to, "?") {
				sep = "&"
			}
			to += sep + "did=" + url.QueryEscape(did)
		}
		http.Redirect(w, r, to, http.StatusSeeOther)
	}))
}

// file routes to a handler that writes a download.
func (s *site) file(mux *http.ServeMux, pattern string, f func(http.ResponseWriter, *http.Request) error) {
	mux.HandleFunc(pattern, s.allow(access.Viewer, func(w http.ResponseWriter, r *http.Request) {
		if err := f(w, r); err != nil {
			s.fail(w, r, err)
		}
	}))
}

// maxForm bounds the body of a request: a note and a few names. A form with a script, with the result of a call, or with a value of a
// checkpoint and what tells which of all its values were shown, is as large as a request of the API may be.
const maxForm = 64 << 10

// limitBody refuses a larger body as it is read; fail says so.
func limitBody(w http.ResponseWriter, r *http.Request) {
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
}

// parseForm reads the form of a request. The error of one that cannot be read has nothing of what is in it: that of the library
// quotes some.
func parseForm(r *http.Request) error {
	err := r.ParseForm()
	if _, tooLarge := errors.AsType[*http.MaxBytesError](err); err != nil && !tooLarge && r.Context().Err() == nil {
		return refusef("the form cannot be read")
	}
	return err
}

// render writes a page. It is made as a whole first, so that a template that fails
// leaves no half page. Changes up to the one with the ID after are in it.
func (s *site) render(w http.ResponseWriter, r *http.Request, name string, p page, after string) {
	f, err := s.frame(r, p, after)
	if err != nil {
		s.fail(w, r, err)
		return
	}
	s.write(w, r, name, f)
}

// frame reads what is around a page.
func (s *site) frame(r *http.Request, p page, after string) (frame, error) {
	id, _ := access.From(r.Context())
	f := frame{page: p, Who: id, MayAct: id.Role.Covers(access.Operator), Secrets: s.setsSecrets(id), Version: s.cfg.Version,
		Notice: notices[r.URL.Query().Get("did")]}
	var err error
	if f.Open, err = s.openQuestions(r.Context()); err != nil {
		return f, err
	}
	if f.Places, err = s.places(r.Context()); err != nil {
		return f, err
	}
	// What answers a POST is at no address that could be asked for again.
	if s.cfg.Feed != nil && len(p.Watch) > 0 && r.Method == http.MethodGet {
		f.Live = liveURL(p, after)
	}
	return f, nil
}

// write executes a template and sends what it made. Pages are never stored by a browser: they show what
// their reader may see now.
func (s *site) write(w http.ResponseWriter, r *http.Request, name string, f frame) {
	var b bytes.Buffer
	if err := pages()[name]().ExecuteTemplate(&b, "layout", f); err != nil {
		s.log.ErrorContext(r.Context(), "render page", "page", name, "err", err)
		http.Error(w, "This page could not be made; the log of Keep says why.", http.StatusInternalServerError)
		return
	}
	body := visible(b.Bytes())
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Length", strconv.Itoa(len(body)))
	h.Set("Cache-Control", "no-store")
	if f.Status != 0 {
		w.WriteHeader(f.Status)
	}
	w.Write(body) // an error means that nobody reads it any more
}

// A forbiddenError is returned to who lacks a role.
type forbiddenError struct{ need access.Role }

// Error says which role is needed.
func (e *forbiddenError) Error() string {
	return fmt.Sprintf("this needs the role %s", e.need)
}

// A refusedError says that a request makes no sense as it is.
type refusedError struct{ why string }

// Error says why.
func (e *refusedError) Error() string { return e.why }

// refusef returns a refusedError, whose text is shown to whoever sent the request.
func refusef(format string, args ...any) error {
	return &refusedError{fmt.Sprintf(format, args...)}
}

// A partlyError says which of several things were not done, when Keep itself failed at one of them.
type partlyError struct{ why string }

// Error says which, and why.
func (e *partlyError) Error() string { return e.why }

// An errorText is what the page of an error shows.
type errorText struct {
	What string // in one line
	Why  string
	Next string // what to do
	Link string // to look at; empty: nothing

	Typed []typedText // into the form that was refused: a browser may not have it any more
}

// A typedText is what was typed into a field of a form.
type typedText struct{ Name, Text string }

// typedTexts returns what was typed into the fields of a form in which no secret is ever typed.
func typedTexts(form url.Values) (list []typedText) {
	for _, f := range []typedText{{"Note", "note"}, {"Result", "result"}, {"Limit", "limit"}, {"Hours", "hours"}} {
		if text := strings.TrimSpace(form.Get(f.Text)); text != "" {
			list = append(list, typedText{f.Name, text})
		}
	}
	return list
}

// statusOf maps errors to answers, once for all pages.
//
// An error that is not known here is a failure of ours: it is logged, and its text, which may have paths,
// addresses or what a service said, is not shown.
func statusOf(err error) (int, errorText) {
	if f, ok := errors.AsType[*forbiddenError](err); ok {
		return http.StatusForbidden, errorText{What: "You may not do this", Why: f.Error() + ".", Next: "Ask an admin for a token with that role."}
	}
	if e, ok := errors.AsType[*partlyError](err); ok {
		return http.StatusInternalServerError, errorText{What: "Not all were answered", Why: e.Error() + ".", Next: "Look at those that are open still; the log of Keep says why it failed.", Link: "/inbox"}
	}
	if _, ok := errors.AsType[*refusedError](err); ok {
		return http.StatusBadRequest, errorText{What: "The request is not valid", Why: err.Error() + ".", Next: "Go back and try again."}
	}
	if e, ok := errors.AsType[*accountError](err); ok {
		return http.StatusBadRequest, errorText{What: "That did not work", Why: sentence(e.Error()), Next: "Look at the account.", Link: e.of.Link()}
	}
	if u, ok := errors.AsType[*UnconnectedError](err); ok {
		return http.StatusBadRequest, errorText{What: u.What, Why: sentence(u.Why), Next: "Nothing was connected. Begin again with the list of services.", Link: "/connect"}
	}
	if e, ok := errors.AsType[*SecretError](err); ok {
		return http.StatusBadRequest, errorText{What: "The secret is not set", Why: sentence(e.Why), Next: "Nothing was changed. Begin again with the list of secrets.", Link: "/secrets"}
	}
	if e, ok := errors.AsType[*BackupError](err); ok {
		return http.StatusConflict, errorText{What: e.What, Why: sentence(e.Why), Next: e.Next, Link: "/settings"}
	}
	if b, ok := errors.AsType[*answeredError](err); ok {
		return http.StatusConflict, errorText{What: "Already answered", Why: err.Error() + ".", Next: "Look at the question.", Link: "/inbox/" + pathEscape(string(b.id))}
	}
	if e, ok := errors.AsType[*notDeployedError](err); ok {
		return http.StatusNotFound, errorText{What: "Not deployed", Why: err.Error() + ".", Next: "Look at what was proposed.", Link: e.link()}
	}
	if _, ok := errors.AsType[*operator.ResultError](err); ok {
		return http.StatusUnprocessableEntity, errorText{What: "The result is needed", Why: err.Error() + ".", Next: "Go back and write what the call would have answered; nothing was changed."}
	}
	if _, ok := errors.AsType[*operator.LimitError](err); ok {
		return http.StatusUnprocessableEntity, errorText{What: "A higher limit is needed", Why: err.Error() + ".", Next: "Go back and write more than the limit that holds."}
	}
	_, isAction := errors.AsType[*operator.ActionError](err)
	_, isItem := errors.AsType[*operator.ItemError](err)
	_, isEvent := errors.AsType[*operator.EventError](err)
	_, isKept := errors.AsType[*operator.UnskipError](err)
	_, isRun := errors.AsType[*operator.RunError](err)
	_, isRedo := errors.AsType[*operator.RedoError](err)
	switch {
	case errors.Is(err, access.ErrDenied):
		return http.StatusUnauthorized, errorText{What: "You are not logged in any more", Why: "Your session or its token ended while the request was sent. Nothing was changed.", Next: "Log in and send it again.", Link: "/login"}
	case errors.Is(err, keep.ErrNotFound):
		return http.StatusNotFound, errorText{What: "Not found", Why: err.Error() + ".", Next: "Check the address, or begin at the home page."}
	case errors.Is(err, access.ErrMade):
		return http.StatusConflict, errorText{What: "Made already", Why: err.Error() + ".", Next: "Look at the tokens that there are.", Link: "/settings"}
	case errors.Is(err, access.ErrOnce):
		return http.StatusBadRequest, errorText{What: "The request is not valid", Why: err.Error() + ".", Next: "Begin again with the settings.", Link: "/settings"}
	case errors.Is(err, keep.ErrBadCursor):
		return http.StatusBadRequest, errorText{What: "This is not a page of the list", Why: err.Error() + ".", Next: "Begin at its first page."}
	case errors.Is(err, keep.ErrDecided), errors.Is(err, idempotency.ErrNotUnknown):
		return http.StatusConflict, errorText{What: "Already answered", Why: err.Error() + ".", Next: "Look at what was decided."}
	case errors.Is(err, keep.ErrRunOpen):
		return http.StatusConflict, errorText{What: "Not now", Why: err.Error() + ".", Next: "Wait until the run is finished, or decide its question."}
	case isAction, isItem, isEvent, isKept, isRun, isRedo, errors.Is(err, keep.ErrStale):
		return http.StatusConflict, errorText{What: "Not in this state", Why: err.Error() + ".", Next: "Load the page again: something changed meanwhile."}
	}
	return http.StatusInternalServerError, errorText{What: "Something went wrong", Why: "Keep could not read or write what this page needs.", Next: "Try again; if it stays, the log of Keep says why."}
}

// fail shows an error. What is not for the reader goes to the log.
func (s *site) fail(w http.ResponseWriter, r *http.Request, err error) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // nobody reads it
	}
	if tooLarge, ok := errors.AsType[*http.MaxBytesError](err); ok {
		err = refusef("the form has more than %d bytes", tooLarge.Limit)
	}
	status, t := statusOf(err)
	if status == http.StatusInternalServerError {
		s.log.ErrorContext(r.Context(), "serve page", "path", r.URL.Path, "err", err)
	}
	t.Typed = typedTexts(r.PostForm)
	p := page{Title: t.What, Data: t, Status: status}
	f, err := s.frame(r, p, "")
	if who := f.Who; err != nil || !who.Role.Covers(access.Viewer) { // what is around the page needs the store, and a reader who may see it
		f = frame{page: p, Who: who, Version: s.cfg.Version}
	}
	// The address may say that something was done, and the page says that it was not.
	f.Notice = ""
	s.write(w, r, "error", f)
}

func (s *site) notFound(w http.ResponseWriter, r *http.Request) {
	s.fail(w, r, &keep.NotFoundError{What: "page", ID: cut(100, r.URL.Path)})
}
