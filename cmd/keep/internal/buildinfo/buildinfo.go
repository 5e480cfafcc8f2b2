// Package buildinfo says which Keep this is.
package buildinfo

import (
	"runtime"
	"runtime/debug"
	"time"
)

// A buildVersion says which Keep this is.
type buildVersion struct {
	Version  string  `json:"version"`
	Revision *string `json:"revision"` // null: not built from a checkout
	Modified bool    `json:"modified"`
	Time     *string `json:"time"` // of the revision; null as that
	Go       string  `json:"go"`
	Platform string  `json:"platform"`
}

// Read reads what the Go tool wrote into the binary.
func Read() buildVersion {
	v := buildVersion{Version: "(devel)", Go: runtime.Version(), Platform: runtime.GOOS + "/" + runtime.GOARCH}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	if info.Main.Version != "" {
		v.Version = info.Main.Version
	}
	for _, s := range info.Settings {
		switch s.Key {
		case "vcs.revision":
			v.Revision = new(s.Value[:min(12, len(s.Value))])
		case "vcs.modified":
			v.Modified = s.Value == "true"
		case "vcs.time":
			v.Time = timeOf(s.Value)
		}
	}
	return v
}

// timeOf returns a time of the Go tool in the form of all times in JSON.
func timeOf(s string) *string {
	at, err := time.Parse(time.RFC3339, s)
	if err != nil {
		return nil
	}
	return new(at.UTC().Format("2006-01-02T15:04:05.000Z"))
}
