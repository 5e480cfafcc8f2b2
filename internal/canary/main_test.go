package main

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
)

// stream is what go test -json says of a package with a test that says something.
func stream(said, result string) string {
	var b strings.Builder
	for _, e := range []event{
		{"start", "p", "", ""}, {"run", "p", "TestA", ""}, {"output", "p", "TestA", "=== RUN   TestA\n"},
		{"output", "p", "TestA", "    a_test.go:1: " + said + "\n"}, {"output", "p", "TestA", "--- " + strings.ToUpper(result) + ": TestA (0.00s)\n"},
		{result, "p", "TestA", ""}, {"output", "p", "", map[string]string{"pass": "PASS\n", "fail": "FAIL\n"}[result]},
		{"output", "p", "", map[string]string{"pass": "ok  \tp\t0.1s\n", "fail": "FAIL\tp\t0.1s\n"}[result]}, {result, "p", "", ""},
	} {
		raw, _ := json.Marshal(e)
		b.Write(append(raw, '\n'))
	}
	return b.String()
}

// What tests say is printed as go test prints it, and a secret in it is found in whatever form.
func TestWatch(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		in, want string
		shown    bool
	}{
		"a pass":                 {stream("hello", "pass"), "ok  \tp\t0.1s\n", false},
		"a failure":              {stream("hello", "fail"), "--- FAIL: TestA (0.00s)\n    a_test.go:1: hello\nFAIL\nFAIL\tp\t0.1s\n", false},
		"no JSON":                {"go: downloading x\n", "go: downloading x\n", false},
		"a secret":               {stream("the key is "+secrets[0], "pass"), "ok  \tp\t0.1s\n", true},
		"a secret as base64":     {stream(base64.StdEncoding.EncodeToString([]byte(secrets[1])), "pass"), "ok  \tp\t0.1s\n", true},
		"a secret without JSON":  {secrets[1] + "\n", secrets[1] + "\n", true},
		"a package without test": {`{"Action":"output","Package":"p","Output":"?   \tp\t[no test files]\n"}` + "\n" + `{"Action":"skip","Package":"p"}`, "?   \tp\t[no test files]\n", false},
		"a test that never ended": {`{"Action":"output","Package":"p","Test":"TestA","Output":"panic: x\n"}` + "\n" +
			`{"Action":"output","Package":"p","Output":"FAIL\tp\t1s\n"}` + "\n" + `{"Action":"fail","Package":"p"}`, "panic: x\nFAIL\tp\t1s\n", false},
	} {
		var out strings.Builder
		err := watch(strings.NewReader(c.in), &out)
		if out.String() != c.want {
			t.Errorf("%s: printed %q, want %q", name, out.String(), c.want)
		}
		if (err != nil) != c.shown {
			t.Errorf("%s: %v", name, err)
		}
		for _, s := range secrets {
			if err != nil && strings.Contains(err.Error(), s) {
				t.Errorf("%s: the secret is shown again", name)
			}
		}
	}
}
