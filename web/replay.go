package web

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"slices"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/api"
	"github.com/keep-run/keep/view"
)

// replayData is what came of going through a run again.
type replayData struct {
	keep.Run
	api.Replay
	With   string // what it was gone through with
	Diffs  []replayDiff
	Refuse []string // why the script was not taken
}

// A replayDiff is one difference, line by line.
type replayDiff struct {
	Phase, What string
	Lines       []view.DiffLine
}

// replay goes through a run again with the version or the script of a form. It sends nothing.
func (s *site) replay(r *http.Request) (page, error) {
	run, err := s.cfg.Store.Run(r.Context(), keep.RunID(r.PathValue("id")))
	if err != nil {
		return page{}, err
	}
	p := page{Title: "Replay of " + string(run.Handler), Section: "runs"}
	if s.cfg.Replayer == nil {
		return p, refusef("this host replays no runs")
	}
	if err := parseForm(r); err != nil { // else a script that is too large would be none
		return p, err
	}
	d := &replayData{Run: run}
	p.Data = d
	var q api.ReplayRequest
	switch source, version := r.PostForm.Get("source"), r.PostForm.Get("version"); {
	case strings.TrimSpace(source) != "":
		q.Script = &api.Script{File: "pasted.ts", Source: source} // JavaScript is TypeScript, too
		d.With = "the script that you pasted"
	case version != "" && version != run.Version.String():
		q.Version, d.With = version, "version "+version
	// Also of use: it shows whether the run does again what it did.
	default:
		d.With = "its own version"
	}
	d.Replay, err = s.cfg.Replayer.Replay(r.Context(), run.ID, q)
	if wrong, ok := errors.AsType[*api.ScriptError](err); ok {
		d.Refuse = strings.Split(wrong.Error(), "\n")
		p.Status = http.StatusUnprocessableEntity
		return p, nil
	}
	for _, diff := range d.Differences {
		d.Diffs = append(d.Diffs, replayDiff{diff.Phase, diff.What, diffJSON(diff.Recorded, diff.Now)})
	}
	return p, err
}

// diffJSON compares two values line by line.
func diffJSON(was, now json.RawMessage) []view.DiffLine {
	if before, after := indented(was), indented(now); before != after {
		return view.Diff(before, after)
	}
	return view.Diff(string(was), string(now)) // only the spelling differs
}

// indented returns a value on lines; nothing is empty.
func indented(v json.RawMessage) string {
	var b bytes.Buffer
	if len(v) == 0 || string(v) == "null" || json.Indent(&b, v, "", "  ") != nil {
		return ""
	}
	return b.String()
}

// inGo reports whether no host but the program that has the handlers of a version can go through its runs.
func inGo(d keep.Deployment) bool { return d.Definition.Go }

// readVersions reads the versions that a run can be gone through with.
func (s *site) readVersions(ctx context.Context, d *runData) error {
	if s.cfg.Replayer == nil {
		return nil
	}
	all, err := s.cfg.Store.Deployments(ctx, d.Workflow)
	all = slices.DeleteFunc(all, inGo)
	for _, v := range all[:min(len(all), maxShown)] {
		d.Versions = append(d.Versions, v.Version)
	}
	return err
}
