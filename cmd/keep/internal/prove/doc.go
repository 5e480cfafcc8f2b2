// Package prove finds out what a service does, by calls of the tools of a connection to it: on an
// account that may be harmed. It loses answers, repeats calls, makes them twice at once and
// breaks them off, looks how often each had its effect and how soon that showed, and grades
// each tool by what it saw, not by what its configuration says.
//
// A grade is a level of section "Levels" of the architecture that was shown. What was not
// shown is not granted: a service that answers a repeat as it answers everything shows
// nothing about keys.
package prove
