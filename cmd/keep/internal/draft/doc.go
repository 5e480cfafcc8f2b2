// Package draft has a model write a workflow, or change one, for a person who says what it is
// for. What comes of it is a text: it is stored, deployed and granted by others, after the person
// has seen what it would do.
//
// # A model is not believed
//
// The model reads what services answer, and so what strangers wrote. Whatever talked to it, it
// has six tools that change nothing (those of keep mcp, and a question to the person), and one
// that hands over a script. What it hands over is taken only if it passes check, its tests pass,
// it has the name that it must have, and every address, page and long number in it was said by
// the person or is in the version before.
//
// # What it may use
//
// Conversations, answers, tokens, cost, time, questions and the size of the script have limits.
package draft
