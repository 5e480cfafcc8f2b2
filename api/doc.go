// Package api holds the JSON objects of Keep: what --json prints and what the
// HTTP API answers, field for field.
//
// # Rules
//
//   - Field names are those of package keep, in snake_case.
//   - An absent value is null and never left out, with one exception: a
//     mutation has its history only where one mutation is shown.
//   - An array is never null. What came as JSON, such as a payload, is shown as
//     it came.
//   - Times are RFC 3339 in UTC with milliseconds.
//   - Objects name each other by their ids and keys.
//
// Objects are made from the nouns of package keep, by functions named for them
// (RunOf). Those that need more than one noun read it through the small
// interfaces of read.go; the stores satisfy them all.
package api
