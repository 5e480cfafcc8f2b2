package web

import (
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/api/access"
	"github.com/keep-run/keep/host/feed"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/law/key"
)

// keysData is the list of idempotency keys.
type keysData struct {
	Off    bool // this host keeps none
	State  key.State
	Key    string
	States []key.State
	Rows   []idempotency.View
	Pager  pager
}

// keys lists idempotency keys. A host that keeps none has the page, too, to say how one gets them.
func (s *site) keys(r *http.Request) (page, error) {
	q := r.URL.Query()
	d := keysData{Off: s.cfg.Keys == nil, State: key.State(q.Get("state")), Key: q.Get("q"), States: key.States()}
	p := page{Title: "Keys", Section: "keys", Watch: []feed.Kind{feed.Key}}
	if d.State != "" && !slices.Contains(d.States, d.State) {
		return p, refusef("there is no state %q", cut(40, string(d.State)))
	}
	if !d.Off {
		var next string
		var err error
		d.Rows, next, err = s.cfg.Keys.List(r.Context(), key.Filter{State: d.State, Key: d.Key}, keep.Page{Limit: pageSize, After: q.Get("after")})
		if err != nil {
			return p, err
		}
		d.Pager = pagerOf("/keys", q.Get("after"), next, "q", d.Key, "state", string(d.State))
	}
	p.Data = d
	return p, nil
}

// keyData is one key with its answer.
type keyData struct {
	idempotency.View
	Body  *payload // nil: there is none, or it is no text
	Words []string // names of the header, sorted

	ForAdmins bool // the answer is
}

// findKey looks a key up by its reference. The key itself is a client's and may hold anything, so it
// is in no address.
func (s *site) findKey(r *http.Request) (idempotency.View, error) {
	ref := r.PathValue("ref")
	if _, err := key.ParseID(ref); err != nil || s.cfg.Keys == nil {
		return idempotency.View{}, &keep.NotFoundError{What: "idempotency key", ID: cut(60, ref)}
	}
	return s.cfg.Keys.Show(r.Context(), ref)
}

// key shows one key with the answer that a retry gets.
func (s *site) key(r *http.Request) (page, error) {
	v, err := s.findKey(r)
	if err != nil {
		return page{}, err
	}
	who, _ := access.From(r.Context())
	d := keyData{View: api.ShownTo(who.Role, v)}
	d.ForAdmins, v = v.BodySize != nil && d.BodySize == nil, d.View
	for name := range v.Header {
		d.Words = append(d.Words, name)
	}
	slices.Sort(d.Words)
	if v.Body != nil {
		body := payloadOf("Body of the answer", []byte(*v.Body), "")
		d.Body = &body
	}
	return page{Title: "Key", Section: "keys", Watch: []feed.Kind{feed.Key}, Data: d}, nil
}

// confirmKeyData is a key that would be given free, with the request that could then be
// executed again.
type confirmKeyData struct {
	idempotency.View
	Action string
}

// confirmKey asks for the second press before a key is given free.
func (s *site) confirmKey(r *http.Request) (page, error) {
	v, err := s.findKey(r)
	if err != nil {
		return page{}, err
	}
	p := page{Title: "Execute it again?", Section: "keys"}
	action := r.URL.Query().Get("action")
	switch {
	// Somebody resolved it meanwhile: the reader sees that now, not after the second press.
	case action == "did-not-happen" && v.State != key.Unknown:
		return p, idempotency.ErrNotUnknown
	case action != "did-not-happen" && action != "forget":
		return p, refusef("a key can be given free with did-not-happen or forget, not %q", cut(40, action))
	}
	p.Data = confirmKeyData{View: v, Action: action}
	return p, nil
}

// decideKey records what became of a request, or gives its key free, which needs a second
// press: the next request with it is executed.
func (s *site) decideKey(r *http.Request) (to, did string, err error) {
	v, err := s.findKey(r)
	if err != nil {
		return "", "", err
	}
	if err := parseForm(r); err != nil {
		return "", "", err
	}
	who, _ := access.From(r.Context())
	to = "/keys/" + url.PathEscape(v.Reference)
	action := r.PostForm.Get("action")
	// The service may have done the request: whoever frees the key may have it done twice.
	if (action == "did-not-happen" || action == "forget") && r.PostForm.Get("confirm") == "" {
		return to + "/confirm" + query("action", action), "", nil
	}
	// A decision is about the request that the page showed, and about no later one with the same key.
	seen := r.PostForm.Get("seen")
	switch isSaid := action == "happened" || action == "did-not-happen"; {
	case isSaid && seen == "" && v.State != key.Unknown:
		return "", "", idempotency.ErrNotUnknown
	case seen == "" && (isSaid || action == "forget"):
		return "", "", refusef("what is decided is shown first")
	}
	switch action {
	case "did-not-happen":
		_, err = s.cfg.Keys.Resolve(r.Context(), v.Reference, idempotency.Resolution{By: who.Name, Seen: seen}, time.Now())
		return to, "released", err
	case "happened":
		status, err := strconv.Atoi(r.PostForm.Get("status"))
		if err != nil || status < 200 || status > 599 {
			return "", "", refusef("the status of the answer is a number from 200 to 599, not %q", cut(20, r.PostForm.Get("status")))
		}
		_, err = s.cfg.Keys.Resolve(r.Context(), v.Reference, idempotency.Resolution{
			Happened: true, Status: status, Body: lines(r.PostForm.Get("body"), ""), By: who.Name, Seen: seen}, time.Now())
		return to, "resolved", err
	case "forget":
		_, err = s.cfg.Keys.ForgetSeen(r.Context(), v.Reference, who.Name, seen, time.Now())
		return to, "released", err
	default:
		return "", "", refusef("a key can be resolved or forgotten, not %q", cut(40, action))
	}
}
