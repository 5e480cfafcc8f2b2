package idempotency

import (
	"cmp"
	"context"
	"crypto"
	"crypto/ecdsa"
	"crypto/ed25519"
	"crypto/elliptic"
	"crypto/rsa"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/keep-run/keep/law/canonical"
)

// JWKS is a set of public keys by which an issuer's tokens are verified (RFC 7517).
// It is read when it is needed, and again when a token names a key that it lacks.
// It is safe for concurrent use.
type JWKS struct {
	// URL of the set, such as https://issuer.example/.well-known/jwks.json.
	URL string

	// Client fetches it. If nil, one that gives up after 10 seconds.
	Client *http.Client

	// mu protects the fields below.
	mu       sync.Mutex
	keys     []publicKey
	read     time.Time     // when the last fetch began
	err      error         // of the last fetch; nil: the set was read
	fetching chan struct{} // closed when the fetch under way is over; nil: none is
}

const (
	// jwksLasts is how long a set is used before it is fetched again.
	jwksLasts = time.Hour

	// jwksPause is the least time between two fetches: tokens with made-up key ids
	// must not make us ask the issuer for each.
	jwksPause = 10 * time.Second

	// clockSkew is how far the clocks of an issuer and of this machine may differ.
	clockSkew = time.Minute
)

// ByJWTSubject takes the subject of a bearer token (RFC 7519) as the caller, together
// with its issuer, so that a renewed token is the same caller. A token that is not
// signed by a key of the set, has expired or has no subject is refused with
// ErrCredential, and one whose key cannot be read now with ErrCallerUnavailable.
func ByJWTSubject(keys *JWKS) func(*http.Request) (string, error) {
	return func(r *http.Request) (string, error) {
		lines := r.Header["Authorization"]
		if len(lines) != 1 {
			return "", fmt.Errorf("%w: no bearer token", ErrCallerUnknown)
		}
		scheme, token, _ := strings.Cut(strings.TrimSpace(lines[0]), " ")
		if !isOneOf(scheme, []string{"bearer", "dpop"}) {
			return "", fmt.Errorf("%w: no bearer token", ErrCallerUnknown)
		}
		claims, err := keys.verify(r.Context(), strings.TrimSpace(token), time.Now())
		if errors.Is(err, ErrCallerUnavailable) {
			return "", err
		}
		if err != nil {
			return "", fmt.Errorf("%w: %w", ErrCredential, err)
		}
		return fmt.Sprintf("jwt %q %q", claims.Issuer, claims.Subject), nil
	}
}

// JWTSubject returns the subject that a bearer token claims, without verifying it:
// for a token that ByJWTSubject has accepted.
func JWTSubject(h http.Header) string {
	_, token, _ := strings.Cut(strings.TrimSpace(h.Get("Authorization")), " ")
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return ""
	}
	c, err := decodeClaims(parts[1])
	if err != nil {
		return ""
	}
	return c.Subject
}

// claims are what a guard needs of a token.
type claims struct {
	Issuer    string
	Subject   string
	Expires   *float64 // nil: it does not
	NotBefore float64
}

func decodeClaims(part string) (c claims, err error) {
	err = decodePart(part, map[string]any{"iss": &c.Issuer, "sub": &c.Subject, "exp": &c.Expires, "nbf": &c.NotBefore})
	return c, err
}

// verify returns the claims of a token, or says why it is not valid.
func (s *JWKS) verify(ctx context.Context, token string, now time.Time) (c claims, err error) {
	parts := strings.Split(token, ".")
	if len(parts) != 3 {
		return c, errors.New("it is no signed token")
	}
	var header struct {
		Algorithm, Key string
		Critical       json.RawMessage
	}
	if err := decodePart(parts[0], map[string]any{"alg": &header.Algorithm, "kid": &header.Key, "crit": &header.Critical}); err != nil {
		return c, err
	}
	signature, err := base64.RawURLEncoding.DecodeString(parts[2])
	if err != nil || header.Critical != nil {
		return c, errors.New("it can't be read")
	}
	keys, err := s.find(ctx, header.Key, now)
	if err != nil {
		return c, err
	}
	valid := false
	for _, k := range keys {
		valid = valid || k.verifies(header.Algorithm, []byte(parts[0]+"."+parts[1]), signature)
	}
	if !valid {
		return c, errors.New("no key of the issuer signed it")
	}
	if c, err = decodeClaims(parts[1]); err != nil {
		return c, err
	}
	at := float64(now.Unix())
	switch skew := clockSkew.Seconds(); {
	case c.Subject == "":
		return c, errors.New("it has no subject")
	case c.Expires != nil && at > *c.Expires+skew:
		return c, errors.New("it has expired")
	case at < c.NotBefore-skew:
		return c, errors.New("it is not valid yet")
	}
	return c, nil
}

// decodePart reads members of a part of a token. Their names count to the letter, and are there once: an issuer may let its users name
// others that package json takes for the same.
func decodePart(part string, members map[string]any) error {
	text, err := base64.RawURLEncoding.DecodeString(part)
	var all map[string]json.RawMessage
	if err == nil {
		err = json.Unmarshal(text, &all)
	}
	if err == nil {
		err = errors.Join(canonical.Unambiguous(text), canonical.WellFormed(text))
	}
	for name, into := range members {
		if raw, ok := all[name]; ok && err == nil {
			err = json.Unmarshal(raw, into)
		}
	}
	if err != nil {
		return errors.New("it can't be read")
	}
	return nil
}

// find returns the keys of an id, or all of them if a token names none. Only who lacks one waits for the issuer: it may be
// slow, and key ids may be made up.
func (s *JWKS) find(ctx context.Context, id string, now time.Time) ([]publicKey, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for {
		found, age := s.named(id), now.Sub(s.read)
		switch wanted := len(found) == 0 || age > jwksLasts; {
		case !wanted, s.fetching != nil && len(found) > 0, s.fetching == nil && age <= jwksPause:
			if s.err != nil && len(found) == 0 { // the one that it names may be new
				return nil, fmt.Errorf("%w: the issuer's keys can't be read: %w", ErrCallerUnavailable, s.err)
			}
			return found, nil
		case s.fetching == nil:
			s.refresh(ctx, now)
		default:
			if err := s.fetched(ctx); err != nil {
				return nil, fmt.Errorf("%w: %w", ErrCallerUnavailable, err)
			}
		}
	}
}

// refresh fetches the set. The caller holds mu, which others have meanwhile.
func (s *JWKS) refresh(ctx context.Context, now time.Time) {
	s.read, s.fetching = now, make(chan struct{})
	s.mu.Unlock()
	keys, err := []publicKey(nil), errors.New("the fetch of the issuer's keys panicked")
	defer func() {
		s.mu.Lock()
		if s.err = err; err == nil {
			s.keys = keys
		}
		close(s.fetching)
		s.fetching = nil
	}()
	keys, err = s.fetch(ctx)
}

// fetched waits for the fetch under way. The caller holds mu, which others have meanwhile.
func (s *JWKS) fetched(ctx context.Context) error {
	over := s.fetching
	s.mu.Unlock()
	defer s.mu.Lock()
	select {
	case <-over:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (s *JWKS) named(id string) (found []publicKey) {
	for _, k := range s.keys {
		if id == "" || k.id == id {
			found = append(found, k)
		}
	}
	return found
}

// fetch reads the set.
func (s *JWKS) fetch(ctx context.Context) ([]publicKey, error) {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
	defer cancel()
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, s.URL, nil)
	if err != nil {
		return nil, err
	}
	resp, err := cmp.Or(s.Client, http.DefaultClient).Do(r)
	if err != nil {
		return nil, err
	}
	defer resp.Body.Close()
	if resp.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("%s answered %d", s.URL, resp.StatusCode)
	}
	var set struct {
		Keys []jwk `json:"keys"`
	}
	if err := json.NewDecoder(io.LimitReader(resp.Body, 1<<20)).Decode(&set); err != nil {
		return nil, fmt.Errorf("read %s: %w", s.URL, err)
	}
	var keys []publicKey
	for _, k := range set.Keys {
		if public := k.public(); public != nil && k.Use != "enc" {
			keys = append(keys, publicKey{k.ID, k.Algorithm, public})
		}
	}
	return keys, nil
}

// A jwk is a key as a set has it (RFC 7518 section 6).
type jwk struct {
	Type      string `json:"kty"`
	ID        string `json:"kid"`
	Algorithm string `json:"alg"`
	Use       string `json:"use"`
	Curve     string `json:"crv"`
	N, E      string
	X, Y      string
}

// public returns the key, or nil if it is of a kind that signs no tokens here.
func (k jwk) public() crypto.PublicKey {
	number := func(text string) []byte {
		b, err := base64.RawURLEncoding.DecodeString(text)
		if err != nil {
			return nil
		}
		return b
	}
	switch {
	case k.Type == "RSA":
		n, e := new(big.Int).SetBytes(number(k.N)), new(big.Int).SetBytes(number(k.E))
		if n.BitLen() < 2048 || n.BitLen() > 16384 || !e.IsInt64() || e.Int64() < 3 || e.Int64() > 1<<31-1 {
			return nil
		}
		return &rsa.PublicKey{N: n, E: int(e.Int64())}
	case k.Type == "EC":
		curve := map[string]elliptic.Curve{"P-256": elliptic.P256(), "P-384": elliptic.P384(), "P-521": elliptic.P521()}[k.Curve]
		if curve == nil {
			return nil
		}
		size := (curve.Params().BitSize + 7) / 8
		x, y := number(k.X), number(k.Y)
		if len(x) > size || len(y) > size {
			return nil
		}
		point := make([]byte, 1+2*size)
		point[0] = 4 // uncompressed
		copy(point[1+size-len(x):], x)
		copy(point[1+2*size-len(y):], y)
		key, err := ecdsa.ParseUncompressedPublicKey(curve, point)
		if err != nil {
			return nil
		}
		return key
	case k.Type == "OKP" && k.Curve == "Ed25519":
		if x := number(k.X); len(x) == ed25519.PublicKeySize {
			return ed25519.PublicKey(x)
		}
	}
	return nil
}

// A publicKey is a key of a set with what it is for.
type publicKey struct {
	id        string
	algorithm string // empty: any that fits the key
	key       crypto.PublicKey
}

// verifies reports whether the key made the signature. The algorithm is the token's
// claim: it only counts where it fits the key.
func (k publicKey) verifies(algorithm string, signed, signature []byte) bool {
	if k.algorithm != "" && k.algorithm != algorithm || len(algorithm) < 5 {
		return false
	}
	if key, ok := k.key.(ed25519.PublicKey); ok {
		return algorithm == "EdDSA" && ed25519.Verify(key, signed, signature)
	}
	hash := map[string]crypto.Hash{"256": crypto.SHA256, "384": crypto.SHA384, "512": crypto.SHA512}[algorithm[2:]]
	if !hash.Available() {
		return false
	}
	h := hash.New()
	_, _ = h.Write(signed) // a hash takes everything
	sum := h.Sum(nil)
	switch key := k.key.(type) {
	case *rsa.PublicKey:
		switch algorithm[:2] {
		case "RS":
			return rsa.VerifyPKCS1v15(key, hash, sum, signature) == nil
		case "PS":
			return rsa.VerifyPSS(key, hash, sum, signature, nil) == nil
		}
	case *ecdsa.PublicKey:
		size := (key.Curve.Params().BitSize + 7) / 8
		if algorithm[:2] != "ES" || len(signature) != 2*size {
			return false
		}
		return ecdsa.Verify(key, sum, new(big.Int).SetBytes(signature[:size]), new(big.Int).SetBytes(signature[size:]))
	}
	return false
}
