package main

import (
	"testing"

	"github.com/keep-run/keep/cmd/keep/internal/config"
	"github.com/keep-run/keep/cmd/keep/internal/daemon"
)

// A link to log in leads to where a browser on this machine finds the host.
func TestBaseOf(t *testing.T) {
	for _, tt := range []struct {
		server config.Server
		want   string
	}{
		{config.Server{}, "http://" + daemon.DefaultListen},
		{config.Server{Listen: "off"}, "http://" + daemon.DefaultListen},
		{config.Server{Listen: "127.0.0.1:9"}, "http://127.0.0.1:9"},
		{config.Server{Listen: ":9"}, "http://localhost:9"},
		{config.Server{Listen: "0.0.0.0:9", TLSCert: "c"}, "https://localhost:9"},
		{config.Server{Listen: "[::]:9"}, "http://localhost:9"},
		{config.Server{Listen: ":9", URL: "https://keep.example.com"}, "https://keep.example.com"},
	} {
		if got := baseOf(tt.server); got != tt.want {
			t.Errorf("%+v: %s, want %s", tt.server, got, tt.want)
		}
	}
}
