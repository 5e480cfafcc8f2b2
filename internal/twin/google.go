package twin

import "net/http"

// googleError is how Google's APIs refuse, as
// https://developers.google.com/workspace/calendar/api/guides/errors says.
func googleError(status int, reason, message string) Reply {
	return Reply{Status: status, Body: map[string]any{"error": map[string]any{
		"code": status, "message": message,
		"errors": []map[string]string{{"domain": "global", "reason": reason, "message": message}},
	}}}
}

// notFound is Google's own 404.
func notFound() Reply { return googleError(http.StatusNotFound, "notFound", "Not Found") }
