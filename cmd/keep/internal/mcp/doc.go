// Package mcp speaks the Model Context Protocol with an agent, which may do what an author
// may, and never what a person decides.
//
// # Who may what
//
// A viewer reads; an operator may pause; an author may plan, test and propose as well. No
// tool decides: none answers a question, approves, grants, resumes, deploys, or touches a
// secret or a token. That is held twice: there are no such tools, and the requests of all
// tools go through a gate that passes reads, pauses and proposals and nothing else.
//
// # Data is not instructions
//
// What an answer holds of the outside (payloads, results, errors, titles, names) stands
// between <data-NONCE> and </data-NONCE>, with a nonce that is new in each answer, so that
// nobody who wrote the data knows how it ends. What looks like a mark inside is escaped, and
// so are characters that cannot be seen. Answers are bounded.
package mcp
