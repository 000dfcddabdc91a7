package cnapi

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"

	"rutter/api/reach"
	"rutter/log"
	"rutter/projections"
)

func isRefusal(err error) bool {
	var refusal *log.Refusal
	return errors.As(err, &refusal)
}

// post sends a task to the HTTP service of a CN (spec/cnapi.md section 4.4), and
// returns the JSON of its answer.
func (s *Service) post(ctx context.Context, t *log.Task, to *log.Server) (string, error) {
	body, err := json.Marshal(map[string]any{"task": t.Task, "params": s.filled(t)})
	if err != nil {
		return "", err
	}
	return s.postTo(ctx, to, "/tasks", t.ReqID, body)
}

// postTo posts to a path of the HTTP service of a CN, and returns the JSON of its answer.
func (s *Service) postTo(ctx context.Context, to *log.Server, path, reqID string, body []byte) (string, error) {
	if !to.AdminIP.IsValid() {
		return "", errors.New("the compute node has no admin address: it told none in its sysinfo")
	}
	port := to.AgentPort
	if port == 0 {
		port = defaultPort
	}
	url := "http://" + net.JoinHostPort(to.AdminIP.String(), strconv.FormatUint(uint64(port), 10)) + path
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, bytes.NewReader(body))
	if err != nil {
		return "", err
	}
	request.Header.Set("Content-Type", "application/json")
	request.Header.Set("x-server-uuid", to.UUID.String())
	request.Header.Set("x-request-id", reqID)
	response, err := s.cfg.HTTP.Do(to.UUID, request)
	if errors.Is(err, reach.ErrRefused) {
		return "", fmt.Errorf("it was not sent: %w", err)
	}
	if err != nil {
		return "", fmt.Errorf("interrupted: it may have been done: %w", err)
	}
	defer response.Body.Close()
	answer, err := io.ReadAll(io.LimitReader(response.Body, projections.MaxTaskBytes+1))
	if err != nil {
		return "", fmt.Errorf("interrupted: it may have been done: %w", err)
	}
	if response.StatusCode >= http.StatusMultipleChoices {
		var said struct{ Message, Error string }
		_ = json.Unmarshal(answer, &said) // the status says enough
		return "", fmt.Errorf("the compute node answered %d: %s%s", response.StatusCode, said.Message, said.Error)
	}
	if answer = bytes.TrimSpace(answer); len(answer) == 0 {
		return "", nil
	}
	text, err := canonical(answer)
	if err != nil || len(text) > projections.MaxTaskBytes {
		return `{"note":"the answer was not kept: it is no JSON, or too long"}`, nil
	}
	return text, nil
}
