package rename_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/rename"
)

// A story is what a database has after some deploys, by the law alone.
type story struct {
	t       *testing.T
	current []keep.Deployment
}

// deploy deploys what follows, and returns it.
func (s *story) deploy(w keep.Definition) (keep.Definition, error) {
	d, err := rename.Follow(s.current, w)
	if err != nil {
		return d, err
	}
	again, err := rename.Follow(s.current, d)
	if err != nil || fmt.Sprint(again) != fmt.Sprint(d) {
		s.t.Errorf("followed twice: %+v, %v; want %+v", again, err, d)
	}
	for i, c := range s.current {
		if c.Workflow == d.Name {
			s.current[i].Definition = rename.Remember(d, c.Definition)
			return d, nil
		}
	}
	s.current = append(s.current, keep.Deployment{Workflow: d.Name, Definition: rename.Remember(d, keep.Definition{})})
	return d, nil
}

// TestFollowWorkflow goes through workflows that are deployed one after the other, by what they are called and were.
func TestFollowWorkflow(t *testing.T) {
	for _, tt := range []struct{ name, deploys, want string }{
		{"once", "a b<a b<a", "a a a"},
		{"the one in between", "a b<a c<b c<b", "a a a a"},
		{"the first one", "a b<a c<a", "a a a"},
		{"one that was skipped", "a b<a c<b d<b", "a a a a"},
		{"three times", "a b<a c<b d<c e<d", "a a a a a"},
		{"its first name again", "a b<a a<b", "a a a"},
		{"its first name again, and another one", "a b<a a<b c<b", "a a a a"},
		{"nothing is there", "b<a", "b"},
		{"nothing of that name", "a c<b", "a c"},
		{"both", "a b b<a", "a b both"},
		{"both, by a later name", "a b<a c c<b", "a a c both"},
		{"another one has the name since", "a b<a b c<b", "a a b b"},
		{"two had the name", "a b<a x b<x c<b", "a a x x workflow"},
		{"without was", "a b<a c", "a a c"},
		{"itself", "a a<a", "a a"},
		{"of before, which did not say so", "a<a! c<b", "a workflow"},
		{"of before, by its name", "a<a! c<a d<c", "a a a"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			s := &story{t: t}
			var got []string
			for _, text := range strings.Fields(tt.deploys) {
				old := strings.HasSuffix(text, "!") // by an earlier version of Keep
				name, was, _ := strings.Cut(strings.TrimSuffix(text, "!"), "<")
				d, err := s.deploy(keep.Definition{Name: keep.WorkflowName(name), Was: keep.WorkflowName(was)})
				doubt, doubted := errors.AsType[rename.Doubt](err)
				switch {
				case doubted && doubt.Kind == rename.Both:
					got = append(got, "both")
				case doubted:
					got = append(got, string(doubt.Kind))
				default:
					got = append(got, string(d.Name))
				}
				if old {
					s.current[0].Definition.Renamed = nil
				}
			}
			if text := strings.Join(got, " "); text != tt.want {
				t.Errorf("got %s, want %s", text, tt.want)
			}
		})
	}
}

// TestFollowParts goes through the jobs, producers and topics of one workflow, as TestFollowWorkflow does.
func TestFollowParts(t *testing.T) {
	kinds := map[string]func(d keep.Definition, name, was string) keep.Definition{
		"topic": func(d keep.Definition, name, was string) keep.Definition {
			d.Topics = append(d.Topics, keep.TopicName(name))
			if was == "" {
				return d
			}
			return d.KeepAs(map[keep.TopicName]keep.TopicName{keep.TopicName(name): keep.TopicName(was)})
		},
	}
	for _, kind := range []keep.Kind{keep.Job, keep.Producer} {
		kinds[string(kind)] = func(d keep.Definition, name, was string) keep.Definition {
			d.Handlers = append(d.Handlers, keep.Handler{Name: keep.HandlerName(name), Kind: kind, Items: was})
			return d
		}
	}
	for _, tt := range []struct{ name, deploys, want string }{
		{"once", "a b<a b<a", "a a a"},
		{"the one in between", "a b<a c<b c<b", "a a a a"},
		{"the first one", "a b<a c<a", "a a a"},
		{"one that was skipped", "a b<a c<b d<b", "a a a a"},
		{"its first name again", "a b<a a<b", "a a a"},
		{"of before", "a b<a! c<b", "a a a"},
		{"nothing of that name", "a c<b", "a b"},
		{"one beside it", "a+x b<a+x c<b+x<x", "a+x a+x a+x"},
		{"gone, and another one had its name", "a b<a b c<b", "a a b b"},
		{"another one has the first name", "a b<a a+c<b", "a a doubt"},
		{"two of its names", "a x<a y<x b<x+c<y", "a a a doubt"},
		{"its first and another name", "a b<a d<a+c<b", "a a doubt"},
		{"gone for a while", "a b<a x c<b", "a a x a"},
	} {
		for kind, add := range kinds {
			t.Run(kind+"/"+tt.name, func(t *testing.T) {
				s := &story{t: t}
				var got []string
				for _, text := range strings.Fields(tt.deploys) {
					var w keep.Definition
					w.Name = "w"
					for part := range strings.SplitSeq(strings.TrimSuffix(text, "!"), "+") {
						name, was, _ := strings.Cut(part, "<")
						w = add(w, name, was)
					}
					d, err := s.deploy(w)
					if strings.HasSuffix(text, "!") {
						s.current[0].Definition.Renamed = nil
					}
					var firsts []string
					for _, t := range d.Topics {
						firsts = append(firsts, string(t))
					}
					for _, h := range d.Handlers {
						firsts = append(firsts, h.ItemsOf())
					}
					if doubt, ok := errors.AsType[rename.Doubt](err); ok {
						firsts = []string{"doubt"}
						if !strings.Contains(doubt.Error(), "the "+kind+" c of workflow w was a first") || !strings.Contains(doubt.Fix(), "give the other "+kind) {
							t.Errorf("doubt %v; %s", doubt, doubt.Fix())
						}
					}
					got = append(got, strings.Join(firsts, "+"))
				}
				if text := strings.Join(got, " "); text != tt.want {
					t.Errorf("got %s, want %s", text, tt.want)
				}
			})
		}
	}
}

// Names are forgotten, the oldest first, before there are too many.
func TestRememberIsBounded(t *testing.T) {
	s := &story{t: t}
	for i := range keep.MaxRenamed + 2 {
		w := keep.Definition{Name: keep.WorkflowName(fmt.Sprint("w", i))}
		if i > 0 {
			w.Was = keep.WorkflowName(fmt.Sprint("w", i-1))
		}
		if d, err := s.deploy(w); err != nil || d.Name != "w0" {
			t.Fatalf("%s: %s, %v", w.Name, d.Name, err)
		}
	}
	if n := len(s.current[0].Definition.Renamed); n != keep.MaxRenamed {
		t.Errorf("%d names, want %d", n, keep.MaxRenamed)
	}
}
