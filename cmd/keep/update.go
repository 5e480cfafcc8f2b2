package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"time"

	"github.com/spf13/cobra"
	"golang.org/x/mod/semver"

	"github.com/keep-run/keep/cmd/keep/internal/buildinfo"
	"github.com/keep-run/keep/cmd/keep/internal/exit"
	"github.com/keep-run/keep/cmd/keep/internal/terminal"
)

// releases answers with the newest release.
const releases = "https://api.github.com/repos/keep-run/keep/releases/latest"

// How long and how much the answer about a release may be (law: bounded). GitHub lists the files of
// a release in it.
const (
	releaseTimeout = 10 * time.Second
	releaseLimit   = 1 << 20 // bytes
)

// updateCmd asks whether there is a newer release. Nothing else of Keep asks. It replaces nothing: the
// program may belong to a package manager, and a backup comes before an upgrade.
func (a *app) updateCmd() *cobra.Command {
	var check bool
	var from string
	cmd := &cobra.Command{
		Use:   "update --check",
		Short: "Ask whether there is a newer release",
		Long: `Update asks where Keep is published whether there is a newer release, and says so. It
changes no file: install a newer one the way you installed this one, after keep db backup.
Keep asks only when this command is run.`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if !check {
				return exit.Misusef("keep update replaces no file by itself; use keep update --check")
			}
			return a.checkUpdate(cmd.Context(), from, buildinfo.Read().Version)
		},
	}
	cmd.Flags().BoolVar(&check, "check", false, "ask, and change nothing")
	// For a mirror, where GitHub cannot be reached.
	cmd.Flags().StringVar(&from, "from", releases, "the `URL` that answers with the newest release, as GitHub's API does")
	return cmd
}

// A release is what keep update --check --json prints.
type release struct {
	Version string `json:"version"` // of this command; (devel) if it was built without one
	Newest  string `json:"newest"`
	Newer   bool   `json:"newer"` // Newest is newer than Version; false if Version is none
	URL     string `json:"url"`
}

// checkUpdate asks from for the newest release and compares it with have. A newer one is no failure:
// the status is 0 either way, and --json says which.
func (a *app) checkUpdate(ctx context.Context, from, have string) error {
	r, err := newestRelease(ctx, from)
	if err != nil {
		return fmt.Errorf("ask %s for the newest release: %w", redacted(from), err)
	}
	r.Version = have
	// Without a version of its own it can say only which one is there.
	r.Newer = semver.IsValid(have) && semver.Compare(r.Newest, have) > 0
	if a.JSON {
		return a.PrintJSON(r)
	}
	switch {
	case r.Newer:
		_, err = fmt.Fprintf(a.Out, "%s is there, and this is %s: %s\nBefore you upgrade: keep db backup\n", r.Newest, have, r.URL)
	case semver.IsValid(have):
		_, err = fmt.Fprintf(a.Out, "This is %s, and the newest release is %s.\n", have, r.Newest)
	default:
		_, err = fmt.Fprintf(a.Out, "The newest release is %s: %s\nThis keep was built without a version, so nothing was compared.\n", r.Newest, r.URL)
	}
	return err
}

// newestRelease asks for the newest release. What it is told has a version, or is an error, as from a
// proxy that answers with a page of its own.
func newestRelease(ctx context.Context, from string) (release, error) {
	ctx, cancel := context.WithTimeout(ctx, releaseTimeout)
	defer cancel()
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, from, nil)
	if err != nil {
		return release{}, err
	}
	req.Header.Set("Accept", "application/json")
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return release{}, err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, releaseLimit))
	if err != nil {
		return release{}, err
	}
	if resp.StatusCode != http.StatusOK {
		return release{}, fmt.Errorf("it answered %s", resp.Status)
	}
	var got struct {
		Tag string `json:"tag_name"`
		URL string `json:"html_url"`
	}
	if err := json.Unmarshal(body, &got); err != nil || !semver.IsValid(got.Tag) {
		return release{}, fmt.Errorf("it answered without a version: %.100q", body)
	}
	return release{Newest: got.Tag, URL: terminal.Clean(got.URL)}, nil
}
