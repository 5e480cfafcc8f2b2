//go:build unix

package main

import (
	"io"
	"net/http"
	"net/http/cookiejar"
	"net/http/httptest"
	"net/url"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// An admin changes secrets of a running host and downloads a backup of it on the pages. The
// next call has the new secret, which is in no page, log, file or copy, and a keep.toml that
// was refused for one is taken when it is set.
func TestSecretsAndBackupOnThePages(t *testing.T) {
	t.Parallel()
	requests := make(chan string, 1000)
	service := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		requests <- r.URL.Path + " " + r.Header.Get("Authorization")
		answer(w, http.StatusOK, map[string]int{"v": 1})
	}))
	defer service.Close()
	d := &serving{t: t, bin: buildKeep(t), dir: t.TempDir(), env: append(os.Environ(), "XDG_CACHE_HOME="+cacheHome(t)), more: []string{"-vv"}, log: new(strings.Builder)}
	settings := strings.Replace(reloadConfig, "URL", service.URL, 1)
	write := func(name, text string) {
		t.Helper()
		if err := os.WriteFile(filepath.Join(d.dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	write("keep.toml", settings)
	write("reader.js", reloadScript)
	d.pipe("one", "secrets", "set", "svc")
	d.keep("deploy", ".")
	d.start()
	cookies, err := cookiejar.New(nil)
	if err != nil {
		t.Fatal(err)
	}
	admin := &http.Client{Jar: cookies}
	post := func(path string, pairs ...string) (int, string) {
		t.Helper()
		form := url.Values{}
		for i := 0; i < len(pairs); i += 2 {
			form.Set(pairs[i], pairs[i+1])
		}
		res, err := admin.PostForm(d.base+path, form)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		body, err := io.ReadAll(res.Body)
		if err != nil {
			t.Fatal(err)
		}
		return res.StatusCode, string(body)
	}
	of := regexp.MustCompile(`name="of" value="([^"]+)"`)
	// shown is what the page of a secret says that it shows.
	shown := func(name string) string {
		t.Helper()
		res, err := admin.Get(d.base + "/secrets/" + name)
		if err != nil {
			t.Fatal(err)
		}
		defer res.Body.Close()
		page, err := io.ReadAll(res.Body)
		if found := of.FindSubmatch(page); err == nil && found != nil {
			return string(found[1])
		}
		return ""
	}
	if status, page := post("/login", "code", strings.TrimPrefix(d.keep("login"), d.base+"/login?code=")); status != http.StatusOK {
		t.Fatalf("log in: %d\n%s", status, page)
	}
	// called runs the workflow until the service gets a request.
	called := func(want string) {
		t.Helper()
		for {
			d.output("trigger", "reader") // refused while the run before has not ended
			for more := true; more; {
				select {
				case got := <-requests:
					if got == want {
						return
					}
				case <-t.Context().Done():
					t.Fatalf("the service never got %q", want)
				default:
					more = false
				}
			}
		}
	}
	called("/v1 Bearer one")
	paged, second := canaryOf("paged", 0), canaryOf("second", 0)
	look := seeker{t, map[string]string{}}
	for _, s := range []string{paged, second} {
		for kind, form := range encodings(s) {
			look.forms[s[:5]+" "+kind] = form
		}
	}
	set := func(name, value string) {
		t.Helper()
		status, page := post("/secrets", "name", name, "value", value, "of", shown(name))
		if look.in("the answer", []byte(page)); status != http.StatusOK || !strings.Contains(page, "Calls use it within a second") {
			t.Fatalf("set %s: %d\n%s", name, status, page)
		}
	}
	set("svc", paged)
	called("/v1 Bearer " + paged)

	// The host refuses a secret that is not set, says so, and takes the file when it is.
	write("keep.toml", strings.NewReplacer("secret:svc", "secret:new", "/v1", "/v2").Replace(settings))
	for {
		if _, page := post("/secrets", "name", "a b", "value", second); !strings.Contains(page, "no name of a secret") {
			t.Fatalf("a name that is none:\n%s", page)
		}
		res, err := admin.Get(d.base + "/secrets/new")
		if err != nil {
			t.Fatal(err)
		}
		page, _ := io.ReadAll(res.Body)
		res.Body.Close()
		if text := string(page); strings.Contains(text, "refused the") && strings.Contains(text, "not set") && strings.Contains(text, "/connections#c-svc") {
			break
		}
	}
	set("new", second)
	called("/v2 Bearer " + second)
	if status, page := post("/secrets/svc/remove", "of", shown("svc")); status != http.StatusOK || !strings.Contains(page, "The secret is removed") {
		t.Errorf("remove: %d\n%s", status, page)
	}
	if list := d.keep("secrets"); !strings.Contains(list, "new") || strings.Contains(list, "svc") {
		t.Errorf("the database has\n%s", list)
	}

	// A download that is cut leaves nothing, and the next one is a whole copy.
	req, err := http.NewRequestWithContext(t.Context(), http.MethodPost, d.base+"/settings/backup", nil)
	if err != nil {
		t.Fatal(err)
	}
	if res, err := admin.Do(req); err != nil || res.StatusCode != http.StatusOK {
		t.Fatalf("download: %v, %v", res, err)
	} else {
		res.Body.Close()
	}
	var status int
	var copied string
	for status != http.StatusOK { // the one before it may be about to end
		if status, copied = post("/settings/backup"); status != http.StatusOK && status != http.StatusConflict {
			t.Fatalf("download: %d\n%s", status, copied)
		}
	}
	at := filepath.Join(t.TempDir(), "got.db")
	if err := os.WriteFile(at, []byte(copied), 0o600); err != nil {
		t.Fatal(err)
	}
	look.in("the backup", []byte(copied))
	if said := d.output("resume", "reader", "--db", at); !strings.Contains(said, "backup") {
		t.Errorf("the copy can be worked on before it was restored: %s", said)
	}
	d.keep("db", "check", "--db", at)
	d.keep("db", "restored", "--db", at)
	d.keep("db", "check", "--db", at)
	if runs := d.keep("runs", "--all", "--db", at); !strings.Contains(runs, "reader") {
		t.Errorf("the copy has the runs\n%s", runs)
	}
	for deadline := time.Now().Add(time.Minute); ; {
		left, err := filepath.Glob(filepath.Join(d.dir, ".keep.db.download-*"))
		if err != nil {
			t.Fatal(err)
		}
		if len(left) == 0 {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("downloads have left %s", left)
		}
	}

	d.pages(look)
	d.kill()
	look.in("the log of keep serve", []byte(d.log.String()))
	look.below(d.dir)
}
