package access

import (
	"context"
	"errors"
	"html/template"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/store"
)

// LoginURL makes a URL that logs one browser in, once, as an admin.
func LoginURL(ctx context.Context, s store.Access, base, name string, now time.Time) (string, error) {
	secret, _, err := Issue(ctx, s, keep.Credential{Kind: keep.CredentialLogin, Name: name, Role: string(Admin)}, now, LoginLife)
	return strings.TrimSuffix(base, "/") + "/login?" + url.Values{"code": {secret}}.Encode(), err
}

// cookie returns the name of the session's cookie. A __Host- cookie can be set by
// this very host only, and needs HTTPS. On the own machine there is none, and some
// browsers then refuse it; other pages of the machine are trusted there.
func (g *Guard) cookie() string {
	if g.cfg.Secure {
		return "__Host-keep"
	}
	return "keep-" + g.cfg.Cookie
}

// login shows the form, and takes a code or a token. A code is taken by POST
// alone: those who look at links in mails and chats must not use it up.
func (g *Guard) login(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		g.form(w, r, http.StatusOK, "")
	case http.MethodPost:
		g.take(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		refuse(w, http.StatusMethodNotAllowed, "log in with GET or POST")
	}
}

// take logs a caller with the right secret in, also while others at the address guess:
// secrets are too long to be guessed, and only wrong ones are limited.
func (g *Guard) take(w http.ResponseWriter, r *http.Request) {
	now := time.Now()
	r.Body = http.MaxBytesReader(w, r.Body, 16<<10)
	if err := r.ParseForm(); err != nil {
		refuse(w, http.StatusBadRequest, "the form cannot be read")
		return
	}
	session, life, err := g.exchange(r.Context(), strings.TrimSpace(r.PostForm.Get("code")), strings.TrimSpace(r.PostForm.Get("token")), now)
	switch {
	case errors.Is(err, ErrDenied) && !g.tries.allows(r.RemoteAddr, now):
		tooMany(w)
		return
	case errors.Is(err, ErrDenied):
		g.tries.failed(r.RemoteAddr, now)
		g.log.WarnContext(r.Context(), "a login was refused", "from", r.RemoteAddr)
		g.form(w, r, http.StatusUnauthorized, "That did not work: "+ErrDenied.Error()+". Make a new one with: keep login")
		return
	case err != nil:
		g.log.ErrorContext(r.Context(), "log in", "err", err)
		refuse(w, http.StatusServiceUnavailable, "the database cannot be used now")
		return
	}
	http.SetCookie(w, &http.Cookie{
		Name: g.cookie(), Value: session, Path: "/", MaxAge: int(life / time.Second),
		Secure: g.cfg.Secure, HttpOnly: true, SameSite: http.SameSiteLaxMode,
	})
	http.Redirect(w, r, local(r.PostForm.Get("next")), http.StatusSeeOther)
}

// exchange gives a new session for a code, which ends with it, or for a token,
// which the session doesn't outlive.
func (g *Guard) exchange(ctx context.Context, code, token string, now time.Time) (session string, life time.Duration, err error) {
	var from keep.Credential
	parent := ""
	if code != "" {
		if from, err = verify(ctx, g.cfg.Store, keep.CredentialLogin, code, now); err == nil {
			if err = g.cfg.Store.DropCredential(ctx, from.ID); errors.Is(err, keep.ErrNotFound) {
				err = ErrDenied // it was used already
			}
		}
	} else {
		from, err = verify(ctx, g.cfg.Store, keep.CredentialToken, token, now)
		if err == nil && Role(from.Role) == Agent {
			err = ErrDenied
		}
		parent = from.ID
	}
	if err != nil {
		return "", 0, err
	}
	life = SessionLife
	if parent != "" && !from.ExpiresAt.IsZero() {
		life = min(life, from.ExpiresAt.Sub(now))
	}
	session, _, err = Issue(ctx, g.cfg.Store, keep.Credential{
		Kind: keep.CredentialSession, Name: from.Name, Role: from.Role, Parent: parent,
	}, now, life)
	if errors.Is(err, keep.ErrNotFound) {
		err = ErrDenied // the token was revoked meanwhile
	}
	return session, life, err
}

// local returns a path of this server, whatever was asked for.
func local(next string) string {
	u, err := url.Parse(next)
	if err != nil || u.Scheme != "" || u.Host != "" || !strings.HasPrefix(next, "/") || strings.HasPrefix(next, "//") ||
		strings.ContainsAny(next, "\\\r\n\t") {
		return "/"
	}
	return next
}

// logout ends the session.
func (g *Guard) logout(w http.ResponseWriter, r *http.Request) {
	if r.Method != http.MethodPost {
		w.Header().Set("Allow", "POST")
		refuse(w, http.StatusMethodNotAllowed, "log out with POST")
		return
	}
	if c, via, err := g.who(r, time.Now()); err == nil && via == ViaSession {
		if err := g.cfg.Store.DropCredential(r.Context(), c.ID); err != nil && !errors.Is(err, keep.ErrNotFound) {
			g.log.ErrorContext(r.Context(), "log out", "err", err)
			refuse(w, http.StatusServiceUnavailable, "the database cannot be used now")
			return
		}
	}
	http.SetCookie(w, &http.Cookie{Name: g.cookie(), Path: "/", MaxAge: -1, Secure: g.cfg.Secure, HttpOnly: true, SameSite: http.SameSiteLaxMode})
	http.Redirect(w, r, "/login", http.StatusSeeOther)
}

// loginPage has the style of the other pages, whose files need no credential. Its script presses
// the button if the page was opened by who asked for the link: see OpenedURL.
var loginPage = sync.OnceValue(func() *template.Template { return template.Must(template.New("login").Parse(loginText)) })

const loginText = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>Log in to Keep</title><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><link rel="icon" href="/static/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="/static/app.css"></head><body class="alone">
<main><h1>Log in to Keep</h1>
{{with .Problem}}<p class="notice bad" role="alert">{{.}}</p>{{end}}
<form class="card" method="post" action="/login"{{if .Go}} data-go{{end}}><input type="hidden" name="next" value="{{.Next}}">
{{if .Code}}<input type="hidden" name="code" value="{{.Code}}"><p>This link logs one browser in, once.</p><p><button class="primary">Log in on this browser</button></p>
{{else}}<h2>With a link</h2><p>Type this where Keep runs, and open the link that it prints:</p><pre>keep login</pre>
<h2>With a token</h2><p><label for="token">A token that an admin gave you (<code>keep token add</code> makes one)</label></p><p class="with"><input id="token" type="password" name="token" autocomplete="current-password" required> <button class="primary">Log in</button></p>{{end}}
</form></main>{{if .Go}}<script src="/static/login.js"></script>{{end}}</body></html>
`

// OpenedURL returns a URL of LoginURL that logs in at once, without a press of the button: for
// the browser of who asked for it, never for a message that programs may open.
func OpenedURL(link string) string { return link + "&now=1" }

// endedPage says that a form did nothing. The script of the pages keeps the texts of a form that is sent; behind
// #typed they are put into it again.
var endedPage = sync.OnceValue(func() *template.Template { return template.Must(template.New("ended").Parse(endedText)) })

const endedText = `<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>The session has ended · Keep</title><meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark"><link rel="icon" href="/static/icon.svg" type="image/svg+xml"><link rel="stylesheet" href="/static/app.css"></head><body class="alone">
<main><h1>The session has ended</h1>
<p class="notice bad" role="alert">Nothing was done or recorded: this browser is not logged in any more.</p>
<div class="card"><p>Log in, and send it again. What you wrote is kept in this tab, but for secrets and files.</p>
<p class="acts"><a class="button primary" href="{{.Login}}">Log in</a> <a class="button" href="{{.Back}}">I have logged in: back to the page</a></p></div></main></body></html>
`

// ended answers a form that came without a session.
func (g *Guard) ended(w http.ResponseWriter, r *http.Request) {
	back := "/"
	if from, err := url.Parse(r.Referer()); err == nil && from.Host == r.Host {
		back = local(from.RequestURI())
	}
	back += "#typed"
	pageHeader(w, http.StatusUnauthorized)
	_ = endedPage().Execute(w, map[string]any{ // the client is gone
		"Back": back, "Login": "/login?" + url.Values{"next": {back}}.Encode(),
	})
}

// pageHeader begins the answer to a browser that is not logged in.
func pageHeader(w http.ResponseWriter, status int) {
	h := w.Header()
	h.Set("Content-Type", "text/html; charset=utf-8")
	h.Set("Content-Security-Policy", "default-src 'none'; style-src 'self'; img-src 'self'; script-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'")
	h.Set("Referrer-Policy", "no-referrer")
	h.Set("X-Content-Type-Options", "nosniff")
	h.Set("Cache-Control", "no-store")
	w.WriteHeader(status)
}

// form shows the login.
func (g *Guard) form(w http.ResponseWriter, r *http.Request, status int, problem string) {
	pageHeader(w, status)
	code := ""
	if problem == "" {
		code = r.URL.Query().Get("code")
	}
	_ = loginPage().Execute(w, map[string]any{ // the client is gone
		"Next": local(r.FormValue("next")), "Code": code, "Problem": problem, "Go": code != "" && r.URL.Query().Get("now") != "",
	})
}
