package files

import (
	"time"

	"github.com/keep-run/keep/connector"
)

// OnStep has f called between the durable steps of the changes of conn.
func OnStep(conn *connector.Connection, f func(point string)) {
	for _, t := range conn.Tools {
		switch t := t.(type) {
		case *writer:
			t.dir.step = f
		case *appender:
			t.dir.step = f
		}
	}
}

// KeepMarks bounds the marks of conn: the newest least, and of the others none that is
// older than age, looked at after each change.
func KeepMarks(conn *connector.Connection, least, most int, age time.Duration) {
	for _, t := range conn.Tools {
		switch t := t.(type) {
		case *writer:
			t.dir.marks = marks{least, most, age, 1}
		case *appender:
			t.dir.marks = marks{least, most, age, 1}
		}
	}
}
