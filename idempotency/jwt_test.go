package idempotency_test

import (
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/keep-run/keep/idempotency"
)

// An issuer signs tokens and serves its keys.
type issuer struct {
	rsa     *rsa.PrivateKey
	ec      *ecdsa.PrivateKey
	ed      ed25519.PrivateKey
	fetched atomic.Int64
	url     string
}

func newIssuer(t *testing.T) *issuer {
	i := new(issuer)
	var err error
	i.rsa, err = rsa.GenerateKey(rand.Reader, 2048)
	must(t, err)
	i.ec, err = ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	must(t, err)
	_, i.ed, err = ed25519.GenerateKey(rand.Reader)
	must(t, err)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		i.fetched.Add(1)
		b64 := base64.RawURLEncoding.EncodeToString
		point, _ := i.ec.PublicKey.Bytes()
		_ = json.NewEncoder(w).Encode(map[string]any{"keys": []map[string]string{
			{"kty": "RSA", "kid": "rsa", "n": b64(i.rsa.N.Bytes()), "e": "AQAB"},
			{"kty": "EC", "kid": "ec", "crv": "P-256", "x": b64(point[1:33]), "y": b64(point[33:])},
			{"kty": "OKP", "kid": "ed", "crv": "Ed25519", "x": b64(i.ed.Public().(ed25519.PublicKey))},
			{"kty": "oct", "kid": "secret", "k": "AAAA"},
		}})
	}))
	t.Cleanup(s.Close)
	i.url = s.URL
	return i
}

// token returns a signed token with those claims.
func (i *issuer) token(t *testing.T, algorithm, id string, claims any) string {
	t.Helper()
	part := func(v any) string {
		text, err := json.Marshal(v)
		must(t, err)
		return base64.RawURLEncoding.EncodeToString(text)
	}
	signed := part(map[string]string{"alg": algorithm, "kid": id}) + "." + part(claims)
	sum := sha256.Sum256([]byte(signed))
	var signature []byte
	var err error
	switch algorithm {
	case "RS256":
		signature, err = rsa.SignPKCS1v15(rand.Reader, i.rsa, crypto.SHA256, sum[:])
	case "PS256":
		signature, err = rsa.SignPSS(rand.Reader, i.rsa, crypto.SHA256, sum[:], nil)
	case "ES256":
		r, s, signErr := ecdsa.Sign(rand.Reader, i.ec, sum[:])
		must(t, signErr)
		signature = append(r.FillBytes(make([]byte, 32)), s.FillBytes(make([]byte, 32))...)
	case "EdDSA":
		signature = ed25519.Sign(i.ed, []byte(signed))
	}
	must(t, err)
	return signed + "." + base64.RawURLEncoding.EncodeToString(signature)
}

// A renewed token of one subject is the same caller; others are others; and nothing
// counts that the issuer did not sign.
func TestByJWTSubject(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	w := newWorld(t, rule(idempotency.Rule{Caller: idempotency.ByJWTSubject(&idempotency.JWKS{URL: i.url})}), nil)
	later := time.Now().Add(time.Hour).Unix()
	bearer := func(token string) func(*http.Request) { return header("Authorization", "Bearer "+token) }
	var first *httptest.ResponseRecorder
	for n, by := range [][2]string{{"RS256", "rsa"}, {"PS256", "rsa"}, {"ES256", "ec"}, {"EdDSA", "ed"}, {"EdDSA", ""}} {
		got := w.do(with("k", bearer(i.token(t, by[0], by[1], map[string]any{"iss": "i", "sub": "ada", "exp": later, "jti": fmt.Sprint(n)}))))
		if n == 0 {
			first = got
			continue
		}
		w.replayed(first, got)
	}
	w.ran(1)
	w.do(with("k", bearer(i.token(t, "EdDSA", "ed", map[string]any{"iss": "i", "sub": "bob"}))))
	w.ran(2)
	w.do(with("k", bearer(i.token(t, "EdDSA", "ed", map[string]any{"iss": "other", "sub": "ada"}))))
	w.ran(3)

	ok := map[string]any{"iss": "i", "sub": "ada", "exp": later}
	valid := i.token(t, "EdDSA", "ed", ok)
	parts := strings.Split(valid, ".")
	unsigned := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"none"}`)) + "." + parts[1] + "."
	for name, token := range map[string]string{
		"expired":         i.token(t, "EdDSA", "ed", map[string]any{"sub": "ada", "exp": time.Now().Add(-2 * time.Minute).Unix()}),
		"expired in 1970": i.token(t, "EdDSA", "ed", map[string]any{"sub": "ada", "exp": 0}),
		"not yet valid":   i.token(t, "EdDSA", "ed", map[string]any{"sub": "ada", "nbf": later}),
		"no subject":      i.token(t, "EdDSA", "ed", map[string]any{"iss": "i"}),
		"other signature": newIssuer(t).token(t, "EdDSA", "ed", ok),
		"other algorithm": i.token(t, "EdDSA", "rsa", ok),
		"unsigned":        unsigned,
		"cut":             valid[:len(valid)-4],
		"no token":        "abc",
	} {
		got := w.do(with("k", bearer(token)))
		w.problem(got, 401, idempotency.KindCallerUnknown)
		if got.Header().Get("WWW-Authenticate") == "" {
			t.Errorf("%s: nothing says that the token is to be renewed", name)
		}
	}
	w.problem(w.do(with("k")), 400, idempotency.KindCallerUnknown)
	w.ran(3)
	if n := i.fetched.Load(); n != 1 {
		t.Errorf("the keys were fetched %d times, want once", n)
	}
}

// A member of a token counts by its name to the letter (RFC 7519 section 4, RFC 8259): another one that an issuer lets its users name, in
// other letters, or one that is there twice, makes nobody another caller. Neither do bytes that are no text.
func TestNamesInATokenAreExact(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	caller := idempotency.ByJWTSubject(&idempotency.JWKS{URL: i.url})
	named := func(claims string) (string, http.Header) {
		r := with("k", header("Authorization", "Bearer "+i.token(t, "EdDSA", "ed", json.RawMessage(claims))))
		name, err := caller(r)
		if err != nil && !errors.Is(err, idempotency.ErrCredential) {
			t.Errorf("%s: %v", claims, err)
		}
		return name, r.Header
	}
	for _, more := range []string{`"Sub":"bob"`, `"SUB":"bob"`, `"\u017fub":"bob"`, `"Iss":"other"`} {
		name, h := named(`{"iss":"i","sub":"ada",` + more + `}`)
		if want := `jwt "i" "ada"`; name != want || idempotency.JWTSubject(h) != "ada" {
			t.Errorf("with %s: %q, and %q for a probe, want %q", more, name, idempotency.JWTSubject(h), want)
		}
	}
	expired := fmt.Sprintf(`"exp":%d`, time.Now().Add(-time.Hour).Unix())
	for _, claims := range []string{
		`{"iss":"i","Sub":"ada"}`, `{"iss":"i","sub":"ada","sub":"bob"}`, `{"iss":"i","sub":"ada",` + expired + `,"Exp":0}`,
		`{"iss":"i","sub":"a\ud800"}`,
	} {
		if name, _ := named(claims); name != "" {
			t.Errorf("%s is %q", claims, name)
		}
	}
}

// While the issuer's keys cannot be read nobody is told that its token is not valid, nor where they are.
func TestIssuerDown(t *testing.T) {
	t.Parallel()
	i := newIssuer(t)
	down := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(503) }))
	defer down.Close()
	w := newWorld(t, rule(idempotency.Rule{Caller: idempotency.ByJWTSubject(&idempotency.JWKS{URL: down.URL})}), nil)
	ada := header("Authorization", "Bearer "+i.token(t, "EdDSA", "ed", map[string]any{"sub": "ada"}))
	for range 2 { // the second does not ask the issuer again
		got := w.do(with("k", ada))
		w.problem(got, 503, idempotency.KindCallerUnknown)
		if got.Header().Get("Retry-After") == "" || got.Header().Get("WWW-Authenticate") != "" || strings.Contains(got.Body.String(), down.URL) {
			t.Errorf("the refusal is %v %s", got.Header(), got.Body)
		}
	}
	if !strings.Contains(w.log.String(), down.URL) {
		t.Error("the log does not say why")
	}
	w.ran(0)
}

// Who asks what became of a request is not told that it is unknown while nobody can say who asks.
func TestInstanceWhileTheIssuerIsDown(t *testing.T) {
	t.Parallel()
	down := false
	w := newWorld(t, rule(idempotency.Rule{Caller: func(*http.Request) (string, error) {
		if down {
			return "", fmt.Errorf("%w: no route to 10.0.0.7", idempotency.ErrCallerUnavailable)
		}
		return "ada", nil
	}}), nil)
	w.do(with("k"))
	down = true
	got := w.do(httptest.NewRequest("GET", idempotency.InstancePath+w.record("k").ID.String(), nil))
	w.problem(got, 503, idempotency.KindCallerUnknown)
	if strings.Contains(got.Body.String(), "10.0.0.7") || !strings.Contains(w.log.String(), "10.0.0.7") {
		t.Errorf("the refusal is %s, the log %s", got.Body, &w.log)
	}
}
