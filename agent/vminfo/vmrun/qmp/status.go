package qmp

import (
	"context"
	"encoding/json"
	"fmt"
)

// RunState is QEMU's word for what a machine does (RunState of qapi/run-state.json), such as
// running, paused, io-error, shutdown, guest-panicked.
func (c *Conn) RunState(ctx context.Context) (string, error) {
	answer, err := c.Execute(ctx, "query-status")
	if err != nil {
		return "", err
	}
	var status struct {
		Status string `json:"status"`
	}
	if err := json.Unmarshal(answer, &status); err != nil || status.Status == "" {
		return "", fmt.Errorf("%w: the answer to query-status: %.40q", ErrMessage, answer)
	}
	return clip(status.Status), nil
}
