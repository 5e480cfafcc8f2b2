// Command clients sends one request, and retries it until it knows what became of it.
// It acts once, however often it has to ask.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"
)

// errUnknown is returned when nobody can say what became of the request. Do not send it
// again under another key.
var errUnknown = errors.New("the outcome is unknown")

const attempts = 8

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: clients URL KEY BODY")
		os.Exit(2)
	}
	status, body, err := send(os.Args[1], os.Args[2], os.Args[3])
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	fmt.Println(status, body)
}

// send posts a body under a key until there is an answer to it.
func send(url, key, body string) (int, string, error) {
	doubt := false // a try may have been executed
	for n := range attempts {
		status, header, text, err := do("POST", url, key, body)
		problem := kindOf(text)
		switch refused := err == nil && (status == 425 || status == 429); {
		case refused && !doubt && n == attempts-1: // as each try was
			return status, text, nil
		case refused:
		case err != nil: // no answer: the same request with the same key is safe
			doubt = true
		case problem == "outcome-unknown":
			if status, text, err = ask(url, text); err != nil || status != 0 {
				return status, text, err
			} // else the retry gets the answer, or does what was not done
			doubt = true
		case problem == "in-progress", status == 502, status == 503, status == 504:
			doubt = true
		default:
			return status, text, nil
		}
		pause(n, header)
	}
	return 0, "", errUnknown
}

// ask looks at the instance of a problem until it says what became of the request. The
// status is 0 if the request is to be sent again: it is done and the answer is not shown there, or it was not done.
func ask(url, problem string) (int, string, error) {
	var p struct {
		Instance string `json:"instance"`
	}
	if json.Unmarshal([]byte(problem), &p) != nil || p.Instance == "" {
		return 0, "", errUnknown
	}
	scheme, rest, _ := strings.Cut(url, "://")
	host, _, _ := strings.Cut(rest, "/")
	for n := range attempts {
		_, header, text, err := do("GET", scheme+"://"+host+p.Instance, "", "")
		var s struct {
			State  string
			Answer struct { // null if it is not shown
				Status int
				Body   string
			}
		}
		if err == nil && json.Unmarshal([]byte(text), &s) == nil && (s.State == "done" || s.State == "released") {
			return s.Answer.Status, s.Answer.Body, nil
		}
		pause(n, header)
	}
	return 0, "", errUnknown
}

// do sends one request.
func do(method, url, key, body string) (int, http.Header, string, error) {
	r, err := http.NewRequest(method, url, strings.NewReader(body))
	if err != nil {
		return 0, nil, "", err
	}
	r.Header.Set("Authorization", "Bearer "+os.Getenv("API_TOKEN"))
	if key != "" {
		r.Header.Set("Content-Type", "application/json")
		r.Header["idempotency-key"] = []string{key} // Go's transport repeats what has it in upper case
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, nil, "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	return resp.StatusCode, resp.Header, string(text), err
}

// kindOf returns the last part of a problem's type; "" if text is none.
func kindOf(text string) string {
	var p struct{ Type string }
	if json.Unmarshal([]byte(text), &p) != nil {
		return ""
	}
	return p.Type[strings.LastIndex(p.Type, "/")+1:]
}

// pause waits before the next attempt: as long as the server asks, else longer and longer.
func pause(n int, h http.Header) {
	wait := 100 * time.Millisecond << n
	if seconds, err := strconv.Atoi(h.Get("Retry-After")); err == nil {
		wait = time.Duration(seconds) * time.Second
	}
	time.Sleep(min(wait, 10*time.Second))
}
