// Package llm asks language models, by the two protocols that services and servers of models
// speak: the Messages of Anthropic and the chat completions of OpenAI.
//
// # Nothing of an answer is believed
//
// A model may answer anything, and so may whoever stands between it and the client. An answer
// is text and calls of tools, of a bounded size; what does not follow the protocol, ends
// early, or takes too long is an error, and is asked for again as often as Config.Retry says.
// An answer of more than MaxAnswer bytes is not asked for again.
//
// # What it costs
//
// Everything that was asked is counted, also what was asked for again and what no answer came
// to: a service may charge for it. Where a service does not say how many tokens there were,
// four bytes count as one.
//
// The key goes to the service and to nobody else: redirects are not followed, and errors have
// no part of the body of an answer besides the type of the error.
package llm
