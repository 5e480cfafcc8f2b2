package web

import (
	"errors"
	"net/http"
	"strings"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/key"
	"github.com/keep-run/keep/view"
)

// find leads to what an id names that is printed somewhere, or a part of one that a host made; whatever
// else is looked for is searched in the inputs.
func (s *site) find(w http.ResponseWriter, r *http.Request) {
	text := strings.TrimSpace(r.URL.Query().Get("q"))
	to := "/inputs" + query("q", text)
	// What can be no id costs no look-up.
	if len(text) >= view.MinPart && len(text) <= keep.MaxMessageID && !strings.ContainsAny(text, " \t\n") {
		story, err := view.Find(r.Context(), s.cfg.Store, text)
		_, several := errors.AsType[*view.AmbiguousError](err)
		switch {
		case err == nil:
			to = storyPath(story)
		// Not found, or a part of several ids: the list of inputs shows what has the text.
		case !several && !errors.Is(err, keep.ErrNotFound):
			s.fail(w, r, err)
			return
		case s.cfg.Keys != nil:
			if id, err := key.ParseID(text); err == nil {
				to = "/keys/" + id.String()
			}
		}
	}
	http.Redirect(w, r, to, http.StatusSeeOther)
}

// storyPath is the page of what a story is about.
func storyPath(t view.Story) string {
	switch t.Is {
	case view.IsRun:
		return runPath(keep.RunID(t.ID))
	case view.IsMutation:
		return mutationPath(keep.MutationKey(t.ID))
	case view.IsQuestion:
		return "/inbox/" + pathEscape(t.ID)
	case view.IsInput:
		return "/inputs/" + pathEscape(t.ID)
	case view.IsItem:
		return "/item" + itemQuery(t.Workflow, t.ID)
	case view.IsVersion:
		name, version, _ := strings.Cut(t.ID, "@")
		return "/workflows/" + pathEscape(name) + "/versions/" + pathEscape(version)
	case view.IsProposal:
		return "/proposals/" + pathEscape(t.ID)
	case view.IsEvent:
		if len(t.Events) > 0 {
			return "/event" + query("workflow", string(t.Workflow), "topic", string(t.Events[0].Topic), "id", string(t.Events[0].MessageID))
		}
	}
	return "/inputs" + query("q", t.ID)
}
