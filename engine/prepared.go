package engine

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
	"time"

	"github.com/keep-run/keep"
	"github.com/keep-run/keep/law/canonical"
	"github.com/keep-run/keep/law/given"
	"github.com/keep-run/keep/law/policy"
)

// eventView is an event as scripts see it.
type eventView struct {
	Topic     keep.TopicName   `json:"topic"`
	MessageID keep.MessageID   `json:"messageId"`
	Payload   json.RawMessage  `json:"payload"`
	Status    keep.EventStatus `json:"status"`
	CreatedAt time.Time        `json:"createdAt"`
	Attempt   int              `json:"attempt,omitempty"` // absent only in replays of runs from before
}

// viewOf returns an event as the script of d sees it.
func viewOf(d keep.Definition, ev keep.Event) eventView {
	v := eventView{d.CalledIn(ev.Topic), ev.MessageID, ev.Payload, ev.Status, ev.CreatedAt, ev.Attempt()}
	if v.Payload == nil {
		v.Payload = json.RawMessage("null")
	}
	return v
}

func eventJSON(d keep.Definition, ev keep.Event) json.RawMessage { return marshal(viewOf(d, ev)) }

func eventsJSON(d keep.Definition, events []keep.Event) json.RawMessage {
	out := make([]eventView, 0, len(events))
	for _, ev := range events {
		out = append(out, viewOf(d, ev))
	}
	return marshal(out)
}

// prepared is what the host takes from a prepare result. The result itself is
// stored and handed on as it is.
type prepared struct {
	reservations []keep.Reservation
	trigger      keep.EventRef
	title        string
	wakeAt       time.Time
}

const prepareShape = "prepare must return {reservations: [{topic, ids}], data, ui?, wakeAt?, selectionId?, trigger?}"

// A rawPrepared is what prepare returned.
type rawPrepared struct {
	Reservations *[]rawReservation `json:"reservations"`
	Data         json.RawMessage   `json:"data"`
	UI           *struct {
		Title string `json:"title"`
	} `json:"ui"`
	WakeAt  json.RawMessage `json:"wakeAt"`
	Trigger json.RawMessage `json:"trigger"`
}

type rawReservation struct {
	Topic *keep.TopicName   `json:"topic"`
	IDs   []json.RawMessage `json:"ids"`
}

// badPrepared is the failure of a prepare whose result has not the shape.
func badPrepared(format string, args ...any) *keep.Failure {
	return keep.Failf(keep.ClassLogic, "bad-prepare-result", "%s: %s", prepareShape, fmt.Sprintf(format, args...))
}

// parsePrepared checks what prepare of a handler of d returned. What it returns names topics as the
// database does.
func parsePrepared(out json.RawMessage, d keep.Definition, h keep.Handler, p policy.Policy, now time.Time) (res prepared, f *keep.Failure) {
	if out == nil {
		return prepared{}, badPrepared("it returned nothing")
	}
	var raw rawPrepared
	if err := given.Decode(out, &raw); err != nil {
		return prepared{}, badPrepared("%v", err)
	}
	if raw.Reservations == nil {
		return prepared{}, badPrepared("reservations is missing; return an empty list to do nothing")
	}
	if res.reservations, f = parseReservations(*raw.Reservations, d, h, p.Limits.Reservations); f != nil {
		return prepared{}, f
	}
	if raw.UI != nil {
		res.title = keep.CutTitle(raw.UI.Title)
	}
	at, err := wakeTime(raw.WakeAt)
	if err != nil {
		return prepared{}, badPrepared("%v", err)
	}
	res.wakeAt = p.Wake.Clamp(at, now)
	if res.trigger, err = triggerRef(raw.Trigger); err != nil {
		return prepared{}, badPrepared("%v", err)
	}
	res.trigger.Topic = d.TopicOf(res.trigger.Topic)
	return res, nil
}

// parseReservations checks what prepare reserves: at most limit events of topics that the
// handler subscribes to, each once.
func parseReservations(raw []rawReservation, d keep.Definition, h keep.Handler, limit int) (list []keep.Reservation, f *keep.Failure) {
	total := 0
	seen := make(map[keep.EventRef]bool)
	for i, r := range raw {
		if r.Topic == nil || r.IDs == nil {
			return nil, badPrepared("reservations[%d] needs topic and ids", i)
		}
		topic := d.TopicOf(*r.Topic)
		if !slices.Contains(h.Subscribe, topic) {
			return nil, badPrepared("reservations[%d]: topic %q is not subscribed; %s subscribes to %v", i, *r.Topic, h.Name, calledIn(d, h.Subscribe))
		}
		ids := make([]keep.MessageID, 0, len(r.IDs))
		for j, rawID := range r.IDs {
			id, err := messageID(rawID)
			if err != nil {
				return nil, badPrepared("reservations[%d].ids[%d]: %v", i, j, err)
			}
			ref := keep.EventRef{Topic: topic, MessageID: id}
			if seen[ref] {
				return nil, keep.Failf(keep.ClassLogic, "reservation-duplicate",
					"event %q in topic %q is reserved twice; list each id once", id, *r.Topic)
			}
			seen[ref] = true
			ids = append(ids, id)
		}
		if total += len(ids); total > limit {
			return nil, keep.Failf(keep.ClassLogic, "too-many-reservations",
				"more than %d events reserved; reserve fewer, the consumer runs again for the rest", limit)
		}
		if len(ids) > 0 {
			list = append(list, keep.Reservation{Topic: topic, IDs: ids})
		}
	}
	return list, nil
}

// calledIn returns topics by the names that the script of d uses.
func calledIn(d keep.Definition, topics []keep.TopicName) []keep.TopicName {
	out := make([]keep.TopicName, len(topics))
	for i, t := range topics {
		out[i] = d.CalledIn(t)
	}
	return out
}

// messageID reads an id that a script gave: a text, or a whole number that
// JavaScript holds exactly.
func messageID(raw json.RawMessage) (keep.MessageID, error) {
	s, err := given.ID(raw)
	if err != nil {
		return "", err
	}
	if raw[0] != '"' {
		if n, err := strconv.ParseInt(s, 10, 64); err != nil || max(n, -n) > 1<<53-1 {
			return "", &canonical.NumberError{Number: s}
		}
	}
	id := keep.MessageID(s)
	return id, id.Validate()
}

// nameText reads a text that a script gave as a name: an id, a key, or a part of one.
func nameText(raw json.RawMessage) (string, error) {
	s, err := canonical.Text(raw)
	switch {
	case err == nil && s != "" && len(s) <= keep.MaxMessageID:
		return s, nil
	case err == nil || len(raw) == 0 || raw[0] != '"':
		return "", fmt.Errorf("want a text of 1 to %d bytes, got %s", keep.MaxMessageID, given.Show(raw))
	}
	return "", err
}

// wakeTime reads wakeAt: an ISO string (a Date becomes one) or milliseconds.
func wakeTime(raw json.RawMessage) (time.Time, error) {
	raw = bytes.TrimSpace(raw)
	if len(raw) == 0 || string(raw) == "null" {
		return time.Time{}, nil
	}
	var ms float64
	if err := json.Unmarshal(raw, &ms); err == nil {
		if math.Abs(ms) > 8.64e15 { // the range of a Date
			return time.Time{}, fmt.Errorf("wakeAt %s is not a time in milliseconds", raw)
		}
		return time.UnixMilli(int64(ms)).UTC(), nil
	}
	var s string
	if err := json.Unmarshal(raw, &s); err == nil {
		for _, layout := range []string{time.RFC3339Nano, "2006-01-02T15:04Z07:00", time.DateOnly} {
			if t, err := time.Parse(layout, s); err == nil {
				return t.UTC(), nil
			}
		}
	}
	return time.Time{}, fmt.Errorf("wakeAt: want an ISO string with a zone, a Date or milliseconds, got %s", given.Show(raw))
}

// triggerRef reads the trigger that prepare named: an event, or its topic and id.
func triggerRef(raw json.RawMessage) (keep.EventRef, error) {
	if len(raw) == 0 || string(raw) == "null" {
		return keep.EventRef{}, nil
	}
	var t struct {
		Topic     keep.TopicName  `json:"topic"`
		MessageID json.RawMessage `json:"messageId"`
	}
	if err := given.Decode(raw, &t); err != nil || t.Topic == "" || t.MessageID == nil {
		return keep.EventRef{}, fmt.Errorf("trigger: want an event, or {topic, messageId}, got %s", given.Show(raw))
	}
	id, err := messageID(t.MessageID)
	if err != nil {
		err = fmt.Errorf("trigger.messageId: %w", err)
	}
	return keep.EventRef{Topic: t.Topic, MessageID: id}, err
}

// mergeInputs returns the sorted union of two sorted lists.
func mergeInputs(a, b []keep.InputID) []keep.InputID {
	if len(b) == 0 {
		return a
	}
	all := append(slices.Clone(a), b...)
	slices.Sort(all)
	return slices.Compact(all)
}
