package llm

import "io"

// ReadAnswer reads an answer as a client does that got it.
func ReadAnswer(api API, body io.Reader) (Answer, error) {
	s := newStream(api)
	if err := events(body, s.event); err != nil {
		return Answer{}, err
	}
	return s.answer()
}
