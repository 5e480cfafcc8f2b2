package scripttest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"unicode"
)

// A scrubber replaces addresses and what looks like a secret in a test: each by one text that
// stands for it wherever it is, so that the script finds them alike. What is in the script
// itself stays: the script lies beside the test.
type scrubber struct {
	code   []byte
	stands map[string]string
	counts map[string]int // by the word for the kind
	kinds  []string       // in the order of finding
	named  []string       // secrets by the name of their field
}

func newScrubber(code []byte) *scrubber {
	return &scrubber{code: code, stands: make(map[string]string), counts: make(map[string]int)}
}

var (
	address = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`[A-Za-z0-9._%+-]+@[A-Za-z0-9-]+(\.[A-Za-z0-9-]+)+`) })
	example = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)@([a-z0-9-]+\.)*(example\.(com|org|net)|[a-z0-9-]+\.(test|example|invalid))$`)
	})

	// credential has the beginnings by which services mark theirs, and long words.
	credential = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`\beyJ[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*|\b(?:sk|rk|pk|whsec|ghp|gho|ghs|github_pat|xox[abprs]|glpat|ya29|AKIA|AIza|SG)[-_.A-Za-z0-9]{12,}|[A-Za-z0-9_+=-]{24,}`)
	})
	marked = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`^(eyJ|sk|rk|pk|whsec|ghp|gho|ghs|github_pat|xox|glpat|ya29|AKIA|AIza|SG)[-_.A-Za-z0-9]*[0-9]`)
	})

	made = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^[a-z]{2,5}_[0-9A-Z]{26}$`) }) // an id of Keep

	stood = sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(`^secret-\d+$`) })

	// passed is what a text has where a secret is: behind a word such as Bearer, in the address of a page, and in its query.
	passed = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(?:\b(?:bearer|basic)\s+|[?&](?:[\w-]*[_-])?(?:password|passwd|secret|token|api[_-]?key|credential)=)([^\s&#@"'<>]{4,})|://[^\s/:@]*:([^\s/?#@"'<>]{4,})@`)
	})

	// secretKey is the name of a field whose text is a secret.
	secretKey = sync.OnceValue(func() *regexp.Regexp {
		return regexp.MustCompile(`(?i)(^|[_-])(password|passwd|passphrase|secret|token|api[_-]?key|authorization|cookie|private[_-]?key|credentials?)$|(Password|Secret|Token|ApiKey|APIKey|PrivateKey|Credential)$`)
	})
)

// test returns t with everything replaced.
func (s *scrubber) test(t Test) (Test, error) {
	raw, err := json.Marshal(t)
	if err != nil {
		return t, err
	}
	var tree any
	if err := json.Unmarshal(raw, &tree); err != nil {
		return t, err
	}
	s.value(tree, "") // finds every secret by its key, so that it is replaced elsewhere, too
	if raw, err = json.Marshal(s.value(tree, "")); err != nil {
		return t, err
	}
	var out Test
	d := json.NewDecoder(bytes.NewReader(raw))
	return out, d.Decode(&out)
}

// value returns v, which is under a key, with everything replaced.
func (s *scrubber) value(v any, key string) any {
	switch v := v.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for k, x := range v {
			if secretKey().MatchString(key) { // all that is in it
				out[s.text(k)] = s.value(x, key)
				continue
			}
			out[s.text(k)] = s.value(x, k)
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, x := range v {
			out[i] = s.value(x, key)
		}
		return out
	case string:
		var inner any
		if d := json.NewDecoder(strings.NewReader(v)); key == "json" {
			d.UseNumber()
			if d.Decode(&inner) != nil {
				return s.text(v)
			}
			if raw, err := json.Marshal(s.value(inner, "")); err == nil {
				return string(raw)
			}
		}
		if inner, is := s.inner(v); is {
			return inner
		}
		if secretKey().MatchString(key) && len(v) >= 4 && !strings.HasPrefix(v, "${secret:") && !stood().MatchString(v) {
			s.passed(v)
			s.named = append(s.named, v)
			return s.stand(v, "secret", "secret-%d")
		}
		return s.text(v)
	case float64, json.Number:
		return s.number(v, key)
	}
	return v
}

// number returns a number that is under a key, or what stands for it if that is the name of a secret.
func (s *scrubber) number(v any, key string) any {
	raw, err := json.Marshal(v)
	digits := string(raw)
	if err != nil || len(digits) < 4 || !secretKey().MatchString(key) {
		return v
	}
	s.named = append(s.named, digits)
	if to := s.stand(digits, "secret", "secret-%d"); to != digits {
		return to
	}
	return v
}

// inner returns a text that is an object or a list of JSON with everything in it replaced; false: it is none, or has nothing to
// replace, and stays as it is written.
func (s *scrubber) inner(v string) (string, bool) {
	if t := strings.TrimSpace(v); t == "" || t[0] != '{' && t[0] != '[' {
		return "", false
	}
	d := json.NewDecoder(strings.NewReader(v))
	d.UseNumber()
	var is any
	if d.Decode(&is) != nil || d.More() {
		return "", false
	}
	before, errBefore := json.Marshal(is)
	after, errAfter := json.Marshal(s.value(is, ""))
	return string(after), errBefore == nil && errAfter == nil && !bytes.Equal(before, after)
}

// passed returns the secrets that a text passes on, and notes them.
func (s *scrubber) passed(v string) (all []string) {
	for _, m := range passed().FindAllStringSubmatch(v, -1) {
		if secret := m[1] + m[2]; !strings.HasPrefix(secret, "${secret:") && !stood().MatchString(secret) {
			all = append(all, secret)
			if !slices.Contains(s.named, secret) {
				s.named = append(s.named, secret)
			}
		}
	}
	return all
}

// text returns a text with everything in it replaced.
func (s *scrubber) text(v string) string {
	for _, secret := range s.passed(v) {
		v = strings.ReplaceAll(v, secret, s.stand(secret, "secret", "secret-%d"))
	}
	for _, n := range s.named {
		if v == n || len(n) >= 8 {
			v = strings.ReplaceAll(v, n, s.stand(n, "secret", "secret-%d"))
		}
	}
	v = address().ReplaceAllStringFunc(v, func(a string) string {
		if example().MatchString(a) {
			return a
		}
		return s.stand(a, "address", "person%d@example.com")
	})
	return credential().ReplaceAllStringFunc(v, func(w string) string {
		if made().MatchString(w) || !marked().MatchString(w) && !mixed(w) {
			return w
		}
		return s.stand(w, "secret", "secret-%d")
	})
}

// mixed reports whether a long word looks like chance: small and large letters, and digits
// among them.
func mixed(w string) bool {
	return strings.ContainsFunc(w, unicode.IsLower) && strings.ContainsFunc(w, unicode.IsUpper) && strings.ContainsFunc(w, unicode.IsDigit)
}

// stand returns what stands for a text.
func (s *scrubber) stand(of, kind, format string) string {
	if bytes.Contains(s.code, []byte(of)) {
		return of
	}
	to, have := s.stands[of]
	if !have {
		if s.counts[kind]++; s.counts[kind] == 1 {
			s.kinds = append(s.kinds, kind)
		}
		to = fmt.Sprintf(format, s.counts[kind])
		s.stands[of] = to
	}
	return to
}

// said says what was replaced.
func (s *scrubber) said() []string {
	var out []string
	for _, kind := range s.kinds {
		what := map[string][2]string{"address": {"address", "addresses"}, "secret": {"text that looks like a secret", "texts that look like secrets"}}[kind]
		out = append(out, fmt.Sprintf("%d %s", s.counts[kind], what[min(s.counts[kind]-1, 1)]))
	}
	return out
}
