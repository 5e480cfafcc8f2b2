package files

import "github.com/keep-run/keep/connector"

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
