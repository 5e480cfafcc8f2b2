// Package view reads how things stand: what is under way and what it waits for, what
// needs a person, what fails, what is late. The API, the pages and the command show
// the same view, so they cannot disagree.
//
// A view is read with as many calls of the store as it has parts, however many
// workflows there are, and each part has a limit.
package view
