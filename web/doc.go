// Package web serves the pages that people look at: what came in, what was done
// about it, and what needs them.
//
// # How it is made
//
// Every page is HTML that the server writes, with html/template. Links are links
// and actions are forms, so all of it works without JavaScript. With it, htmx asks
// for the page again when the host says that something changed (live.go), and puts
// in place what differs. There is no build step: the static files are in static,
// two of them copied from npm unchanged (internal/generate).
//
// # What pages promise
//
//   - What came from outside is text. html/template escapes it for its place, the
//     policy of content security forbids scripts and styles within pages, and
//     characters that would hide or reorder text are shown by their numbers
//     (text.go), in all pages, in one place.
//   - A list never reads payloads, is read page by page, and says exact numbers.
//   - A payload of more than 64 KiB is shown in part, and can be downloaded.
//   - A run that is not finished says which attempt it is, since when, what went
//     wrong last and when it is tried again (law: explained).
//   - A viewer sees no buttons, and a viewer's request to act is refused.
//
// # What it leaves to others
//
// Who is asking is decided before a request comes here (package access), and so are
// sessions, cross-origin requests and hosts. The rules of actions are the engine's.
package web

//go:generate go run ./internal/generate
