package agent

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"time"

	"rutter/log/feed"
)

// answerTime bounds the wait for a place among what goes up.
const answerTime = time.Second

// answersHold answers what servers ask about what is held, and is false if a
// request is about something else:
//
//	GET /hold          Hold, or 404
//	POST /hold/accept  {"hold":ID}; Hold as it was, 404 if there is none, 409 if it is another
func (s *stream) answersHold(m *feed.Request) bool {
	response := &feed.Response{Number: m.Number, Status: http.StatusOK}
	var h Hold
	var err error
	switch m.Method + " " + m.Path {
	case "GET /hold":
		if now := s.replica.holding(); now != nil {
			h = *now
		} else {
			err = ErrNoHold
		}
	case "POST /hold/accept":
		var in struct {
			Hold string `json:"hold"`
		}
		if err = json.Unmarshal(m.Body, &in); err == nil {
			h, err = s.replica.accept(in.Hold)
		}
	default:
		return false
	}
	var body any = h
	if err != nil {
		response.Status, body = http.StatusBadRequest, map[string]string{"code": "BadRequest", "message": err.Error()}
		switch {
		case errors.Is(err, ErrNoHold):
			response.Status, body = http.StatusNotFound, map[string]string{"code": "ResourceNotFound", "message": err.Error()}
		case errors.Is(err, ErrOtherHold):
			response.Status, body = http.StatusConflict, map[string]string{"code": "OtherHold", "message": "it holds " + h.ID + " now: " + err.Error()}
		}
	}
	if response.Body, err = json.Marshal(body); err != nil {
		response.Status = http.StatusInternalServerError
	}
	s.respond(response)
	return true
}

// respond sends an answer, if there is room for it soon.
func (s *stream) respond(response *feed.Response) {
	ctx, cancel := context.WithTimeout(s.ctx, answerTime)
	defer cancel()
	_ = s.conn.Send(ctx, response) // who asked asks again
}
