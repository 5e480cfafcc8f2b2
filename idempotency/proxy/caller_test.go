package proxy_test

import (
	"crypto/ed25519"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/idempotency"
	"github.com/keep-run/keep/idempotency/proxy"
	"github.com/keep-run/keep/law/key"
)

// issuerOf returns the URL of an issuer's keys, and a token of subject.
func issuerOf(t *testing.T, subject string) (jwks, token string) {
	t.Helper()
	public, private, err := ed25519.GenerateKey(nil)
	if err != nil {
		t.Fatal(err)
	}
	b64 := base64.RawURLEncoding.EncodeToString
	issuer := upstream(t, func(w http.ResponseWriter, _ *http.Request) {
		fmt.Fprintf(w, `{"keys":[{"kty":"OKP","kid":"ed","crv":"Ed25519","x":"%s"}]}`, b64(public))
	})
	signed := b64([]byte(`{"alg":"EdDSA","kid":"ed"}`)) + "." + b64([]byte(`{"sub":"`+subject+`"}`))
	return issuer.URL, "Bearer " + signed + "." + b64(ed25519.Sign(private, []byte(signed)))
}

// The answer is shown to a credential that is the caller, and to a token, which the proxy
// verifies. Of a user's password and of a header it knows nothing.
func TestInstance(t *testing.T) {
	t.Parallel()
	issuer, token := issuerOf(t, "ada")
	basic := "Basic " + base64.StdEncoding.EncodeToString([]byte("ada:password"))
	back := upstream(t, func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "secret") })
	for caller, test := range map[string]struct {
		authorization string
		jwks          string
		seesAnswer    bool
	}{
		"authorization": {basic, "", true}, "jwt:sub": {token, issuer, true},
		"basic": {basic, "", false}, "header:Authorization": {basic, "", false}, "none": {basic, "", false},
	} {
		clients, _, store := front(t, back.URL, func(c *proxy.Config) { c.Routes = []proxy.Route{{Caller: caller, JWKS: test.jwks}} })
		post(t, clients.URL+"/orders", "k", "order", "Authorization", test.authorization)
		list, _, err := store.List(t.Context(), key.Filter{}, keep.Page{})
		if err != nil || len(list) != 1 {
			t.Fatalf("caller %s: %d records, %v", caller, len(list), err)
		}
		r, err := http.NewRequest("GET", clients.URL+idempotency.InstancePath+list[0].ID.String(), nil)
		if err != nil {
			t.Fatal(err)
		}
		r.Header.Set("Authorization", test.authorization)
		resp, err := plain.RoundTrip(r)
		if err != nil {
			t.Fatal(err)
		}
		defer resp.Body.Close()
		var s idempotency.Status
		if err := json.NewDecoder(resp.Body).Decode(&s); err != nil || s.State != "done" || (s.Answer != nil) != test.seesAnswer {
			t.Errorf("caller %s: %d %+v, %v, want done, with the answer: %t", caller, resp.StatusCode, s, err, test.seesAnswer)
		}
	}
}
