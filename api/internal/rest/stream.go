package rest

import (
	"errors"
	"net/http"
	"time"
)

// AnswerTime is how long a client may take to receive an answer, or a part of a stream.
const AnswerTime = 60 * time.Second

// ErrGone: the client disconnected, or received nothing for AnswerTime.
var ErrGone = errors.New("rest: the client went")

// Stream is a long answer. Each part of it has AnswerTime.
type Stream struct {
	w       http.ResponseWriter
	control *http.ResponseController
}

// NewStream returns the answer of a request whose body was read: a later read error
// would only end the request.
func NewStream(w http.ResponseWriter) *Stream {
	s := &Stream{w, http.NewResponseController(w)}
	_ = s.control.SetReadDeadline(time.Time{})
	return s
}

// Write writes a part. The error is ErrGone.
func (s *Stream) Write(b []byte) error {
	_ = s.control.SetWriteDeadline(time.Now().Add(AnswerTime))
	if _, err := s.w.Write(b); err != nil {
		return ErrGone
	}
	return nil
}

// Flush sends what was written. The error is ErrGone.
func (s *Stream) Flush() error {
	if s.control.Flush() != nil {
		return ErrGone
	}
	return nil
}
